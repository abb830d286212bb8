"""The built-in pipelines."""
