-- name: missing_roles
SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, place)
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
ORDER BY place

-- name: closed_roles
-- Those that this login cannot SET ROLE to. Since Postgres 16 being a member does not suffice: who creates a role
-- becomes a member that may administer it, but not take it on.
SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, place)
WHERE EXISTS (SELECT FROM pg_roles WHERE rolname = name)
  AND NOT pg_has_role(current_user, name,
                      CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
ORDER BY place
