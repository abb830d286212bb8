make_failed_conversion
export CRON_SECRET=secret WEIGHBRIDGE_ENVIRONMENT=staging BASE=http://127.0.0.1:8080
start_server
