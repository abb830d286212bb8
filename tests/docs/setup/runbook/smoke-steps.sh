make_failed_conversion
export CRON_SECRET=secret BASE=http://127.0.0.1:8080
start_google
start_server
