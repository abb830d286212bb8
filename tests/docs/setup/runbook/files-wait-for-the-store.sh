# A file waits, because the store was down when it was received.
mkdir inbox
printf 'Case Number,Plaintiff,Amount\nA-1,Acme Ltd,1250.50\n' > inbox/cases.csv
env WEIGHBRIDGE_BLOB_URL=s3://down AWS_ENDPOINT_URL=http://127.0.0.1:9 AWS_ALLOW_HTTP=true AWS_REGION=none \
    AWS_ACCESS_KEY_ID=none AWS_SECRET_ACCESS_KEY=none WEIGHBRIDGE_STORE_SECONDS=1 \
    weighbridge watch inbox --pipeline judgments --once --no-work
