# report.csv needs its read options; $ID was refused for its dates.
printf 'Day,Campaign name,Impressions,Amount spent (EUR)\n03/04/2025,Shoes,900,"1,50"\n' > report.csv
{
    echo 'Case Number,Plaintiff,Defendant,Amount,Entry Date'
    for number in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "C-$number,Ann Lee,Bob Ray,100,3/4/2025"; done
    echo 'C-19,Ann Lee,Bob Ray,100,31/1/2025'
} > cases.csv
weighbridge load cases.csv --pipeline judgments || true
ID=$(weighbridge uploads list --json | json 'r[0]["upload_id"]')
