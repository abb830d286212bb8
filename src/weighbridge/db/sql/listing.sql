-- name: page_of_uploads
-- Along data_uploads_recent: the order is the index's, and what does not fit is passed over.
SELECT id FROM public.data_uploads
WHERE workspace_id = %(workspace)s
  AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s))
  AND (%(held)s::boolean IS NULL OR (preview AND status = 'staging_complete') = %(held)s)
  AND (%(pipeline)s::text IS NULL OR pipeline = %(pipeline)s)
  AND (%(project)s::bigint IS NULL OR project_id = %(project)s)
  AND (%(words)s::text IS NULL OR filename ILIKE %(words)s OR source_batch_id ILIKE %(words)s)
  AND (%(before)s::timestamptz IS NULL
       OR created_at <= %(before)s AND (created_at < %(before)s OR id > %(behind)s))
  AND (%(until)s::timestamptz IS NULL
       OR created_at >= %(until)s AND (created_at > %(until)s OR id <= %(last)s))
ORDER BY created_at DESC, id
LIMIT %(limit)s

-- name: standing
SELECT count(*) AS uploaded,
       count(*) FILTER (WHERE status = 'pending') AS queued,
       count(*) FILTER (WHERE status = ANY (%(live)s) AND status <> 'pending'
                              AND NOT (preview AND status = 'staging_complete')) AS running,
       count(*) FILTER (WHERE preview AND status = 'staging_complete') AS held,
       count(*) FILTER (WHERE status = 'completed') AS completed,
       count(*) FILTER (WHERE status = 'partial') AS partial,
       count(*) FILTER (WHERE status = 'failed') AS failed
FROM public.data_uploads
WHERE workspace_id = %(workspace)s

-- name: sent_again
SELECT upload_id, filename, times, last_at FROM public.upload_duplicates
WHERE upload_id = ANY (%s)
ORDER BY last_at, filename

-- name: refused_for
-- The refused rows of one reason after a place in the file, in its order.
SELECT row_index, line, stage, column_name, code, message, raw, more
FROM public.upload_rejections
WHERE upload_id = %(upload)s AND row_index > %(after)s AND code = %(code)s
  AND column_name IS NOT DISTINCT FROM %(column)s
ORDER BY row_index, stage
LIMIT %(limit)s
