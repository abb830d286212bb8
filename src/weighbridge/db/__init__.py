"""Everything that speaks to Postgres. Nothing outside this folder imports psycopg."""
