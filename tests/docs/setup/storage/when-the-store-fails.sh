# $ID and $OTHER are files that wait, because the store was down when they were received.
make_samples
mkdir inbox
cp samples/tiktok-ads-daily.csv samples/court-judgments.csv inbox
env WEIGHBRIDGE_BLOB_URL=s3://down AWS_ENDPOINT_URL=http://127.0.0.1:9 AWS_ALLOW_HTTP=true AWS_REGION=none \
    AWS_ACCESS_KEY_ID=none AWS_SECRET_ACCESS_KEY=none WEIGHBRIDGE_STORE_SECONDS=1 \
    weighbridge watch inbox --pipeline auto --once --no-work
ID=$(weighbridge storage list --json | json 'r[0]["queue_id"]')
OTHER=$(weighbridge storage list --json | json 'r[1]["queue_id"]')
