"""Weighbridge, a plain psql script and dlt: the same file, the same Postgres, one after another."""
