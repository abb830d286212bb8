-- name: workspace_figures
SELECT backlog_count, failed_24h, stale_runs, avg_processing_seconds, last_failed_batch, last_failed_at
FROM weighbridge.workspace_figures()

-- name: watch_queues
SELECT dead_letters, backlog FROM weighbridge.watch_queues(%s, %s)

-- name: intervals
-- Along data_uploads_ended. An interval in which nothing ended is included; the last interval is not over yet.
WITH clock AS MATERIALIZED (
    SELECT weighbridge.workspace() AS workspace,
           date_bin(%(each)s, weighbridge.now(), '2000-01-01Z') - %(each)s * (%(number)s::int - 1) AS begins
),
ended AS MATERIALIZED (
    SELECT width_bucket(EXTRACT(EPOCH FROM d.finished_at - c.begins)::float8, 0,
                        EXTRACT(EPOCH FROM %(each)s * %(number)s::int)::float8, %(number)s::int) - 1 AS interval_no,
           count(*) FILTER (WHERE d.status <> 'failed') AS completed,
           count(*) FILTER (WHERE d.status = 'failed'
                                  AND d.error_code NOT IN ('discarded', 'preview_expired')) AS failed,
           coalesce(sum(d.promoted_rows), 0)::bigint AS rows,
           avg(EXTRACT(EPOCH FROM d.finished_at - d.started_at)) FILTER (WHERE d.status <> 'failed') AS seconds
    FROM clock c JOIN public.data_uploads d
      ON d.workspace_id = c.workspace AND d.status IN ('completed', 'partial', 'failed') AND d.finished_at >= c.begins
    GROUP BY 1
)
SELECT c.begins + %(each)s * n, coalesce(e.completed, 0), coalesce(e.failed, 0), coalesce(e.rows, 0),
       e.seconds::float8
FROM clock c CROSS JOIN generate_series(0, %(number)s::int - 1) AS n LEFT JOIN ended e ON e.interval_no = n
ORDER BY n

-- name: dead_letters
SELECT id, filename, error_text, finished_at FROM public.data_uploads
WHERE workspace_id = weighbridge.workspace() AND status = 'failed'
  AND (dismissed_at IS NULL OR dismissed_at < finished_at)
  AND error_code NOT IN ('discarded', 'preview_expired')
ORDER BY finished_at DESC
LIMIT %s

-- name: count_dead_letters
-- Failed uploads that are neither retried nor dismissed, and the workspace of the newest.
SELECT count(*), (array_agg(workspace_id ORDER BY finished_at DESC))[1]
FROM public.data_uploads
WHERE status = 'failed' AND (dismissed_at IS NULL OR dismissed_at < finished_at)

-- name: stale_runs
SELECT count(*) FROM ingest.v_stale_runs
