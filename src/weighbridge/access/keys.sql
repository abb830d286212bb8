-- name: create_key
INSERT INTO weighbridge.api_keys (workspace_id, name, prefix, key_hash, scopes, expires_at)
VALUES (%s, %s, %s, %s, %s, %s)
RETURNING id, workspace_id, name, prefix, scopes, created_at, expires_at, revoked_at, last_used_at

-- name: find_key
-- The last use is noted at most once a minute: authentication must not write on every request.
WITH found AS (
    SELECT * FROM weighbridge.api_keys
    WHERE key_hash = %s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > weighbridge.now())
), used AS (
    UPDATE weighbridge.api_keys k SET last_used_at = weighbridge.now() FROM found f
    WHERE k.id = f.id AND (f.last_used_at IS NULL OR f.last_used_at < weighbridge.now() - interval '1 minute')
)
SELECT id, workspace_id, name, prefix, scopes, created_at, expires_at, revoked_at, last_used_at FROM found

-- name: list_keys
SELECT id, workspace_id, name, prefix, scopes, created_at, expires_at, revoked_at, last_used_at
FROM weighbridge.api_keys
WHERE %(workspace)s::uuid IS NULL OR workspace_id = %(workspace)s
ORDER BY created_at

-- name: revoke_key
UPDATE weighbridge.api_keys SET revoked_at = weighbridge.now() WHERE id = %s AND revoked_at IS NULL RETURNING id
