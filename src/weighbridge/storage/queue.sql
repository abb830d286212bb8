-- name: defer_upload
SELECT weighbridge.defer_upload(
    %(upload_id)s, %(queue_id)s, %(spool_id)s, %(path)s, %(bucket)s, %(object_path)s, %(user_id)s, %(max_retries)s,
    %(delay)s, %(error)s, %(consumers)s)

-- name: upload_of_queue
SELECT payload_submission_id FROM public.upload_queue WHERE id = %s

-- name: claim_replays
SELECT lease_token, queue_id, workspace_id, upload_id, user_id, object_path, content_hash, byte_size, retry_count,
       max_retries, early
FROM weighbridge.claim_replays(%s, %s, %s, %s, %s)

-- name: finish_replay
SELECT weighbridge.finish_replay(%s, %s)

-- name: fail_replay
SELECT weighbridge.fail_replay(%s, %s, %s, %s, %s)

-- name: close_attempt
SELECT weighbridge.close_attempt(%s, %s, %s)

-- name: fail_lost_replay
SELECT weighbridge.fail_lost_replay(%s, %s)

-- name: spooled
SELECT id FROM public.upload_queue WHERE spool_id = %s

-- name: adopt
UPDATE public.upload_queue SET spool_id = %s WHERE id = ANY (%s) RETURNING id

-- name: store_waiting
SELECT weighbridge.store_waiting(%s, %s)

-- name: identity
SELECT id FROM weighbridge.identity

-- name: waiting_files
SELECT q.id AS queue_id, q.payload_submission_id AS upload_id, q.workspace_id, q.user_id, q.bucket, q.object_path,
       q.content_hash, q.byte_size, q.retry_count, q.max_retries,
       CASE WHEN q.retry_count < q.max_retries THEN 'pending_retry' ELSE 'retry_failed' END AS storage_status,
       CASE WHEN q.retry_count < q.max_retries THEN q.next_retry_at END AS next_retry_at,
       q.error_message, q.created_at, q.metadata, q.spool_id
FROM public.upload_queue q
WHERE (%(workspace)s::uuid IS NULL OR q.workspace_id = %(workspace)s)
  AND (%(failed)s::boolean IS NULL OR (q.retry_count >= q.max_retries) = %(failed)s)
ORDER BY q.created_at, q.id
LIMIT %(limit)s

-- name: queue_of_upload
SELECT id FROM public.upload_queue WHERE payload_submission_id = %s

-- name: retry_replay
SELECT weighbridge.retry_replay(%s, %s)

-- name: drop_replay
SELECT weighbridge.drop_replay(%s, %s)

-- name: watch_storage
SELECT weighbridge.watch_storage(%s, %s)

-- name: waiting_for_store
SELECT count(*) FILTER (WHERE q.retry_count >= q.max_retries), count(*) FILTER (WHERE q.retry_count < q.max_retries),
       count(*) FILTER (WHERE q.retry_count < q.max_retries AND q.next_retry_at < weighbridge.now() - INTERVAL '1 hour')
FROM public.upload_queue q
