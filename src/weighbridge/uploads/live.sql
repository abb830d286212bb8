-- name: uploads_under_way
-- Those that still move, newest first: a page that opens now shows them. What is held does not.
SELECT id FROM public.data_uploads
WHERE workspace_id = %(workspace)s AND status IN ('pending', 'processing', 'staging_complete', 'promoting')
  AND NOT (preview AND status = 'staging_complete' AND NOT weighbridge.in_hand(id))
ORDER BY created_at DESC, id
LIMIT %(limit)s

-- name: progress_of
SELECT id, workspace_id, status, pipeline, platform, filename, rows_read, total_rows, promoted_rows, failed_rows,
       error_code, error_text, preview,
       preview AND status = 'staging_complete' AND NOT weighbridge.in_hand(id) AS held
FROM public.data_uploads
WHERE id = ANY (%(uploads)s)
