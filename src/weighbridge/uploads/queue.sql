-- name: site_exists
SELECT EXISTS (SELECT FROM public.sites WHERE workspace_id = %s AND id = %s)

-- name: receive_upload
SELECT r.upload_id, r.duplicate, r.reason
FROM weighbridge.receive_upload(
    %(workspace_id)s, %(client_id)s, %(platform)s, %(project_id)s, %(source)s, %(pipeline)s, %(filename)s, %(file_url)s, %(file_kind)s,
    %(content_sha256)s, %(byte_size)s, %(created_by)s, %(force_partial)s, %(forced)s, %(source_batch_id)s,
    %(traceparent)s, %(preview)s, %(reading)s, %(lane)s) AS r

-- name: claim_upload
SELECT upload_id, lease_token, abandoned
FROM weighbridge.claim_upload(%(worker)s, %(from)s, %(pipelines)s, %(lease)s, %(limit)s, %(max_crashes)s, %(skip)s)

-- name: get_uploads
SELECT id, workspace_id, client_id, platform, pipeline, source, filename, file_url, content_sha256, byte_size, status,
       row_count, error_code, error_text, created_by, created_at, started_at, finished_at, force_partial, forced,
       failures, crashes, rows_read, file_kind,
       staged, promoted, watermark_entity, watermark_seq, bins, total_rows, promoted_rows, failed_rows,
       affected_dates, columns, warnings, source_batch_id, traceparent, dismissed_at, project_id, attempts,
       storage_status, preview, reading, column_report, released_batch_id, read_as, position,
       preview AND status = 'staging_complete' AND NOT weighbridge.has_live_attempt(id) AS on_hold
FROM public.data_uploads
WHERE id = ANY (%s)
ORDER BY created_at DESC, id

-- name: started_uploads
SELECT id FROM public.data_uploads WHERE id = ANY (%s) AND status <> 'pending'

-- name: count_as_newest
SELECT weighbridge.count_as_newest(%s)

-- name: waits_for
SELECT d.id, weighbridge.waits_for(d) FROM public.data_uploads d
WHERE d.id = ANY (%s) AND d.status = 'staging_complete' AND NOT weighbridge.has_live_attempt(d.id)

-- name: holders
SELECT subject, worker, lease_until
FROM weighbridge.attempts
WHERE queue = 'uploads' AND closed_at IS NULL AND subject = ANY (%s)

-- name: recent_uploads
-- A page of uploads, newest first; two may have arrived at the same moment.
SELECT id FROM public.data_uploads
WHERE workspace_id = %(workspace)s
  AND (%(status)s::text IS NULL OR status = %(status)s)
  AND (%(before)s::timestamptz IS NULL
       OR created_at <= %(before)s AND (created_at < %(before)s OR id > %(behind)s))
ORDER BY created_at DESC, id
LIMIT %(limit)s

-- name: release_upload
SELECT weighbridge.release_upload(%s, %s, %s, %s)

-- name: fail_upload
SELECT weighbridge.fail_upload(%s, %s, %s)

-- name: begin_staging
SELECT weighbridge.begin_staging(%s, %s)

-- name: note_rows_read
SELECT weighbridge.note_rows_read(%s, %s)

-- name: note_staged
SELECT weighbridge.note_staged(%s, %s)

-- name: finish_staging
SELECT weighbridge.finish_staging(%s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: note_columns
SELECT weighbridge.note_columns(%s, %s, %s)

-- name: release_staged
SELECT weighbridge.release_staged(%s)

-- name: hold_upload
SELECT weighbridge.hold_upload(%s)

-- name: begin_promotion
SELECT weighbridge.begin_promotion(%s, %s)

-- name: restage_upload
SELECT weighbridge.restage_upload(%s)

-- name: advance_promotion
SELECT weighbridge.advance_promotion(%s, %s, %s, %s, %s)

-- name: finish_upload
SELECT weighbridge.finish_upload(%s, %s, %s, %s, %s, %s)

-- name: count_failures
SELECT failures FROM public.data_uploads WHERE id = weighbridge.fence(%s)

-- name: count_lock_waits
-- Attempts of this run at the upload that were released with this message.
WITH this AS MATERIALIZED (SELECT weighbridge.fence(%s) AS upload)
SELECT count(*) FROM this t JOIN weighbridge.attempts a ON a.subject = t.upload
WHERE a.queue = 'uploads' AND a.outcome = 'released' AND a.error = %s
  AND a.opened_at > coalesce((SELECT max(b.opened_at) FROM weighbridge.attempts b
                              WHERE b.subject = t.upload AND b.outcome IN ('done', 'failed')), '-infinity')

-- name: retry_upload
SELECT weighbridge.retry_upload(%s, %s, %s, %s, %s)

-- name: change_reading
SELECT weighbridge.change_reading(%s, %s, %s)

-- name: dismiss_upload
SELECT weighbridge.dismiss_upload(%s, %s)

-- name: release_batch
SELECT weighbridge.release_batch(%s, %s)
