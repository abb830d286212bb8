"""Pages of delivery: the list, one conversion."""
