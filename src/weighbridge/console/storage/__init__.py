"""Page of storage: usage, quota, files that wait."""
