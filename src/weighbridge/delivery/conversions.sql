-- Pages return keys and cursors; get_conversions returns the other fields. Every query follows an index, so that a page
-- costs the same however many rows there are.

-- name: recent_conversions
-- Any status, newest sales first.
SELECT q.sale_id, q.provider_key, s.created_at::text AS moment, '' AS tiebreaker
FROM public.sales s JOIN public.offline_conversion_queue q ON q.sale_id = s.id
WHERE s.workspace_id = %(workspace)s
  AND (%(site)s::uuid IS NULL OR s.site_id = %(site)s) AND (%(provider)s::text IS NULL OR q.provider_key = %(provider)s)
  AND (%(category)s::text IS NULL OR q.provider_error_category = %(category)s)
  AND (%(moment)s::timestamptz IS NULL OR s.created_at <= %(moment)s::timestamptz
       AND (s.created_at < %(moment)s::timestamptz OR (s.id, q.provider_key) > (%(sale)s::uuid, %(key)s::text)))
ORDER BY s.created_at DESC, s.id, q.provider_key LIMIT %(limit)s

-- name: failed_conversions
-- Latest failure first.
SELECT q.sale_id, q.provider_key, q.updated_at::text AS moment, '' AS tiebreaker
FROM public.sites s CROSS JOIN weighbridge.providers k
CROSS JOIN LATERAL (
    SELECT e.sale_id, e.provider_key, e.updated_at FROM public.offline_conversion_queue e
    WHERE e.site_id = s.id AND e.provider_key = k.provider_key AND e.status = 'FAILED'
      AND (%(category)s::text IS NULL OR e.provider_error_category = %(category)s)
      AND (%(moment)s::timestamptz IS NULL OR e.updated_at <= %(moment)s::timestamptz
           AND (e.updated_at < %(moment)s::timestamptz OR (e.sale_id, e.provider_key) > (%(sale)s::uuid, %(key)s::text)))
    ORDER BY e.updated_at DESC, e.sale_id LIMIT %(limit)s) q
WHERE s.workspace_id = %(workspace)s
  AND (%(site)s::uuid IS NULL OR s.id = %(site)s) AND (%(provider)s::text IS NULL OR k.provider_key = %(provider)s)
ORDER BY q.updated_at DESC, q.sale_id, q.provider_key LIMIT %(limit)s

-- name: completed_conversions
-- Latest delivery first.
SELECT q.sale_id, q.provider_key, q.uploaded_at::text AS moment, '' AS tiebreaker
FROM public.sites s CROSS JOIN weighbridge.providers k
CROSS JOIN LATERAL (
    SELECT e.sale_id, e.provider_key, e.uploaded_at FROM public.offline_conversion_queue e
    WHERE e.site_id = s.id AND e.provider_key = k.provider_key AND e.uploaded_at IS NOT NULL
      AND (%(category)s::text IS NULL OR e.provider_error_category = %(category)s)
      AND (%(moment)s::timestamptz IS NULL OR e.uploaded_at <= %(moment)s::timestamptz
           AND (e.uploaded_at < %(moment)s::timestamptz OR (e.sale_id, e.provider_key) > (%(sale)s::uuid, %(key)s::text)))
    ORDER BY e.uploaded_at DESC, e.sale_id LIMIT %(limit)s) q
WHERE s.workspace_id = %(workspace)s
  AND (%(site)s::uuid IS NULL OR s.id = %(site)s) AND (%(provider)s::text IS NULL OR k.provider_key = %(provider)s)
ORDER BY q.uploaded_at DESC, q.sale_id, q.provider_key LIMIT %(limit)s

-- name: waiting_conversions
-- QUEUED or RETRY, in the delivery order of a group.
SELECT q.sale_id, q.provider_key, q.due_at::text AS moment, q.created_at::text AS tiebreaker
FROM public.sites s CROSS JOIN weighbridge.providers k
CROSS JOIN LATERAL (
    SELECT e.sale_id, e.provider_key, e.due_at, e.created_at FROM public.offline_conversion_queue e
    WHERE e.site_id = s.id AND e.provider_key = k.provider_key AND e.status IN ('QUEUED', 'RETRY')
      AND e.status = %(status)s AND (%(category)s::text IS NULL OR e.provider_error_category = %(category)s)
      AND (%(moment)s::timestamptz IS NULL OR (e.due_at, e.created_at, e.sale_id, e.provider_key)
           > (%(moment)s::timestamptz, %(tiebreaker)s::timestamptz, %(sale)s::uuid, %(key)s::text))
    ORDER BY e.due_at, e.created_at, e.sale_id LIMIT %(limit)s) q
