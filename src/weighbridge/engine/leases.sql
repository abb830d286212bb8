-- name: heartbeat
SELECT weighbridge.heartbeat(%s, %s, %s)
