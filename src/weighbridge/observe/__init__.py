"""Observability.

traces       one trace id from the request to every log line
journal      events: each is logged once and counted
logs         log lines as JSON or for a terminal; redact removes personal data
metrics      metrics for Prometheus
alerts       alerts to people; check_alert_address tests an address
"""
