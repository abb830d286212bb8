-- name: groups
-- OFFSET 0: a lookup for each group. Other joins would read those of all sites.
SELECT g.site_id, g.provider_key, g.queued_count, g.min_next_retry_at, g.min_created_at,
       coalesce(h.state, 'CLOSED') AS state,
       coalesce(h.next_probe_at <= weighbridge.now(), false) AS probe_due,
       coalesce(k.paused_until > weighbridge.now(), false) AS paused,
       c.key_id, c.refused_at IS NOT NULL AS refused,
       g.provider_key <> ALL (s.providers) AS unused
FROM weighbridge.delivery_groups(%s) g
CROSS JOIN LATERAL (SELECT * FROM public.sites s WHERE s.id = g.site_id OFFSET 0) s
LEFT JOIN LATERAL (SELECT * FROM public.provider_health_state h
                   WHERE h.site_id = g.site_id AND h.provider_key = g.provider_key OFFSET 0) h ON true
LEFT JOIN LATERAL (SELECT * FROM public.provider_credentials c
                   WHERE c.site_id = g.site_id AND c.provider_key = g.provider_key OFFSET 0) c ON true
LEFT JOIN weighbridge.providers k ON k.provider_key = g.provider_key

-- name: claim_conversions
SELECT * FROM weighbridge.claim_conversions(%s, %s, %s, %s, %s, %s)

-- name: peek
SELECT w.request_no, q.expires_at <= weighbridge.now() IS NOT TRUE AS live, q.sale_id, q.order_id, q.click_type, q.click_id, q.occurred_at,
       q.value, q.currency, nullif(q.user_data, '{}'), q.clicked_at, q.attempt_count, q.provider_error_code, q.code_times,
       weighbridge.now()
FROM unnest(%s::uuid[], %s::text[], %s::int[]) WITH ORDINALITY AS w (site_id, provider_key, wanted, request_no)
CROSS JOIN LATERAL (
    SELECT * FROM public.offline_conversion_queue e
    WHERE e.site_id = w.site_id AND e.provider_key = w.provider_key AND e.status IN ('QUEUED', 'RETRY')
      AND e.due_at <= weighbridge.now()
    ORDER BY e.due_at, e.created_at, e.sale_id LIMIT w.wanted) q
ORDER BY live, w.request_no, q.due_at, q.created_at, q.sale_id

-- name: settle_conversions
SELECT * FROM weighbridge.settle_conversions(%s, %s, %s, %s, %s, %s, %s, %s)

-- name: enqueue_conversions
SELECT weighbridge.enqueue_conversions(%s, %s, %s, %s, %s)

-- name: recover_stuck_offline_conversion_jobs
SELECT public.recover_stuck_offline_conversion_jobs(%s)

-- name: count_failed
-- Number of rows that weighbridge.requeue_deliveries would requeue, by workspace.
SELECT q.workspace_id, count(*) FROM public.offline_conversion_queue q
WHERE q.status = 'FAILED' AND (%(workspace)s::uuid IS NULL OR q.workspace_id = %(workspace)s)
  AND (%(sales)s::uuid[] IS NULL OR q.sale_id = ANY (%(sales)s))
  AND (%(site)s::uuid IS NULL OR q.site_id = %(site)s) AND (%(provider)s::text IS NULL OR q.provider_key = %(provider)s)
  AND (%(category)s::text IS NULL OR q.provider_error_category = %(category)s)
  AND (%(code)s::text IS NULL OR q.provider_error_code = %(code)s)
  AND q.provider_error_code IS DISTINCT FROM 'SALE_CANCELED'
GROUP BY q.workspace_id ORDER BY q.workspace_id

-- name: requeue_deliveries
SELECT weighbridge.requeue_deliveries(%(workspace)s, %(sales)s, %(site)s, %(provider)s, %(category)s, %(code)s, %(actor)s)

-- name: watch_deliveries
SELECT weighbridge.watch_deliveries(%s, %s)

-- name: claim_confirmations
SELECT site_id, provider_key, request_id, rows, tries FROM weighbridge.claim_confirmations(%s)

-- name: settle_confirmation
SELECT weighbridge.settle_confirmation(%s, %s, %s, %s, %s)

-- name: known_providers
SELECT provider_key, clicks, click_window, from_event FROM weighbridge.providers

-- name: register_provider
INSERT INTO weighbridge.providers (provider_key, clicks, click_window, from_event) VALUES (%s, %s, %s, %s)
ON CONFLICT (provider_key) DO UPDATE
SET clicks = excluded.clicks, click_window = excluded.click_window, from_event = excluded.from_event,
    changed_at = weighbridge.now()

-- name: next_due
-- The first row of each group, from the index of the claim.
SELECT min(q.due_at) FROM public.sites s CROSS JOIN weighbridge.providers k
CROSS JOIN LATERAL (
    SELECT e.due_at FROM public.offline_conversion_queue e
    WHERE e.site_id = s.id AND e.provider_key = k.provider_key AND e.status IN ('QUEUED', 'RETRY')
      AND e.due_at > weighbridge.now()
    ORDER BY e.due_at LIMIT 1) q
