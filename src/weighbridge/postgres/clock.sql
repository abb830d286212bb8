-- name: now
SELECT weighbridge.now()
