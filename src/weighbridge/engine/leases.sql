-- name: heartbeat
SELECT weighbridge.heartbeat(%s, %s, %s)

-- name: ended
-- Attempts that have ended by themselves: their worker is about to let go of them.
SELECT lease_token FROM weighbridge.attempts WHERE lease_token = ANY (%s) AND outcome IN ('done', 'failed', 'released')
