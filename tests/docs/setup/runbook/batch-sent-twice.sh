printf 'Case Number,Plaintiff,Amount\nA-1,Acme Ltd,1250.50\n' > cases.csv
weighbridge load cases.csv --pipeline judgments > /dev/null
