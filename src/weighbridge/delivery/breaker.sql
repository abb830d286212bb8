-- name: begin_probe
SELECT weighbridge.begin_probe(%s, %s, %s)

-- name: probe_rows
-- The result that weighbridge.begin_probe would have, without starting a probe.
SELECT h.probe_limit FROM public.provider_health_state h
WHERE h.site_id = %s AND h.provider_key = %s AND h.state <> 'CLOSED' AND h.next_probe_at <= weighbridge.now()
  AND (h.probe_until IS NULL OR h.probe_until < weighbridge.now())

-- name: park_deliveries
SELECT weighbridge.park_deliveries(%s, %s, %s)

-- name: reset_provider
SELECT weighbridge.reset_provider(%s, %s, %s)
