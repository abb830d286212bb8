"""Commands of uploads: load, watch, uploads."""
