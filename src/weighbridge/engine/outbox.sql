-- name: claim_event_deliveries
SELECT lease_token, delivery_id, event_id, consumer, failures, type, payload, workspace_id, heard
FROM weighbridge.claim_event_deliveries(%s, %s, %s, %s)

-- name: note_accepted
UPDATE weighbridge.event_deliveries SET heard = heard || %s::text WHERE id = %s

-- name: finish_event_delivery
SELECT weighbridge.finish_event_delivery(%s)

-- name: fail_event_delivery
SELECT weighbridge.fail_event_delivery(%s, %s, %s)

-- name: record_audit
INSERT INTO weighbridge.audit_log (workspace_id, actor, action, subject, detail)
VALUES (%s, 'weighbridge', %s, %s, %s)
ON CONFLICT DO NOTHING

-- name: notify_payload
SELECT pg_notify('weighbridge_live', %s)