WHERE s.workspace_id = %(workspace)s
  AND (%(site)s::uuid IS NULL OR s.id = %(site)s) AND (%(provider)s::text IS NULL OR k.provider_key = %(provider)s)
ORDER BY q.due_at, q.created_at, q.sale_id, q.provider_key LIMIT %(limit)s

-- name: processing_conversions
-- In a call, or claimed for the next one.
SELECT q.sale_id, q.provider_key, q.claimed_at::text AS moment, '' AS tiebreaker
FROM public.offline_conversion_queue q
WHERE q.status = 'PROCESSING' AND q.workspace_id = %(workspace)s
  AND (%(site)s::uuid IS NULL OR q.site_id = %(site)s) AND (%(provider)s::text IS NULL OR q.provider_key = %(provider)s)
  AND (%(category)s::text IS NULL OR q.provider_error_category = %(category)s)
  AND (%(moment)s::timestamptz IS NULL OR q.claimed_at <= %(moment)s::timestamptz
       AND (q.claimed_at < %(moment)s::timestamptz OR (q.sale_id, q.provider_key) > (%(sale)s::uuid, %(key)s::text)))
ORDER BY q.claimed_at DESC, q.sale_id, q.provider_key LIMIT %(limit)s

-- name: ordered_conversions
-- Conversions with this order id, any status or one, newest sales first. A site has an order once, and the index key
-- begins with the workspace and the site.
SELECT q.sale_id, q.provider_key, s.created_at::text AS moment, '' AS tiebreaker
FROM public.sites t
JOIN public.sales s ON s.workspace_id = t.workspace_id AND s.client_id = t.id AND s.order_id = %(order)s
JOIN public.offline_conversion_queue q ON q.sale_id = s.id
WHERE t.workspace_id = %(workspace)s
  AND (%(site)s::uuid IS NULL OR t.id = %(site)s) AND (%(provider)s::text IS NULL OR q.provider_key = %(provider)s)
  AND (%(status)s::text IS NULL OR q.status = %(status)s)
  AND (%(category)s::text IS NULL OR q.provider_error_category = %(category)s)
  AND (%(moment)s::timestamptz IS NULL OR s.created_at <= %(moment)s::timestamptz
       AND (s.created_at < %(moment)s::timestamptz OR (s.id, q.provider_key) > (%(sale)s::uuid, %(key)s::text)))
ORDER BY s.created_at DESC, s.id, q.provider_key LIMIT %(limit)s

-- name: sales_of_order
SELECT s.id AS sale_id, t.id AS site_id, t.name AS site_name
FROM public.sites t
JOIN public.sales s ON s.workspace_id = t.workspace_id AND s.client_id = t.id AND s.order_id = %(order)s
WHERE (%(workspace)s::uuid IS NULL OR t.workspace_id = %(workspace)s) AND (%(site)s::uuid IS NULL OR t.id = %(site)s)
ORDER BY t.name, t.id LIMIT %(limit)s

-- name: get_conversions
-- By sale and provider; by sale alone if no provider is given.
SELECT q.sale_id, q.site_id, q.provider_key, q.status, q.order_id, q.click_type, q.occurred_at, q.clicked_at, q.value,
       q.currency, q.expires_at, q.next_retry_at, q.claimed_at, q.batch_id, q.attempt_count, q.retry_count, q.last_error,
       q.uploaded_at, q.provider_request_id, q.provider_error_code, q.provider_error_category, q.duplicate, q.confirmation,
       q.confirmed_at, q.created_at, q.updated_at, s.upload_id, s.line
FROM unnest(%s::uuid[], %s::text[]) WITH ORDINALITY AS w (sale_id, provider_key, ordinal)
JOIN public.offline_conversion_queue q ON q.sale_id = w.sale_id AND (w.provider_key IS NULL OR q.provider_key = w.provider_key)
JOIN public.sales s ON s.workspace_id = q.workspace_id AND s.id = q.sale_id
ORDER BY w.ordinal, q.provider_key

