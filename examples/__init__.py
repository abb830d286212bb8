"""Pipelines and providers of one's own. Each file stands alone; the tests run them all."""
