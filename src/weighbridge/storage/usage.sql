-- name: take_interpretations
SELECT used, allowed, resets_at, seconds FROM weighbridge.take_interpretations(%s, %s, %s)

-- name: count_blob
SELECT weighbridge.count_blob(%s, %s, %s, %s)

-- name: note_uncounted
SELECT weighbridge.note_uncounted(%s, %s, %s, %s)

-- name: count_uncounted
-- Without the function where there is nothing to count, which is nearly always.
SELECT c.counted, c.failed, c.error FROM weighbridge.count_uncounted(%s) c
WHERE EXISTS (SELECT FROM weighbridge.uncounted_blobs)

-- name: reserve_storage
SELECT whose, span, used, allowed, resets_at, seconds
FROM weighbridge.reserve_storage(
    %(grant)s, %(user_id)s, %(size)s, %(lasts)s, %(workspace_month)s, %(workspace_total)s, %(user_month)s, %(user_total)s,
    %(consumers)s)

-- name: release_storage
SELECT weighbridge.release_storage(%s)

-- name: sweep_reservations
SELECT weighbridge.sweep_reservations()

-- name: usage_and_limits
SELECT user_id, total_bytes, total_sources, month_bytes, waiting_bytes, reserved_bytes, month_limit, total_limit,
       last_calculated, interpretation_count_month, interpretation_limit_month, billing_month, resets_at
FROM weighbridge.usage_and_limits(%(workspace_month)s, %(workspace_total)s, %(user_month)s, %(user_total)s)

-- name: set_storage_limit
SELECT weighbridge.set_storage_limit(%(user_id)s, %(month)s, %(total)s, %(interpretations)s, %(actor)s)

-- name: recount_storage
SELECT weighbridge.recount_storage(%s, %s, %s, %s)

-- name: counted_workspaces
-- Every workspace that has, or should have, stored blobs.
SELECT workspace_id FROM public.storage_usage
UNION SELECT workspace_id FROM public.data_uploads WHERE storage_status = 'stored'

-- name: expired_blobs
-- One upload for each blob that may be old enough, and for each whose removal has begun and not ended.
-- Two branches, so that each has its own index.
SELECT DISTINCT ON (d.workspace_id, weighbridge.blob_key(d.file_url)) d.workspace_id, d.id
FROM (
    SELECT o.workspace_id, o.id, o.file_url FROM public.data_uploads o
    WHERE o.storage_status = 'stored' AND o.status IN ('completed', 'partial', 'failed')
      AND o.finished_at AT TIME ZONE 'UTC' < (SELECT (weighbridge.now() - make_interval(days => %s)) AT TIME ZONE 'UTC')
    UNION ALL
    SELECT o.workspace_id, o.id, o.file_url FROM public.data_uploads o
    WHERE o.storage_status = 'removed' AND o.blob_removed_at IS NULL AND o.status IN ('completed', 'partial', 'failed')
) d
WHERE d.file_url IS NOT NULL
ORDER BY d.workspace_id, weighbridge.blob_key(d.file_url)

-- name: retire_blob
SELECT weighbridge.retire_blob(%s, make_interval(days => %s))

-- name: note_blob_removed
SELECT weighbridge.note_blob_removed(%s)

-- name: days_kept
-- How long the file of an upload was kept after the upload ended.
SELECT EXTRACT(DAY FROM coalesce(blob_removed_at, weighbridge.now()) - finished_at)::int
FROM public.data_uploads WHERE id = %s AND storage_status = 'removed'
