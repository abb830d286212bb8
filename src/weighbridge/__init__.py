"""Weighbridge: export files into Postgres, every row exactly once and accounted for."""

__version__ = "0.1.0"
