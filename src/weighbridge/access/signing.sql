-- name: signing_secret
SELECT secret FROM weighbridge.signing

-- name: expiry
SELECT date_trunc('second', weighbridge.now() + %s)

-- name: key_behind
-- As find_key: the last use is noted at most once a minute.
WITH found AS (
    SELECT * FROM weighbridge.api_keys
    WHERE id = %(key)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > weighbridge.now())
      AND %(expires_at)s > weighbridge.now()
), used AS (
    UPDATE weighbridge.api_keys k SET last_used_at = weighbridge.now() FROM found f
    WHERE k.id = f.id AND (f.last_used_at IS NULL OR f.last_used_at < weighbridge.now() - interval '1 minute')
)
SELECT id, workspace_id, name, prefix, scopes, created_at, expires_at, revoked_at, last_used_at FROM found
