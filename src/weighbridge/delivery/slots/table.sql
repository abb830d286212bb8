-- name: acquire_slots
SELECT * FROM weighbridge.acquire_slots(%(site_keys)s, %(global_keys)s, %(tokens)s, %(per_site)s, %(per_provider)s, %(ttl)s)

-- name: release_slots
SELECT weighbridge.release_slots(%s)
