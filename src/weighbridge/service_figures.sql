-- name: service_figures
-- All workspaces together, at one moment. Only the states need every upload, and read an index for them;
-- everything else reads partial indexes of unfinished work.
WITH clock AS MATERIALIZED (SELECT weighbridge.now() AS time),
states AS MATERIALIZED ( -- four parts, one per partial index: ended, waiting for any worker, waiting for its runner, in progress
    SELECT d.status, count(*) AS uploads,
           count(*) FILTER (WHERE d.finished_at > (SELECT time FROM clock) - INTERVAL '24h') AS of_24h
    FROM public.data_uploads d WHERE d.status IN ('completed', 'partial', 'failed') GROUP BY d.status
    UNION ALL
    SELECT d.status, count(*), 0 FROM public.data_uploads d
    WHERE d.status IN ('pending', 'staging_complete') AND d.project_id IS NULL GROUP BY d.status
    UNION ALL
    SELECT d.status, count(*), 0 FROM public.data_uploads d
    WHERE d.status IN ('pending', 'staging_complete') AND d.project_id IS NOT NULL GROUP BY d.status
    UNION ALL
    SELECT d.status, count(*), 0 FROM public.data_uploads d
    WHERE d.status IN ('processing', 'promoting') GROUP BY d.status
),
jobs AS MATERIALIZED (
    SELECT j.status, count(*) AS jobs, avg(EXTRACT(EPOCH FROM j.finished_at - j.started_at)) AS seconds
    FROM (SELECT CASE WHEN d.status = 'staging_complete' AND NOT weighbridge.has_live_attempt(d.id) THEN 'queued'
                      ELSE weighbridge.job_status(d.status) END AS status, d.started_at, d.finished_at
          FROM public.data_uploads d
          WHERE d.project_id IS NOT NULL AND NOT (d.preview AND d.status = 'staging_complete')) j
    GROUP BY j.status
),
set_aside AS MATERIALIZED ( -- discarded: neither failures nor files of their project
    SELECT count(*) FILTER (WHERE d.finished_at > (SELECT time FROM clock) - INTERVAL '24h') AS of_24h,
           count(d.project_id) AS jobs
    FROM public.data_uploads d
    WHERE d.preview AND d.status = 'failed' AND d.error_code IN ('discarded', 'preview_expired')
),
outbox AS MATERIALIZED (
    SELECT count(*) AS waiting, EXTRACT(EPOCH FROM (SELECT time FROM clock) - min(e.created_at)) AS age
    FROM weighbridge.event_deliveries v JOIN weighbridge.events e ON e.id = v.event_id
    WHERE v.delivered_at IS NULL AND v.gave_up_at IS NULL
)
SELECT (SELECT jsonb_object_agg(s.status, s.uploads)
        FROM (SELECT status, sum(uploads) AS uploads FROM states GROUP BY status) s) AS uploads,
       (SELECT count(*) FROM public.data_uploads d WHERE d.preview AND d.status = 'staging_complete') AS previews_on_hold,
       coalesce((SELECT s.of_24h FROM states s WHERE s.status = 'failed'), 0) - (SELECT of_24h FROM set_aside) AS failed_24h,
       (SELECT count(*) FROM public.data_uploads d
        WHERE d.status = 'failed' AND (d.dismissed_at IS NULL OR d.dismissed_at < d.finished_at)) AS dead_letters,
       (SELECT count(*) FROM ingest.v_stale_runs) AS stale_runs,
       -- Since it arrived, was parsed, or may be tried again: no worker could have claimed it before. Below zero if all
       -- waiting uploads are postponed; one whose file is not stored yet does not wait for a worker.
       (SELECT EXTRACT(EPOCH FROM (SELECT time FROM clock) - min(greatest(d.created_at, d.staged_at, d.run_after)))
        FROM (SELECT * FROM public.data_uploads
              WHERE status IN ('pending', 'staging_complete') AND project_id IS NULL
              UNION ALL
              SELECT * FROM public.data_uploads
              WHERE status IN ('pending', 'staging_complete') AND project_id IS NOT NULL) d
        WHERE d.run_after < 'infinity'
          AND NOT EXISTS (SELECT FROM weighbridge.attempts a
                          WHERE a.queue = 'uploads' AND a.subject = d.id AND a.closed_at IS NULL)) AS backlog_age,
       (SELECT jsonb_object_agg(a.condition, a.open) FROM (
            SELECT condition, count(*) AS open FROM weighbridge.alerts WHERE closed_at IS NULL GROUP BY condition) a
       ) AS alerts_open,
       (SELECT jsonb_object_agg(j.status, j.jobs - CASE WHEN j.status = 'failed' THEN a.jobs ELSE 0 END)
        FROM jobs j CROSS JOIN set_aside a) AS project_jobs,
       (SELECT j.seconds FROM jobs j WHERE j.status = 'succeeded') AS project_job_seconds,
       o.waiting AS outbox_waiting,
       o.age AS outbox_age,
       (SELECT jsonb_object_agg(a.queue, a.live) FROM (
            SELECT queue, count(*) AS live FROM weighbridge.attempts WHERE closed_at IS NULL GROUP BY queue) a
       ) AS attempts_live,
       (SELECT count(*) FROM public.upload_queue q WHERE q.retry_count < q.max_retries) AS storage_queue,
       (SELECT coalesce(sum(u.total_bytes), 0)::bigint FROM public.storage_usage u) AS storage_usage,
       (SELECT jsonb_object_agg(q.status, q.rows) FROM (
            SELECT status, count(*) AS rows FROM public.offline_conversion_queue
            WHERE status IN ('QUEUED', 'RETRY') GROUP BY status
            UNION ALL
            SELECT status, count(*) FROM public.offline_conversion_queue WHERE status = 'PROCESSING' GROUP BY status
            UNION ALL
            SELECT status, count(*) FROM public.offline_conversion_queue WHERE status = 'FAILED' GROUP BY status) q
       ) AS conversions,
       -- The first of each group.
       (SELECT EXTRACT(EPOCH FROM (SELECT time FROM clock) - min(greatest(g.min_created_at, g.min_next_retry_at)))
        FROM weighbridge.delivery_groups(1) g) AS conversions_age,
       (SELECT jsonb_object_agg(h.state, h.groups) FROM (
            SELECT state, count(*) AS groups FROM public.provider_health_state GROUP BY state) h) AS circuits,
       -- By the server's own clock, as xact_start. A login sees the transactions of other logins only if it may read
       -- all statistics.
       (SELECT EXTRACT(EPOCH FROM clock_timestamp() - min(t.xact_start)) FROM pg_stat_activity t
        WHERE t.datname = current_database() AND t.backend_type = 'client backend' AND t.pid <> pg_backend_pid()
       ) AS oldest_transaction
FROM outbox o

-- name: open_alerts
-- The subject of an alert begins with the id of an upload or a site; an empty one is about the whole service.
SELECT a.condition, a.severity, a.message, a.opened_at, d.id AS upload_id, s.id AS site_id
FROM weighbridge.alerts a
CROSS JOIN LATERAL (SELECT CASE WHEN a.subject ~ '^[0-9a-f]{8}-[0-9a-f-]{27}(/|$)'
                                THEN left(a.subject, 36)::uuid END AS id) AS about
LEFT JOIN public.data_uploads d ON d.id = about.id AND d.workspace_id = weighbridge.workspace()
LEFT JOIN public.sites s ON s.id = about.id AND s.workspace_id = weighbridge.workspace()
WHERE a.closed_at IS NULL AND (about.id IS NULL AND %(of_service)s OR d.id IS NOT NULL OR s.id IS NOT NULL)
ORDER BY a.severity, a.opened_at DESC
LIMIT 200
