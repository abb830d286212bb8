-- name: heartbeat
SELECT weighbridge.heartbeat(%s, %s, %s)

-- name: ended
-- Attempts that their own worker has ended. It has not removed them from its held leases yet.
SELECT lease_token FROM weighbridge.attempts WHERE lease_token = ANY (%s) AND outcome IN ('done', 'failed', 'released')
