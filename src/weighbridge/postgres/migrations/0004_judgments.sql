-- The judgments pipeline (S3): its production tables, batches that a sender names, and import runs.
--
-- ingest.import_runs and ingest.v_stale_runs show uploads in S3's words. Whoever updates the status of an import run
-- moves its upload, if that is a move: the guard of data_uploads stands behind it.

CREATE SCHEMA ingest;
CREATE SCHEMA intake;
GRANT USAGE ON SCHEMA intake TO weighbridge_parse, weighbridge_promote, weighbridge_clean;
GRANT USAGE ON SCHEMA ingest TO weighbridge_tenant;

-- Production ------------------------------------------------------------------------------------------------

CREATE TABLE public.plaintiffs (
    workspace_id uuid NOT NULL DEFAULT weighbridge.workspace(),
    id uuid NOT NULL,
    dedupe_key text COLLATE "C" NOT NULL,
    name text,
    email text,
    phone text,
    upload_id uuid,
    line int,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, dedupe_key),
    CONSTRAINT plaintiffs_id_from_key CHECK (
        id = weighbridge.entity_id('plaintiff', workspace_id::text, dedupe_key))
);

CREATE TABLE public.judgments (
    workspace_id uuid NOT NULL DEFAULT weighbridge.workspace(),
    case_number text COLLATE "C" NOT NULL,
    plaintiff_id uuid,
    plaintiff_name text,
    defendant_name text,
    judgment_amount numeric(18,6) CHECK (judgment_amount >= 0),
    filing_date date,
    court text,
    county text,
    source_file text,
    upload_id uuid,
    line int,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    UNIQUE (workspace_id, case_number),
    FOREIGN KEY (workspace_id, plaintiff_id) REFERENCES public.plaintiffs (workspace_id, id)
);
CREATE INDEX judgments_plaintiff ON public.judgments (workspace_id, plaintiff_id);

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['plaintiffs', 'judgments'] LOOP
        EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY workspace ON public.%I USING (workspace_id = (SELECT weighbridge.workspace()))', t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE ON public.%I TO weighbridge_promote', t);
        EXECUTE format('GRANT SELECT ON public.%I TO weighbridge_tenant', t);
    END LOOP;
END $$;
CREATE TRIGGER void_receipts AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON public.judgments
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts();

-- Batches ---------------------------------------------------------------------------------------------------

-- What the sender calls its batch. It names one upload, whatever became of it (S3 §3.1).
ALTER TABLE public.data_uploads ADD COLUMN source_batch_id text CHECK (length(source_batch_id) BETWEEN 1 AND 200);
ALTER TABLE public.data_uploads ADD CONSTRAINT data_uploads_batch UNIQUE (workspace_id, source_batch_id);
-- The request that brought it (W3C trace context); whoever works on it goes on with its trace.
ALTER TABLE public.data_uploads ADD COLUMN traceparent text;

-- S3's words for the states (DESIGN, rule 2).
CREATE TYPE ingest.import_run_status AS ENUM ('pending', 'processing', 'completed', 'failed');
CREATE FUNCTION ingest.run_status(p_status text) RETURNS ingest.import_run_status
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT CASE p_status WHEN 'pending' THEN 'pending' WHEN 'failed' THEN 'failed'
                             WHEN 'completed' THEN 'completed' WHEN 'partial' THEN 'completed'
                             ELSE 'processing' END::ingest.import_run_status
    $$;

