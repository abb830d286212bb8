# A project with two files, one of which failed, and a group.
printf 'Keyword,Volume\nred sneakers,10\nsneakers,90\ntrainers,80\nshoe,100\nred boot,20\nboots,70\n' > jan.csv
printf 'Keyword,Volume\nshoe rack,30\nboots women,40\n' > feb.csv
printf 'Keyword,Volume\n"broken' > broken.csv
start_server
KEY=$(weighbridge keys create --name setup --scope admin)
weighbridge load jan.csv --pipeline keywords --project 1
weighbridge load broken.csv --pipeline keywords --project 1 || true
weighbridge projects jobs 1 --status failed --json | grep failed
GROUP=$(weighbridge projects groups 1 --json | json 'next(g["id"] for g in r if "shoe" in str(g))')
