-- name: sites_called
SELECT id, workspace_id, name, providers, created_at FROM public.sites
WHERE name = %(name)s AND (%(workspace)s::uuid IS NULL OR workspace_id = %(workspace)s)
ORDER BY workspace_id LIMIT 2

-- name: site_names
SELECT DISTINCT name FROM public.sites
WHERE %(workspace)s::uuid IS NULL OR workspace_id = %(workspace)s
ORDER BY name LIMIT 1000

-- name: probe_rows
-- The result that weighbridge.begin_probe would have, without starting a probe.
SELECT h.probe_limit FROM public.provider_health_state h
WHERE h.site_id = %s AND h.provider_key = %s AND h.state <> 'CLOSED' AND h.next_probe_at <= weighbridge.now()
  AND (h.probe_until IS NULL OR h.probe_until < weighbridge.now())

-- name: next_due
-- The first row of each group, from the index of the claim.
SELECT min(q.due_at) FROM public.sites s CROSS JOIN weighbridge.providers k
CROSS JOIN LATERAL (
    SELECT e.due_at FROM public.offline_conversion_queue e
    WHERE e.site_id = s.id AND e.provider_key = k.provider_key AND e.status IN ('QUEUED', 'RETRY')
      AND e.due_at > weighbridge.now()
    ORDER BY e.due_at LIMIT 1) q

-- name: troubled
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

-- name: sealed_otherwise
SELECT site_id, provider_key, version, key_id, nonce, ciphertext FROM public.provider_credentials
WHERE key_id <> %(key)s
  AND (%(site)s::uuid IS NULL OR (site_id, provider_key) > (%(site)s::uuid, %(provider)s::text))
ORDER BY site_id, provider_key LIMIT %(limit)s
FOR UPDATE -- who enters new ones meanwhile waits

-- name: reseal_credentials
SELECT weighbridge.reseal_credentials(%s, %s, %s, %s, %s, %s)

-- name: keys_in_use
SELECT key_id, count(*) FROM public.provider_credentials GROUP BY key_id ORDER BY key_id

-- name: states
SELECT sale_id, provider_key, workspace_id, status, provider_error_code AS code FROM public.offline_conversion_queue
WHERE sale_id = ANY (%(sales)s) AND (%(provider)s::text IS NULL OR provider_key = %(provider)s)
ORDER BY sale_id, provider_key

-- name: failed_of
-- Number of rows that weighbridge.requeue_deliveries would requeue, by workspace.
SELECT q.workspace_id, count(*) FROM public.offline_conversion_queue q
WHERE q.status = 'FAILED' AND (%(workspace)s::uuid IS NULL OR q.workspace_id = %(workspace)s)
  AND (%(site)s::uuid IS NULL OR q.site_id = %(site)s) AND (%(provider)s::text IS NULL OR q.provider_key = %(provider)s)
  AND (%(category)s::text IS NULL OR q.provider_error_category = %(category)s)
  AND (%(code)s::text IS NULL OR q.provider_error_code = %(code)s)
  AND q.provider_error_code IS DISTINCT FROM 'SALE_CANCELED'
GROUP BY q.workspace_id ORDER BY q.workspace_id
