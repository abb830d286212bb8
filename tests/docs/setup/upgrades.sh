# An installation with one loaded file, and an empty database for the trial.
find_psql
make_samples
weighbridge load samples/court-judgments.csv --pipeline judgments > /dev/null

trial_database=trial_$$
as_owner_of_database --command="CREATE DATABASE $trial_database"
export TRIAL=${DATABASE_URL/\/test_*\?//$trial_database?}
owner=$DATABASE_URL
# Not in the folder of the page, whose processes are ended with it.
trap 'cd / && psql --quiet --no-psqlrc "$owner" --command="DROP DATABASE $trial_database WITH (FORCE)"' EXIT