-- name: group_statuses
-- Groups with any activity. Queued and failed rows are counted up to a limit, from indexes. ORDER BY
-- keeps the planner on these indexes: with one very large site it would scan the whole table for an empty one.
WITH calls AS MATERIALIZED ( -- from the index of PROCESSING rows, of which there are few
    SELECT site_id, provider_key, count(*) AS rows FROM public.offline_conversion_queue
    WHERE status = 'PROCESSING' AND (%(workspace)s::uuid IS NULL OR workspace_id = %(workspace)s)
    GROUP BY site_id, provider_key
), chosen AS MATERIALIZED (
    SELECT s.id AS site_id, s.name AS site_name, k.provider_key, k.provider_key = ANY (s.providers) AS in_use,
           CASE WHEN k.paused_until > weighbridge.now() THEN k.paused_until END AS paused_until
    FROM public.sites s CROSS JOIN weighbridge.providers k
    WHERE (%(workspace)s::uuid IS NULL OR s.workspace_id = %(workspace)s)
      AND (%(site)s::uuid IS NULL OR s.id = %(site)s) AND (%(provider)s::text IS NULL OR k.provider_key = %(provider)s)
      AND (%(after_site)s::uuid IS NULL
           OR (s.id, k.provider_key) > (%(after_site)s::uuid, %(after_provider)s::text))
      AND (k.provider_key = ANY (s.providers)
           OR (SELECT true FROM public.provider_credentials c
               WHERE (c.site_id, c.provider_key) = (s.id, k.provider_key)) IS NOT NULL
           OR EXISTS (SELECT FROM calls x WHERE (x.site_id, x.provider_key) = (s.id, k.provider_key))
           OR (SELECT true FROM public.provider_upload_metrics m
               WHERE (m.site_id, m.provider_key) = (s.id, k.provider_key)) IS NOT NULL
           OR (SELECT true FROM public.offline_conversion_queue q
               WHERE q.site_id = s.id AND q.provider_key = k.provider_key AND q.status IN ('QUEUED', 'RETRY')
               ORDER BY q.due_at LIMIT 1) IS NOT NULL)
    ORDER BY s.id, k.provider_key LIMIT %(limit)s
)
SELECT g.site_id, g.site_name, g.provider_key, g.in_use, g.paused_until, coalesce(h.state, 'CLOSED') AS state,
       coalesce(h.failure_count, 0) AS failure_count, h.next_probe_at, w.waiting,
       coalesce(a.rows, 0) AS in_call, f.failed,
       c.version AS credentials_version, c.key_id, c.refused_at, c.refused_code,
       coalesce(m.attempts_total, 0) AS attempts_total, coalesce(m.completed_total, 0) AS completed_total,
       coalesce(m.failed_total, 0) AS failed_total, coalesce(m.retry_total, 0) AS retry_total
FROM chosen g
LEFT JOIN calls a USING (site_id, provider_key)
LEFT JOIN LATERAL (SELECT * FROM public.provider_health_state h
                   WHERE h.site_id = g.site_id AND h.provider_key = g.provider_key OFFSET 0) h ON true
LEFT JOIN LATERAL (SELECT * FROM public.provider_credentials c
                   WHERE c.site_id = g.site_id AND c.provider_key = g.provider_key OFFSET 0) c ON true
LEFT JOIN LATERAL (SELECT * FROM public.provider_upload_metrics m
                   WHERE m.site_id = g.site_id AND m.provider_key = g.provider_key OFFSET 0) m ON true
CROSS JOIN LATERAL (SELECT count(*) AS waiting FROM (
    SELECT FROM public.offline_conversion_queue q WHERE q.site_id = g.site_id AND q.provider_key = g.provider_key
      AND q.status IN ('QUEUED', 'RETRY') ORDER BY q.due_at LIMIT %(most)s) x) w
CROSS JOIN LATERAL (SELECT count(*) AS failed FROM (
    SELECT FROM public.offline_conversion_queue q WHERE q.site_id = g.site_id AND q.provider_key = g.provider_key
      AND q.status = 'FAILED' ORDER BY q.updated_at LIMIT %(most)s) x) f
ORDER BY g.site_id, g.provider_key

-- name: blocked_groups
SELECT s.id AS site_id, s.name AS site_name, k.provider_key, c.refused_at IS NOT NULL AS refused, c.refused_code AS code,
       CASE WHEN h.state <> 'CLOSED' THEN h.next_probe_at END AS next_probe_at
FROM public.sites s CROSS JOIN weighbridge.providers k
LEFT JOIN public.provider_credentials c ON (c.site_id, c.provider_key) = (s.id, k.provider_key)
LEFT JOIN public.provider_health_state h ON (h.site_id, h.provider_key) = (s.id, k.provider_key)
WHERE (c.refused_at IS NOT NULL OR h.state <> 'CLOSED')
  AND (k.provider_key = ANY (s.providers)
       OR EXISTS (SELECT FROM public.offline_conversion_queue q
                  WHERE q.site_id = s.id AND q.provider_key = k.provider_key AND q.status IN ('QUEUED', 'RETRY')))
ORDER BY refused DESC, s.name, s.id, k.provider_key

-- name: statuses
SELECT sale_id, provider_key, workspace_id, status, provider_error_code AS code FROM public.offline_conversion_queue
WHERE sale_id = ANY (%(sales)s) AND (%(provider)s::text IS NULL OR provider_key = %(provider)s)
ORDER BY sale_id, provider_key
