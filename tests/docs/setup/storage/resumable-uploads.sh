make_samples
cp samples/meta-ads-daily.csv report.csv
start_server
KEY=$(weighbridge keys create --name setup --scope upload)
