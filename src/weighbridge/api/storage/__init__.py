"""Routes of storage.

usage        storage usage and quotas
"""
