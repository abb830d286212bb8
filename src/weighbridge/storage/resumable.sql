-- name: begin_resumable
INSERT INTO weighbridge.resumable_uploads (id, workspace_id, spool_id, request, metadata, length, expires_at)
VALUES (%(id)s, %(workspace_id)s, %(spool_id)s, %(request)s, %(metadata)s, %(length)s, weighbridge.now() + %(lasts)s)
RETURNING expires_at

-- name: get_resumable
-- An incomplete file expires; a complete one does not: it waits for intake.
SELECT r.id, r.workspace_id, r.spool_id, r.request, r.metadata, r.length, r.received, r.expires_at,
       r.expires_at <= weighbridge.now() AND (r.received < r.length OR r.upload_id IS NOT NULL OR r.refusal_code IS NOT NULL)
           AS expired,
       r.upload_id, r.duplicate, d.status, d.storage_status, r.refusal_status, r.refusal_code, r.refusal_text
FROM weighbridge.resumable_uploads r
LEFT JOIN public.data_uploads d ON d.id = r.upload_id
WHERE r.id = %s

-- name: adopt_resumable
-- No bytes are recorded yet: any machine may adopt it.
UPDATE weighbridge.resumable_uploads SET spool_id = %(spool)s WHERE id = %(id)s AND received = 0
RETURNING id

-- name: note_received
-- Never less than before, and only on the machine that has the file: another one may have adopted it meanwhile.
UPDATE weighbridge.resumable_uploads
SET received = %(received)s, expires_at = weighbridge.now() + %(lasts)s
WHERE id = %(id)s AND spool_id = %(spool)s AND received <= %(received)s AND upload_id IS NULL AND refusal_code IS NULL
RETURNING expires_at

-- name: note_recorded
UPDATE weighbridge.resumable_uploads
SET upload_id = %(upload)s, duplicate = %(duplicate)s, expires_at = weighbridge.now() + %(lasts)s
WHERE id = %(id)s AND upload_id IS NULL AND refusal_code IS NULL
RETURNING id

-- name: note_refused
UPDATE weighbridge.resumable_uploads
SET refusal_status = %(status)s, refusal_code = %(code)s, refusal_text = %(text)s,
    expires_at = weighbridge.now() + %(lasts)s
WHERE id = %(id)s AND upload_id IS NULL AND refusal_code IS NULL

-- name: forget_resumable
DELETE FROM weighbridge.resumable_uploads WHERE id = %s

-- name: forget_expired
DELETE FROM weighbridge.resumable_uploads r
-- SKIP LOCKED: its sender is just continuing; the next sweep sees it again.
WHERE r.id = (SELECT l.id FROM weighbridge.resumable_uploads l WHERE l.id = %s FOR UPDATE SKIP LOCKED)
  AND r.expires_at <= weighbridge.now()
  AND (r.received < r.length OR r.upload_id IS NOT NULL OR r.refusal_code IS NOT NULL)
RETURNING r.id

-- name: whole_resumables
-- Complete files of one machine that wait for intake.
SELECT id, workspace_id FROM weighbridge.resumable_uploads
WHERE spool_id = %s AND received = length AND upload_id IS NULL AND refusal_code IS NULL
ORDER BY created_at, id

-- name: expired_resumables
-- Of any machine: without a row the bytes belong to nothing, and their machine removes them.
SELECT id, workspace_id FROM weighbridge.resumable_uploads
WHERE expires_at <= weighbridge.now() AND (received < length OR upload_id IS NOT NULL OR refusal_code IS NOT NULL)

-- name: open_resumables
-- Files of one machine that should have bytes there.
SELECT id, workspace_id, received FROM weighbridge.resumable_uploads
WHERE spool_id = %s AND upload_id IS NULL AND refusal_code IS NULL
