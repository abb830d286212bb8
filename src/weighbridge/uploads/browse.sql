-- name: page_of_uploads
-- Along data_uploads_recent, in the order of the index; rows that do not match are skipped.
SELECT id FROM public.data_uploads
WHERE workspace_id = %(workspace)s
  AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s))
  AND (%(on_hold)s::boolean IS NULL OR (preview AND status = 'staging_complete') = %(on_hold)s)
  AND (%(deferred)s::boolean IS NULL OR status <> 'pending' OR (storage_status = 'pending_retry') = %(deferred)s)
  AND (%(set_aside)s::boolean IS NULL
       OR (preview AND coalesce(error_code IN ('discarded', 'preview_expired'), false)) = %(set_aside)s)
  AND (%(pipeline)s::text IS NULL OR pipeline = %(pipeline)s)
  AND (%(project)s::bigint IS NULL OR project_id = %(project)s)
  AND (%(words)s::text IS NULL OR filename ILIKE %(words)s OR source_batch_id ILIKE %(words)s)
  AND (%(before)s::timestamptz IS NULL
       OR created_at <= %(before)s AND (created_at < %(before)s OR id > %(behind)s))
  AND (%(until)s::timestamptz IS NULL
       OR created_at >= %(until)s AND (created_at > %(until)s OR id <= %(last)s))
ORDER BY created_at DESC, id
LIMIT %(limit)s

-- name: state_counts
-- Ended uploads are counted in an index; the partial indexes of the others are short. A file that waits for the store
-- is in progress.
WITH counted AS MATERIALIZED (
    SELECT status, false AS preview, count(*) AS uploads FROM public.data_uploads
    WHERE workspace_id = %(workspace)s AND status IN ('completed', 'partial', 'failed')
    GROUP BY status
    UNION ALL
    SELECT CASE WHEN storage_status = 'pending_retry' THEN 'processing' ELSE status END, preview, count(*)
    FROM public.data_uploads
    WHERE workspace_id = %(workspace)s AND status IN ('pending', 'staging_complete') AND project_id IS NULL
    GROUP BY 1, preview
    UNION ALL
    SELECT CASE WHEN storage_status = 'pending_retry' THEN 'processing' ELSE status END, preview, count(*)
    FROM public.data_uploads
    WHERE workspace_id = %(workspace)s AND project_id IS NOT NULL
      AND status IN ('pending', 'processing', 'staging_complete', 'promoting')
    GROUP BY 1, preview
    UNION ALL
    SELECT status, preview, count(*) FROM public.data_uploads
    WHERE workspace_id = %(workspace)s AND status IN ('processing', 'promoting') AND project_id IS NULL
    GROUP BY status, preview
),
set_aside AS MATERIALIZED (
    SELECT count(*) AS uploads FROM public.data_uploads
    WHERE workspace_id = %(workspace)s AND preview AND status = 'failed' AND error_code IN ('discarded', 'preview_expired')
)
SELECT coalesce(sum(uploads), 0)::bigint AS uploaded,
       coalesce(sum(uploads) FILTER (WHERE status = 'pending'), 0)::bigint AS queued,
       coalesce(sum(uploads) FILTER (WHERE status IN ('processing', 'promoting')
                                     OR status = 'staging_complete' AND NOT preview), 0)::bigint AS running,
       coalesce(sum(uploads) FILTER (WHERE status = 'staging_complete' AND preview), 0)::bigint AS on_hold,
       coalesce(sum(uploads) FILTER (WHERE status = 'completed'), 0)::bigint AS completed,
       coalesce(sum(uploads) FILTER (WHERE status = 'partial'), 0)::bigint AS partial,
       coalesce(sum(uploads) FILTER (WHERE status = 'failed'), 0)::bigint - (SELECT uploads FROM set_aside) AS failed,
       (SELECT uploads FROM set_aside) AS discarded
FROM counted

-- name: sent_again
SELECT upload_id, filename, times, last_at FROM public.upload_duplicates
WHERE upload_id = ANY (%s)
ORDER BY last_at, filename

-- name: rejected_for
-- Rejected rows with one reason after a position in the file, in file order.
SELECT row_index, line, stage, column_name, code, message, raw, more
FROM public.upload_rejections
WHERE upload_id = %(upload)s AND (row_index, stage) > (%(row_index)s, %(stage)s) AND code = %(code)s
  AND column_name IS NOT DISTINCT FROM %(column)s
ORDER BY row_index, stage
LIMIT %(limit)s
