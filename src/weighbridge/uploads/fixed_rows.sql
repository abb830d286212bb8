-- name: add_fixes
-- Links of the records of a fixed file. The sender wrote the ids, so only uploads of the same workspace and pipeline count.
INSERT INTO weighbridge.upload_fixes (upload_id, workspace_id, row_index, original_upload, original_row)
SELECT %(upload)s, %(workspace)s, l.row_index, d.id, l.original_row
FROM unnest(%(rows)s::int[], %(uploads)s::uuid[], %(original_rows)s::int[]) AS l (row_index, original_upload, original_row)
JOIN public.data_uploads d ON d.id = l.original_upload
WHERE d.workspace_id = %(workspace)s AND d.pipeline = %(pipeline)s AND d.id <> %(upload)s

-- name: count_rejects
SELECT upload_id, count(*) FILTER (WHERE fixed_by IS NULL), count(fixed_by)
FROM public.upload_rejections
WHERE upload_id = ANY (%s)
GROUP BY upload_id

-- name: fixes_rows_of
-- The uploads that this one is linked to, and how many of their rejected rows it has fixed: none before it ends.
SELECT d.id, d.filename, (SELECT count(*) FROM public.upload_rejections r WHERE r.fixed_by = %(upload)s AND r.upload_id = d.id)
FROM public.data_uploads d
WHERE d.id IN (SELECT f.original_upload FROM weighbridge.upload_fixes f WHERE f.upload_id = %(upload)s
               UNION SELECT r.upload_id FROM public.upload_rejections r WHERE r.fixed_by = %(upload)s)
ORDER BY d.created_at DESC, d.id

-- name: fixed_by
-- The uploads that fixed rejected rows of this one.
SELECT d.id, d.filename, r.rows
FROM (SELECT fixed_by, count(*) AS rows FROM public.upload_rejections
      WHERE upload_id = %(upload)s AND fixed_by IS NOT NULL GROUP BY fixed_by) AS r
JOIN public.data_uploads d ON d.id = r.fixed_by
ORDER BY d.created_at, d.id
