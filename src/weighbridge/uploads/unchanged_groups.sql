-- name: known_groups
SELECT r.group_key
FROM unnest(%(groups)s::text[], %(digests)s::bytea[]) AS g (group_key, digest)
JOIN weighbridge.receipts r
  ON r.workspace_id = %(workspace)s AND r.target = %(target)s AND r.scope = %(scope)s AND r.group_key = g.group_key
WHERE r.complete AND r.digest = g.digest
  -- If an earlier file may still come, its promotion must see the rows of this one: they are staged.
  AND NOT EXISTS (SELECT FROM public.data_uploads d
                  JOIN public.data_uploads e ON e.workspace_id = d.workspace_id AND e.lane = d.lane
                  WHERE d.id = %(upload)s AND e.position < d.position
                    AND e.status IN ('pending', 'processing', 'staging_complete')
                    AND (e.preview OR e.storage_status <> 'stored'))

-- name: matching_groups
-- Groups of staged rows whose content equals what was last applied. FOR SHARE: this must stay true until commit.
SELECT g.first_seq, g.last_seq
FROM weighbridge.staging_groups g
JOIN weighbridge.receipts r
  ON r.workspace_id = g.workspace_id AND r.target = %(target)s AND r.scope = %(scope)s AND r.group_key = g.group_key
WHERE g.upload_id = %(upload)s AND g.workspace_id = %(workspace)s AND g.first_seq > %(after)s
  AND r.complete AND r.digest = g.digest
ORDER BY g.first_seq
FOR SHARE OF r

-- name: current_groups
-- The same without locks: a preview blocks nothing.
SELECT g.first_seq, g.last_seq
FROM weighbridge.staging_groups g
JOIN weighbridge.receipts r
  ON r.workspace_id = g.workspace_id AND r.target = %(target)s AND r.scope = %(scope)s AND r.group_key = g.group_key
WHERE g.upload_id = %(upload)s AND g.workspace_id = %(workspace)s AND r.complete AND r.digest = g.digest
ORDER BY g.first_seq

-- name: touch_receipts
-- The batch writes to these groups. A pass over a group begins with its first row and is complete with its last,
-- unless another upload wrote to the group in between: then the receipt is mixed and cannot be compared.
INSERT INTO weighbridge.receipts AS r (workspace_id, target, scope, group_key, upload_id, digest, complete, mixed)
SELECT g.workspace_id, %(target)s, %(scope)s, g.group_key, g.upload_id, g.digest,
       g.first_seq > %(after)s AND g.last_seq <= %(upto)s AND NOT %(incomplete)s,
       g.first_seq <= %(after)s OR %(incomplete)s
FROM weighbridge.staging_groups g
WHERE g.upload_id = %(upload)s AND g.workspace_id = %(workspace)s
  AND g.last_seq > %(after)s AND g.first_seq <= %(upto)s
ORDER BY g.group_key -- one lock order for all uploads
ON CONFLICT (workspace_id, target, scope, group_key) DO UPDATE
SET upload_id = excluded.upload_id,
    digest = excluded.digest,
    mixed = CASE WHEN %(incomplete)s THEN true
                 WHEN NOT excluded.mixed THEN false -- starts again
                 ELSE r.upload_id <> excluded.upload_id OR r.mixed OR r.complete END,
    complete = CASE WHEN %(incomplete)s THEN false
                    WHEN NOT excluded.mixed THEN excluded.complete
                    WHEN r.upload_id <> excluded.upload_id OR r.mixed OR r.complete THEN false
                    ELSE (SELECT g.last_seq <= %(upto)s FROM weighbridge.staging_groups g
                          WHERE g.upload_id = excluded.upload_id AND g.workspace_id = excluded.workspace_id
                            AND g.group_key = excluded.group_key) END

-- name: void_receipts
-- A pipeline without groups writes to a table for which another one may have receipts.
DELETE FROM weighbridge.receipts WHERE workspace_id = %(workspace)s AND target = %(target)s
