-- Deletes the records of some pages of a table whose retention period is over. SKIP LOCKED: a record that a transaction holds is
-- deleted another day, so no statement here waits. Pages instead of an index: the tables are written with every upload and
-- read for this once a day.

-- name: begin_run
UPDATE weighbridge.retention_run SET ran_at = weighbridge.now() WHERE ran_at <= weighbridge.now() - %s RETURNING ran_at

-- name: count_pages
SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::bigint

-- name: attempts
-- Closed attempts; those at an upload that has not ended are kept, and those of a run that still has its lease.
DELETE FROM weighbridge.attempts WHERE ctid = ANY (ARRAY(
    SELECT a.ctid FROM weighbridge.attempts a
    WHERE a.ctid >= %(first)s::tid AND a.ctid < %(end)s::tid AND a.closed_at < weighbridge.now() - %(age)s
      AND NOT EXISTS (SELECT FROM public.data_uploads d
                      WHERE d.id = a.subject AND d.status NOT IN ('completed', 'partial', 'failed'))
      AND NOT EXISTS (SELECT FROM weighbridge.attempts run WHERE run.lease_token = a.under AND run.closed_at IS NULL)
    FOR UPDATE OF a SKIP LOCKED))

-- name: events
-- Events that every consumer has received, or that were given up, with their deliveries. The events of this month about quotas
-- are kept: they are emitted once a month.
DELETE FROM weighbridge.events WHERE ctid = ANY (ARRAY(
    SELECT e.ctid FROM weighbridge.events e
    WHERE e.ctid >= %(first)s::tid AND e.ctid < %(end)s::tid AND e.created_at < weighbridge.now() - %(age)s
      AND NOT EXISTS (SELECT FROM weighbridge.event_deliveries v
                      WHERE v.event_id = e.id AND v.delivered_at IS NULL AND v.gave_up_at IS NULL)
      AND (e.type <> 'quota.storage.exceeded' OR e.payload ->> 'billing_month' < weighbridge.billing_month())
    FOR UPDATE OF e SKIP LOCKED))

-- name: alerts
DELETE FROM weighbridge.alerts WHERE ctid = ANY (ARRAY(
    SELECT a.ctid FROM weighbridge.alerts a
    WHERE a.ctid >= %(first)s::tid AND a.ctid < %(end)s::tid AND a.closed_at < weighbridge.now() - %(age)s
    FOR UPDATE OF a SKIP LOCKED))

-- name: confirmations
DELETE FROM weighbridge.confirmations WHERE ctid = ANY (ARRAY(
    SELECT c.ctid FROM weighbridge.confirmations c
    WHERE c.ctid >= %(first)s::tid AND c.ctid < %(end)s::tid AND c.state <> 'AWAITED'
      AND c.due_at < weighbridge.now() - %(age)s
    FOR UPDATE OF c SKIP LOCKED))

-- name: audit_log
DELETE FROM weighbridge.audit_log WHERE ctid = ANY (ARRAY(
    SELECT l.ctid FROM weighbridge.audit_log l
    WHERE l.ctid >= %(first)s::tid AND l.ctid < %(end)s::tid AND l.at < weighbridge.now() - %(age)s
    FOR UPDATE OF l SKIP LOCKED))

-- name: upload_rejections
-- Of uploads that ended long enough ago, as are warnings and links: an upload that was opened again keeps all of them.
DELETE FROM public.upload_rejections WHERE ctid = ANY (ARRAY(
    SELECT r.ctid FROM public.upload_rejections r
    JOIN public.data_uploads d ON d.id = r.upload_id AND d.status IN ('completed', 'partial', 'failed')
    WHERE r.ctid >= %(first)s::tid AND r.ctid < %(end)s::tid AND d.finished_at < weighbridge.now() - %(age)s
    FOR UPDATE OF r SKIP LOCKED))

-- name: upload_warnings
DELETE FROM public.upload_warnings WHERE ctid = ANY (ARRAY(
    SELECT w.ctid FROM public.upload_warnings w
    JOIN public.data_uploads d ON d.id = w.upload_id AND d.status IN ('completed', 'partial', 'failed')
    WHERE w.ctid >= %(first)s::tid AND w.ctid < %(end)s::tid AND d.finished_at < weighbridge.now() - %(age)s
    FOR UPDATE OF w SKIP LOCKED))

-- name: upload_fixes
DELETE FROM weighbridge.upload_fixes WHERE ctid = ANY (ARRAY(
    SELECT f.ctid FROM weighbridge.upload_fixes f
    JOIN public.data_uploads d ON d.id = f.upload_id AND d.status IN ('completed', 'partial', 'failed')
    WHERE f.ctid >= %(first)s::tid AND f.ctid < %(end)s::tid AND d.finished_at < weighbridge.now() - %(age)s
    FOR UPDATE OF f SKIP LOCKED))

-- name: upload_duplicates
DELETE FROM public.upload_duplicates WHERE ctid = ANY (ARRAY(
    SELECT u.ctid FROM public.upload_duplicates u
    WHERE u.ctid >= %(first)s::tid AND u.ctid < %(end)s::tid AND u.last_at < weighbridge.now() - %(age)s
    FOR UPDATE OF u SKIP LOCKED))

-- name: turns
DELETE FROM weighbridge.turns WHERE ctid = ANY (ARRAY(
    SELECT t.ctid FROM weighbridge.turns t
    WHERE t.ctid >= %(first)s::tid AND t.ctid < %(end)s::tid AND t.served_at < weighbridge.now() - %(age)s
    FOR UPDATE OF t SKIP LOCKED))
