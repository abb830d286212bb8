-- name: uploads_under_way
-- Uploads in progress, newest first, for a page that opens now. Uploads on hold are not in progress.
SELECT id FROM public.data_uploads
WHERE workspace_id = %(workspace)s AND status IN ('pending', 'processing', 'staging_complete', 'promoting')
  AND NOT (preview AND status = 'staging_complete' AND NOT weighbridge.has_live_attempt(id))
ORDER BY created_at DESC, id
LIMIT %(limit)s

-- name: progress_of
SELECT id, workspace_id, status, pipeline, platform, filename, rows_read, total_rows, promoted_rows, failed_rows,
       error_code, error_text, preview,
       preview AND status = 'staging_complete' AND NOT weighbridge.has_live_attempt(id) AS on_hold
FROM public.data_uploads
WHERE id = ANY (%(uploads)s)
