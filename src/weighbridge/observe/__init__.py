"""Observability: logs, metrics, traces and alerts."""
