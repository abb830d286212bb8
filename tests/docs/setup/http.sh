# The files of the examples; $FAILED is refused for its dates, $HELD is a preview.
export CRON_SECRET=secret WEIGHBRIDGE_VAULT_KEY=$(weighbridge vault key)
make_samples
cp samples/meta-ads-daily.csv report.csv
cp samples/court-judgments.csv cases.csv
cp samples/tiktok-ads-daily.csv new.csv
start_server
{
    echo 'Case Number,Plaintiff,Defendant,Amount,Entry Date'
    for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do echo "C-$number,Ann Lee,Bob Ray,100,3/4/2025"; done
    echo 'C-19,Ann Lee,Bob Ray,100,31/1/2025'
} > refused.csv
weighbridge load refused.csv --pipeline judgments || true
FAILED=$(weighbridge uploads list --json | json 'r[0]["upload_id"]')
