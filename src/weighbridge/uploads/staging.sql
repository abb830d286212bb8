-- name: add_rejected_rows
INSERT INTO public.upload_rejections
    (upload_id, workspace_id, stage, row_index, line, column_name, code, message, raw, more)
SELECT %s, %s, 'parse', r.*
FROM jsonb_to_recordset(%s)
    AS r (row_index int, line int, column_name text, code text, message text, raw text[], more text[])

-- name: expired_staging
-- Finished uploads whose staged rows are old, whether complete or left by a failure. IS TRUE: not by the index of all
-- finished uploads.
SELECT id FROM public.data_uploads
WHERE staged_at < (SELECT weighbridge.now() - make_interval(days => %(days)s))
  AND (status IN ('completed', 'partial', 'failed')) IS TRUE AND pipeline = ANY (%(pipelines)s)
UNION ALL
SELECT id FROM public.data_uploads
WHERE staged_at IS NULL AND staged <> '{}' AND finished_at < weighbridge.now() - make_interval(days => %(days)s)
  AND status IN ('completed', 'partial', 'failed') AND pipeline = ANY (%(pipelines)s)

-- name: expire_staging
SELECT weighbridge.expire_staging(%s, make_interval(days => %s))
