"""Pages of uploads: the list, one upload, its preview."""
