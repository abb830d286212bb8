-- name: lock_golden_path
-- Held by the connection: a killed check releases it.
SELECT pg_try_advisory_lock(hashtext('weighbridge.golden_path'))

-- name: import_run
-- The import run of the batch.
SELECT status::text, record_count, error_message
FROM ingest.import_runs
WHERE workspace_id = %(workspace)s AND source_batch_id = %(batch)s

-- name: snapshot
-- Everything that sending a batch again must not change, as one text.
SELECT string_agg(line, E'\n' ORDER BY line) FROM (
    SELECT to_jsonb(d)::text FROM public.data_uploads d WHERE d.workspace_id = %(workspace)s
    UNION ALL
    SELECT to_jsonb(j)::text FROM public.judgments j WHERE j.workspace_id = %(workspace)s
    UNION ALL
    SELECT to_jsonb(p)::text FROM public.plaintiffs p WHERE p.workspace_id = %(workspace)s
    UNION ALL
    SELECT to_jsonb(a)::text FROM weighbridge.attempts a WHERE a.workspace_id = %(workspace)s AND a.queue = 'uploads'
) AS lines (line)

-- name: revoke_attempts
-- Waits for fenced transactions in progress; afterwards these attempts can change nothing.
WITH revoked AS (
    DELETE FROM weighbridge.attempts WHERE workspace_id = %(workspace)s RETURNING lease_token
)
DELETE FROM weighbridge.unbroken u USING revoked WHERE u.lease_token = revoked.lease_token

-- name: lock_uploads
-- Waits for a claim in progress; afterwards the uploads cannot be claimed.
SELECT id FROM public.data_uploads WHERE workspace_id = %(workspace)s FOR UPDATE

-- name: alerts_about
-- Alerts belong to an upload, not to a workspace: "id", or "id/episode".
SELECT a.id FROM weighbridge.alerts a WHERE split_part(a.subject, '/', 1) = ANY (%(uploads)s::text[])

-- name: revoke_alert_attempts
DELETE FROM weighbridge.attempts a
USING weighbridge.event_deliveries d JOIN weighbridge.events e ON e.id = d.event_id
WHERE a.queue = 'outbox' AND a.subject = d.id AND e.alert_id = ANY (%(alerts)s)

-- name: lock_deliveries
SELECT d.id FROM weighbridge.event_deliveries d
WHERE d.workspace_id = %(workspace)s
   OR d.event_id IN (SELECT e.id FROM weighbridge.events e WHERE e.alert_id = ANY (%(alerts)s))
FOR UPDATE

-- name: open_attempts
-- A claim in between is seen here; no later one is possible.
SELECT count(*) FROM weighbridge.attempts
WHERE workspace_id = %(workspace)s OR queue = 'outbox' AND subject = ANY (%(deliveries)s)

-- name: delete_events
DELETE FROM weighbridge.events
WHERE workspace_id = %(workspace)s OR alert_id = ANY (%(alerts)s)

-- name: delete_alerts
DELETE FROM weighbridge.alerts WHERE id = ANY (%(alerts)s)

-- name: delete_turns
DELETE FROM weighbridge.turns WHERE workspace_id = %(workspace)s

-- name: delete_audit
DELETE FROM weighbridge.audit_log WHERE workspace_id = %(workspace)s

-- name: delete_receipts
DELETE FROM weighbridge.receipts WHERE workspace_id = %(workspace)s

-- name: delete_judgments
DELETE FROM public.judgments WHERE workspace_id = %(workspace)s

-- name: delete_plaintiffs
DELETE FROM public.plaintiffs WHERE workspace_id = %(workspace)s

-- name: delete_rejections
DELETE FROM public.upload_rejections WHERE upload_id = ANY (%(uploads)s)

-- name: delete_warnings
DELETE FROM public.upload_warnings WHERE upload_id = ANY (%(uploads)s)

-- name: delete_queue
DELETE FROM public.upload_queue WHERE workspace_id = %(workspace)s

-- name: delete_usage
WITH usage AS (DELETE FROM public.storage_usage WHERE workspace_id = %(workspace)s),
reservations AS (DELETE FROM weighbridge.storage_reservations WHERE workspace_id = %(workspace)s),
limits AS (DELETE FROM weighbridge.storage_limits WHERE workspace_id = %(workspace)s)
DELETE FROM weighbridge.counted_blobs WHERE workspace_id = %(workspace)s

-- name: delete_uploads
DELETE FROM public.data_uploads WHERE workspace_id = %(workspace)s

-- name: tables_with_a_workspace
SELECT n.nspname::text, c.relname::text
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema')
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'workspace_id' AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.atttypid = 'uuid'::regtype
ORDER BY 1, 2
