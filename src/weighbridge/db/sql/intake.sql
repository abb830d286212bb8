-- name: known_content
-- One row always: today by the database's clock, and the upload that this content already has, if any.
SELECT (weighbridge.now() AT TIME ZONE 'UTC')::date, d.id, d.status
FROM (VALUES (true)) AS one (row)
LEFT JOIN public.data_uploads d
  ON d.workspace_id = %(workspace_id)s AND d.pipeline = %(pipeline)s
 AND d.client_id IS NOT DISTINCT FROM %(client_id)s AND d.platform IS NOT DISTINCT FROM %(platform)s
 AND d.content_sha256 = %(content_sha256)s AND d.status <> 'failed' AND NOT d.forced
