# $ID has a rejected row; the editor fixes it.
{
    echo 'Case Number,Plaintiff,Defendant,Amount,Entry Date'
    for number in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "C-$number,Ann Lee,Bob Ray,100,3/4/2025"; done
    echo 'C-19,Ann Lee,Bob Ray,much,1/31/2025'
} > cases.csv
ID=$(weighbridge load cases.csv --pipeline judgments --json | json 'r["upload_id"]')
EDITOR='sed -i s/much/100/'
