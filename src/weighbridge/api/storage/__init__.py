"""Routes of storage: usage and limits."""
