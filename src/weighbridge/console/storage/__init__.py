"""Pages of storage.

index        usage, quotas and files that wait for the store
"""
