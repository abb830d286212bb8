"""Commands of storage.

queue        files that wait for the file store
usage        storage usage, quotas, recount
"""
