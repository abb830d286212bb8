-- Calls of providers and their results. Every query is bounded and follows an index.

-- name: ledger_of_batch
SELECT batch_id, site_id, provider_key, phase, claimed_count, completed_count, failed_count, retry_count, duration_ms,
       provider_request_id, error_code, error_category, created_at
FROM public.provider_upload_attempts WHERE batch_id = %s ORDER BY phase DESC -- STARTED, then FINISHED

-- name: ledger_of_site
SELECT l.* FROM weighbridge.providers k
CROSS JOIN LATERAL (
    SELECT e.batch_id, e.site_id, e.provider_key, e.phase, e.claimed_count, e.completed_count, e.failed_count, e.retry_count,
           e.duration_ms, e.provider_request_id, e.error_code, e.error_category, e.created_at
    FROM public.provider_upload_attempts e
    WHERE e.site_id = %(site)s AND e.provider_key = k.provider_key
    ORDER BY e.created_at DESC, e.id DESC LIMIT %(limit)s) l
WHERE %(provider)s::text IS NULL OR k.provider_key = %(provider)s
ORDER BY l.created_at DESC, l.phase LIMIT %(limit)s

-- name: recent_calls
-- Newest first; FINISHED is missing while a call is in progress.
SELECT c.batch_id, c.site_id, c.site_name, c.provider_key, c.started_at, f.created_at AS finished_at, c.claimed_count,
       f.completed_count, f.failed_count, f.retry_count, f.duration_ms, f.provider_request_id, f.error_code,
       f.error_category
FROM (
    SELECT s.id AS site_id, s.name AS site_name, e.*
    FROM public.sites s CROSS JOIN weighbridge.providers k
    CROSS JOIN LATERAL (
        SELECT a.provider_key, a.batch_id, a.claimed_count, a.created_at AS started_at
        FROM public.provider_upload_attempts a
        WHERE a.site_id = s.id AND a.provider_key = k.provider_key AND a.phase = 'STARTED'
        ORDER BY a.created_at DESC LIMIT %(limit)s) e
    WHERE s.workspace_id = %(workspace)s
      AND (%(site)s::uuid IS NULL OR s.id = %(site)s) AND (%(provider)s::text IS NULL OR k.provider_key = %(provider)s)
    ORDER BY e.started_at DESC, e.batch_id LIMIT %(limit)s
) c
LEFT JOIN public.provider_upload_attempts f ON f.batch_id = c.batch_id AND f.phase = 'FINISHED'
ORDER BY c.started_at DESC, c.batch_id

-- name: recent_counts
-- Results of the last day's calls, for some groups.
SELECT w.site_id, w.provider_key, l.calls, l.completed
FROM unnest(%(sites)s::uuid[], %(providers)s::text[]) AS w (site_id, provider_key)
CROSS JOIN LATERAL (
    SELECT count(*) AS calls, coalesce(sum(a.completed_count), 0)::bigint AS completed
    FROM public.provider_upload_attempts a
    WHERE a.site_id = w.site_id AND a.provider_key = w.provider_key AND a.phase = 'FINISHED'
      AND a.created_at > (SELECT weighbridge.now() - INTERVAL '24 hours')) l

-- name: errors
-- Conversions that failed or wait after an error, by category and code; limited to the latest rows of each group and
-- of each of the two kinds. ORDER BY also keeps the planner on the index.
SELECT e.category, e.code, count(*) FILTER (WHERE e.failed) AS failed, count(*) FILTER (WHERE NOT e.failed) AS waiting,
       min(e.last_error) AS sentence
FROM (
    (SELECT q.* FROM public.sites s CROSS JOIN weighbridge.providers k
     CROSS JOIN LATERAL (
         SELECT f.provider_error_category AS category, f.provider_error_code AS code, f.last_error, true AS failed
         FROM public.offline_conversion_queue f
         WHERE f.site_id = s.id AND f.provider_key = k.provider_key AND f.status = 'FAILED'
         ORDER BY f.updated_at DESC LIMIT %(most)s) q
     WHERE s.workspace_id = %(workspace)s
       AND (%(site)s::uuid IS NULL OR s.id = %(site)s) AND (%(provider)s::text IS NULL OR k.provider_key = %(provider)s)
     LIMIT %(most)s)
    UNION ALL
    (SELECT q.* FROM public.sites s CROSS JOIN weighbridge.providers k
     CROSS JOIN LATERAL (
         SELECT f.provider_error_category AS category, f.provider_error_code AS code, f.last_error, false AS failed
         FROM public.offline_conversion_queue f
         WHERE f.site_id = s.id AND f.provider_key = k.provider_key AND f.status IN ('QUEUED', 'RETRY')
         ORDER BY f.due_at DESC LIMIT %(most)s) q
     WHERE s.workspace_id = %(workspace)s AND q.last_error IS NOT NULL
       AND (%(site)s::uuid IS NULL OR s.id = %(site)s) AND (%(provider)s::text IS NULL OR k.provider_key = %(provider)s)
     LIMIT %(most)s)
) e
GROUP BY e.category, e.code
ORDER BY failed DESC, waiting DESC, e.category, e.code LIMIT 100
