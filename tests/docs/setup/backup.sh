# The drill's servers: the run's own, and a new one that has no roles yet. Its login is no superuser on either.
find_psql
export SERVER=${DATABASE_URL#*host=} OTHER_SERVER="$PWD/other/postgres" PGUSER=drill_keeper
unset DATABASE_URL

cat > other.py <<'END'
import signal, sys
from pathlib import Path
from weighbridge.postgres import embedded

signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # stops the server, too
embedded.start(Path("other"), "postgres")
Path("other-runs").touch()
signal.pause()
END
in_background python other.py
until [ -e other-runs ]; do sleep 0.05; done

as_owner() { psql --quiet --no-psqlrc --host="$1" --username=postgres --command="$2" postgres; }
# Not in the folder of the page, whose processes are ended with it.
leave() { cd /; as_owner "$SERVER" "DROP DATABASE IF EXISTS drill WITH (FORCE)"; as_owner "$SERVER" "DROP ROLE IF EXISTS drill_keeper"; }
trap leave EXIT
for server in "$SERVER" "$OTHER_SERVER"; do as_owner "$server" "CREATE ROLE drill_keeper LOGIN CREATEDB CREATEROLE"; done
as_owner "$SERVER" "GRANT weighbridge_intake, weighbridge_parse, weighbridge_promote, weighbridge_clean, weighbridge_announce,
    weighbridge_group, weighbridge_deliver, weighbridge_tenant TO drill_keeper"