-- Why a file that came again is not loaded again: duplicate_content, duplicate_ and the state of its batch,
-- batch_failed (an operator's to retry) or batch_differs (a name that is taken, by other content or for another client).
ALTER TYPE weighbridge.received ADD ATTRIBUTE reason text;

-- The upload that a file already is, if any: by the name of its batch, else by its content.
CREATE FUNCTION weighbridge.known_upload(
    p_workspace uuid, p_pipeline text, p_client uuid, p_platform text, p_sha256 bytea, p_batch text, p_forced boolean
) RETURNS SETOF weighbridge.received
    LANGUAGE sql STABLE
    AS $$
        SELECT found.id, true, found.reason
        FROM (
            SELECT d.id, 1 AS rank,
                   CASE WHEN (d.content_sha256, d.pipeline, d.client_id, d.platform)
                             IS DISTINCT FROM (p_sha256, p_pipeline, p_client, p_platform) THEN 'batch_differs'
                        WHEN d.status = 'failed' THEN 'batch_failed'
                        ELSE 'duplicate_' || ingest.run_status(d.status) END AS reason
            FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.source_batch_id = p_batch
            UNION ALL
            SELECT d.id, 2, 'duplicate_content'
            FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.pipeline = p_pipeline
              AND d.client_id IS NOT DISTINCT FROM p_client AND d.platform IS NOT DISTINCT FROM p_platform
              AND d.content_sha256 = p_sha256 AND d.status <> 'failed' AND NOT d.forced AND NOT p_forced
        ) AS found
        ORDER BY found.rank LIMIT 1
    $$;

-- Records a stored file. The same content, or the same batch, again gives back the first upload.
DROP FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean);
CREATE FUNCTION weighbridge.receive_upload(
    p_workspace uuid, p_client uuid, p_platform text, p_source text, p_pipeline text, p_filename text,
    p_file_url text, p_file_kind text, p_sha256 bytea, p_size bigint, p_created_by uuid,
    p_force_partial boolean, p_forced boolean, p_batch text, p_traceparent text
) RETURNS weighbridge.received
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_id uuid;
    v_known weighbridge.received;
BEGIN
    IF p_workspace IS DISTINCT FROM weighbridge.workspace() THEN
        RAISE EXCEPTION 'the transaction acts for another workspace' USING ERRCODE = 'insufficient_privilege';
    END IF;
    LOOP
        INSERT INTO data_uploads (workspace_id, client_id, platform, source, pipeline, filename, file_url, file_kind,
                                  content_sha256, byte_size, created_by, force_partial, forced, source_batch_id,
                                  traceparent)
        VALUES (p_workspace, p_client, p_platform, p_source, p_pipeline, p_filename, p_file_url, p_file_kind,
                p_sha256, p_size, p_created_by, p_force_partial, p_forced, p_batch, p_traceparent)
        ON CONFLICT DO NOTHING
        RETURNING id INTO v_id;
        IF v_id IS NOT NULL THEN
            PERFORM pg_notify('weighbridge_work', '');
            PERFORM pg_notify('weighbridge_live', json_build_object(
                'workspace_id', p_workspace, 'upload_id', v_id, 'status', 'pending')::text);
            RETURN (v_id, false, NULL::text);
        END IF;
        SELECT * INTO v_known
        FROM known_upload(p_workspace, p_pipeline, p_client, p_platform, p_sha256, p_batch, p_forced);
        IF FOUND THEN
            RETURN v_known;
        END IF;
        -- It failed between the two statements: now the way is free.
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text),
    weighbridge.known_upload(uuid, text, uuid, text, bytea, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text)
    TO weighbridge_intake;
GRANT EXECUTE ON FUNCTION weighbridge.known_upload(uuid, text, uuid, text, bytea, text, boolean) TO weighbridge_tenant;

-- Import runs -----------------------------------------------------------------------------------------------

-- security_invoker: whoever reads it sees what row-level security lets them see of data_uploads.
CREATE VIEW ingest.import_runs WITH (security_invoker = true) AS
SELECT d.id,
       coalesce(d.source_batch_id, d.id::text) AS source_batch_id,
       ingest.run_status(d.status) AS status,
       d.row_count AS record_count,
       encode(d.content_sha256, 'hex') AS file_hash,
       d.started_at,
       d.finished_at AS completed_at,
       d.created_at,
       d.error_text AS error_message,
       d.pipeline,
       d.workspace_id
FROM public.data_uploads d;

