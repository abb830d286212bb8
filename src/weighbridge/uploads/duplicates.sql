-- name: known_upload
-- Always one row: today by the database's clock, and the existing upload of this file, if any.
SELECT (weighbridge.now() AT TIME ZONE 'UTC')::date, k.upload_id, k.reason
FROM (VALUES (true)) AS one (row)
LEFT JOIN weighbridge.known_upload(
    %(workspace_id)s, %(pipeline)s, %(client_id)s, %(platform)s, %(project_id)s, %(content_sha256)s, %(source_batch_id)s, %(forced)s,
    %(reading)s
) AS k ON true

-- name: note_duplicate
SELECT weighbridge.note_duplicate(%s, %s)
