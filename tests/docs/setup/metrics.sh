export WEIGHBRIDGE_METRICS_TOKEN=secret
start_server
KEY=$(weighbridge keys create --name setup --scope read)
