-- name: uploads_under_way
-- Those that still move, newest first: a page that opens now shows them.
SELECT id FROM public.data_uploads
WHERE workspace_id = %(workspace)s AND status IN ('pending', 'processing', 'staging_complete', 'promoting')
ORDER BY created_at DESC, id
LIMIT %(limit)s

-- name: progress_of
SELECT id, workspace_id, status, pipeline, platform, filename, rows_read, total_rows, promoted_rows, failed_rows,
       error_code, error_text
FROM public.data_uploads
WHERE id = ANY (%(uploads)s)