-- Runs that nobody works on any more: started over an hour ago, under way, and without a live lease. A long run that
-- beats and makes progress is not stale (S3 §2.4; PROCESSING_TIMEOUT_HOURS is the ceiling for one that makes none), nor
-- is one that is parsed and waits its turn to be promoted.
CREATE VIEW ingest.v_stale_runs WITH (security_invoker = true) AS
SELECT
    r.id,
    r.source_batch_id,
    r.status,
    r.started_at,
    EXTRACT(EPOCH FROM (weighbridge.now() - r.started_at)) / 3600 AS hours_stale,
    r.file_hash
FROM ingest.import_runs r
JOIN public.data_uploads d ON d.id = r.id AND d.status IN ('processing', 'promoting')
WHERE r.status = 'processing'
  AND r.started_at < weighbridge.now() - INTERVAL '1 hour'
  AND NOT EXISTS (
      SELECT FROM weighbridge.attempts a
      WHERE a.queue = 'uploads' AND a.subject = r.id AND a.closed_at IS NULL AND a.lease_until >= weighbridge.now())
ORDER BY r.started_at ASC;

COMMENT ON VIEW ingest.v_stale_runs IS 'Import runs stuck in processing state for >1 hour (potential crash victims).';

GRANT SELECT ON ingest.import_runs TO weighbridge_tenant;

-- S3 §1.4. Through the view a run that nobody works on can be reset (§2.2) or given up; everything else that is a
-- move at all is a worker's, as it goes with a lease.
CREATE FUNCTION ingest.guard_status_transition() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    IF to_jsonb(NEW) - 'status' IS DISTINCT FROM to_jsonb(OLD) - 'status' THEN
        RAISE EXCEPTION 'Only the status of an import run can be changed' USING ERRCODE = 'WB002';
    END IF;
    IF OLD.status IN ('completed', 'failed') AND NEW.status IS DISTINCT FROM OLD.status THEN
        RAISE EXCEPTION 'Cannot transition from terminal status: %', OLD.status USING ERRCODE = 'WB002',
            HINT = 'weighbridge uploads retry opens a failed run again.';
    ELSIF OLD.status = 'pending' AND NEW.status <> 'pending'
       OR OLD.status = 'processing' AND NEW.status NOT IN ('processing', 'pending', 'failed') THEN
        RAISE EXCEPTION 'Invalid transition: % -> %', OLD.status, NEW.status USING ERRCODE = 'WB002',
            HINT = 'Only a worker claims and completes runs.';
    ELSIF OLD.status = 'processing' AND NEW.status <> 'processing' THEN
        -- A takeover holds both until it commits: only then is its attempt to be seen.
        PERFORM FROM attempts a WHERE a.queue = 'uploads' AND a.subject = OLD.id AND a.closed_at IS NULL FOR UPDATE;
        PERFORM FROM data_uploads d WHERE d.id = OLD.id FOR UPDATE;
        IF EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = OLD.id
                   AND a.closed_at IS NULL AND a.lease_until >= weighbridge.now()) THEN
            RAISE EXCEPTION 'Invalid transition: a worker is at %', OLD.source_batch_id USING ERRCODE = 'WB002',
                HINT = 'Its lease is alive. Stop the worker first; the run then goes back by itself.';
        END IF;
        PERFORM abandon(OLD.id, NEW.status = 'failed');
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER trg_import_runs_status_guard INSTEAD OF UPDATE ON ingest.import_runs
    FOR EACH ROW EXECUTE FUNCTION ingest.guard_status_transition();

-- Postgres would let a simple view's rows be deleted, and with them the memory of what has been loaded.
CREATE FUNCTION ingest.guard_import_runs() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'Import runs are not inserted or deleted by hand' USING ERRCODE = 'WB002',
        HINT = 'Hand over a file to begin one; weighbridge uploads dismiss takes a failed one off the dead letters.';
END $$;
CREATE TRIGGER trg_import_runs_guard INSTEAD OF INSERT OR DELETE ON ingest.import_runs
    FOR EACH ROW EXECUTE FUNCTION ingest.guard_import_runs();
