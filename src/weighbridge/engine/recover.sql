-- name: recover
SELECT queue, subject, worker, opened_at, hours, batch, gave_up FROM weighbridge.recover(%s)
