-- Resumable uploads (tus 1.0): files that come in parts, over lines that break.
--
-- The bytes lie on the machine that took the first of them (spool_id), in a file that is called like the row. What counts
-- of them is `received`: it is noted after they are on the disk. A row whose bytes are all here is ended by intake, once: with an
-- upload, in the transaction that records it, or with a refusal. Rows are forgotten when they expire; one that is whole
-- and waits for intake does not.

CREATE TABLE weighbridge.resumable_uploads (
    id uuid PRIMARY KEY, -- also the grant of its share of the quota
    workspace_id uuid NOT NULL,
    spool_id uuid NOT NULL,
    request jsonb NOT NULL, -- what the sender says of the file, checked when it began
    metadata text NOT NULL, -- the same as it came: HEAD says it back
    length bigint NOT NULL CHECK (length > 0),
    received bigint NOT NULL DEFAULT 0 CHECK (received BETWEEN 0 AND length),
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    expires_at timestamptz NOT NULL,
    -- how it ended
    upload_id uuid,
    duplicate boolean NOT NULL DEFAULT false,
    refusal_status int,
    refusal_code text,
    refusal_text text,
    CONSTRAINT whole_when_recorded CHECK (upload_id IS NULL OR received = length),
    CONSTRAINT ends_once CHECK (upload_id IS NULL OR refusal_code IS NULL),
    CONSTRAINT refused_with_a_sentence CHECK (num_nulls(refusal_status, refusal_code, refusal_text) IN (0, 3))
);
CREATE INDEX resumable_whole ON weighbridge.resumable_uploads (spool_id)
    WHERE received = length AND upload_id IS NULL AND refusal_code IS NULL;
CREATE INDEX resumable_expires ON weighbridge.resumable_uploads (expires_at);
CREATE INDEX resumable_of_spool ON weighbridge.resumable_uploads (spool_id);

-- Who may do what -------------------------------------------------------------------------------------------

ALTER TABLE weighbridge.resumable_uploads ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON weighbridge.resumable_uploads USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT SELECT ON weighbridge.resumable_uploads TO weighbridge_tenant;
GRANT SELECT, INSERT, DELETE,
    UPDATE (spool_id, received, expires_at, upload_id, duplicate, refusal_status, refusal_code, refusal_text)
    ON weighbridge.resumable_uploads TO weighbridge_intake;
