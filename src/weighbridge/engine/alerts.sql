-- name: watch_queues
SELECT dead_letters, backlog FROM weighbridge.watch_queues(%s, %s)
