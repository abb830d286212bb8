"""Commands of storage: the queue of files, usage and limits."""
