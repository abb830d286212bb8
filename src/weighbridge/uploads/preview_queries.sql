-- name: preview_status
SELECT d.staged_at, d.preview_counts AS counts, d.previewed_at AS counted_at,
       EXISTS (SELECT FROM public.data_uploads o
               WHERE o.workspace_id = d.workspace_id AND o.status IN ('completed', 'partial', 'failed')
                 AND o.finished_at >= d.previewed_at)
       OR EXISTS (SELECT FROM public.data_uploads o
                  WHERE o.workspace_id = d.workspace_id AND o.status = 'promoting') AS outdated
FROM public.data_uploads d
WHERE d.id = %s AND d.preview AND d.status = 'staging_complete' AND NOT weighbridge.has_live_attempt(d.id)

-- name: note_preview
SELECT weighbridge.note_preview(%s, %s, %s)

-- name: promote_preview
SELECT weighbridge.promote_preview(%s, %s)

-- name: discard_preview
SELECT weighbridge.discard_preview(%s, %s, %s, %s, %s)

-- name: restage_preview
SELECT weighbridge.restage_preview(%s)

-- name: expired_previews
SELECT d.id FROM public.data_uploads d
WHERE d.preview AND d.status = 'staging_complete' AND d.staged_at <= weighbridge.now() - %s
ORDER BY d.staged_at
