-- name: missing_roles
SELECT name FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, place)
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
ORDER BY place

-- name: closed_roles
-- Roles that this login cannot SET ROLE to. Since Postgres 16, membership is not enough: the creator of a role becomes
-- a member that may administer it, but cannot SET ROLE to it.
SELECT r.rolname::text FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, place)
JOIN pg_roles r ON r.rolname = name
WHERE NOT pg_has_role(r.oid, CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END)
ORDER BY place
