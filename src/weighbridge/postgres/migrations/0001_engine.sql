-- The engine: uploads, attempts, events, keys, and the functions that move them.
--
-- data_uploads        one row per file handed over; its status is the only truth about it
-- attempts            who works on what, until when: a lease per attempt, for every queue
-- unbroken            the attempts at uploads that no crash of the server has come between
-- moves               the state machine; the guard trigger on data_uploads reads it
-- upload_rejections   every refused row, with its raw cells
-- events              what landed, announced once; event_deliveries has a row per consumer
-- api_keys, audit_log who may do what, and what an operator did
-- clock               how far tests have moved the time
--
-- The life of an attempt. claim_upload opens it: a new lease_token, a slot of the workspace. Every later
-- write happens in a transaction that calls enter(token) or, for a verdict, fence(token) first; heartbeat(tokens) moves the lease on;
-- release, fail_upload and finish_upload close it; recover() closes those whose lease ran out. The fence
-- takes a KEY SHARE lock on the attempt and recover takes FOR UPDATE, so no attempt is taken over in the
-- middle of a fenced transaction, while heartbeats (an ordinary UPDATE) pass.
--
-- Lock order: attempts, then data_uploads, then events, then data tables.

CREATE SCHEMA weighbridge;
CREATE SCHEMA staging;

-- Roles: one per worker of S1 §2.1, one for tenants' requests. They own nothing and cannot log in; the
-- service's own login is a member and takes the role on for one transaction at a time.
DO $$
DECLARE
    role_name text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('weighbridge.roles'));
    FOREACH role_name IN ARRAY ARRAY['weighbridge_intake', 'weighbridge_parse', 'weighbridge_promote',
                                     'weighbridge_clean', 'weighbridge_announce', 'weighbridge_tenant']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        END IF;
        IF NOT pg_has_role(current_user, role_name, 'MEMBER') THEN
            EXECUTE format('GRANT %I TO CURRENT_USER', role_name);
        END IF;
    END LOOP;
END $$;

GRANT USAGE ON SCHEMA weighbridge, staging TO
    weighbridge_intake, weighbridge_parse, weighbridge_promote, weighbridge_clean, weighbridge_announce;
GRANT USAGE ON SCHEMA weighbridge TO weighbridge_tenant;
GRANT USAGE ON SCHEMA public TO
    weighbridge_intake, weighbridge_parse, weighbridge_promote, weighbridge_clean, weighbridge_announce,
    weighbridge_tenant;

-- Time ------------------------------------------------------------------------------------------------------

CREATE TABLE weighbridge.clock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    shift interval NOT NULL DEFAULT '0'
);
INSERT INTO weighbridge.clock DEFAULT VALUES;
GRANT SELECT ON weighbridge.clock TO PUBLIC;

-- The only clock. Tests move it with UPDATE weighbridge.clock SET shift = …
CREATE FUNCTION weighbridge.now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT clock_timestamp() + shift FROM weighbridge.clock $$;

-- The workspace that this transaction acts for; row-level security compares with it.
CREATE FUNCTION weighbridge.workspace() RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('weighbridge.workspace_id', true), '')::uuid $$;

-- Ids -------------------------------------------------------------------------------------------------------

-- SHA-256 of the parts of a natural key: entity, workspace, scope, key columns; '' stands for NULL.
CREATE FUNCTION weighbridge.natural_key_hash(VARIADIC parts text[]) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT sha256(convert_to(array_to_string(parts, E'\x1f', ''), 'UTF8')) $$;

-- The id of a dimension row: a version 8 UUID cut from that hash, so that anyone can compute it.
CREATE FUNCTION weighbridge.entity_id(VARIADIC parts text[]) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT encode(set_byte(set_byte(h, 6, (get_byte(h, 6) & 15) | 128), 8, (get_byte(h, 8) & 63) | 128), 'hex')::uuid
        FROM (SELECT substring(weighbridge.natural_key_hash(VARIADIC parts) FROM 1 FOR 16)) AS cut (h)
    $$;

-- Uploads ---------------------------------------------------------------------------------------------------

CREATE TABLE public.data_uploads (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    client_id uuid,
    platform text,
    source text NOT NULL CHECK (source IN ('manual', 'api', 'webhook')),
    pipeline text NOT NULL,
    filename text,
    file_url text,
    file_kind text NOT NULL DEFAULT 'csv' CHECK (file_kind IN ('csv', 'json')),
    content_sha256 bytea NOT NULL CHECK (length(content_sha256) = 32),
    byte_size bigint NOT NULL CHECK (byte_size > 0),
    status text NOT NULL DEFAULT 'pending' CHECK (status IN (
        'pending', 'processing', 'staging_complete', 'promoting', 'completed', 'partial', 'failed')),
    row_count bigint,
    error_code text,
    error_text text,
    created_by uuid,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    -- what the sender asked for
    force_partial boolean NOT NULL DEFAULT false,
    forced boolean NOT NULL DEFAULT false, -- sent again on purpose: stands beside the first upload of the content
    -- when and how often
    run_after timestamptz NOT NULL DEFAULT '-infinity', -- parked until then
    started_at timestamptz,
    staged_at timestamptz,
    finished_at timestamptz,
    failures int NOT NULL DEFAULT 0, -- passing troubles since the last success of a step
    crashes int NOT NULL DEFAULT 0, -- leases that ran out
    -- how far
    rows_read bigint NOT NULL DEFAULT 0,
    staged jsonb NOT NULL DEFAULT '{}', -- entity → last seq staged
    staged_digest bytea, -- of everything that was staged: the watermark counts in it
    watermark_entity text NOT NULL DEFAULT '',
    watermark_seq bigint NOT NULL DEFAULT 0,
    promoted jsonb NOT NULL DEFAULT '{}', -- entity → {inserted, updated, unchanged, failed}
    -- what came out
    bins jsonb,
    total_rows bigint NOT NULL DEFAULT 0,
    promoted_rows bigint NOT NULL DEFAULT 0,
    failed_rows bigint NOT NULL DEFAULT 0,
    warnings bigint NOT NULL DEFAULT 0,
    affected_dates date[] NOT NULL DEFAULT '{}',
    columns text[] NOT NULL DEFAULT '{}', -- the file's own header, for the rejects file
    mapping jsonb NOT NULL DEFAULT '{}', -- field → the header cell it was read from
    event_emitted boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);

COMMENT ON TABLE public.data_uploads IS 'One row per file handed over. Its status is the only truth about it.';

-- The same content again is the same upload, unless the first one failed or the sender insists.
CREATE UNIQUE INDEX data_uploads_content ON public.data_uploads
    (workspace_id, pipeline, client_id, platform, content_sha256) NULLS NOT DISTINCT
    WHERE status <> 'failed' AND NOT forced;
-- Exactly the rows that a worker may claim, by workspace: finished uploads cost the claim nothing.
CREATE INDEX data_uploads_claimable ON public.data_uploads (workspace_id, created_at, id)
    WHERE status IN ('pending', 'staging_complete');
CREATE INDEX data_uploads_recent ON public.data_uploads (workspace_id, created_at DESC, id);
CREATE INDEX data_uploads_staged ON public.data_uploads (staged_at) WHERE staged_at IS NOT NULL;

-- The state machine -----------------------------------------------------------------------------------------

CREATE TABLE weighbridge.moves (
    verb text NOT NULL,
    from_status text NOT NULL,
    to_status text NOT NULL,
    operator boolean NOT NULL DEFAULT false,
    PRIMARY KEY (from_status, to_status, verb)
);
INSERT INTO weighbridge.moves (verb, from_status, to_status, operator) VALUES
    ('claim', 'pending', 'processing', false),
    ('stage', 'processing', 'staging_complete', false),
    ('promote', 'staging_complete', 'promoting', false),
    ('complete', 'promoting', 'completed', false),
    ('complete_partially', 'promoting', 'partial', false),
    ('release_parse', 'processing', 'pending', false),
    ('release_promotion', 'promoting', 'staging_complete', false),
    ('restage', 'staging_complete', 'pending', false),
    ('restage', 'promoting', 'pending', false),
    ('fail', 'pending', 'failed', false),
    ('fail', 'processing', 'failed', false),
    ('fail', 'staging_complete', 'failed', false),
    ('fail', 'promoting', 'failed', false),
    ('retry', 'failed', 'pending', true),
    ('retry', 'partial', 'pending', true);
GRANT SELECT ON weighbridge.moves TO PUBLIC;

CREATE FUNCTION weighbridge.guard_status() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.status = OLD.status THEN
        RETURN NEW;
    END IF;
    IF NOT EXISTS (
        SELECT FROM weighbridge.moves m
        WHERE m.from_status = OLD.status AND m.to_status = NEW.status
          AND (NOT m.operator OR current_setting('weighbridge.verb', true) = m.verb)
    ) THEN
        RAISE EXCEPTION 'upload %: % → % is not a move', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'WB002',
                  HINT = CASE WHEN OLD.status IN ('completed', 'partial', 'failed')
                              THEN 'A finished upload changes only by an operator''s verb: weighbridge uploads retry.'
                              ELSE 'The moves there are stand in weighbridge.moves.' END;
    END IF;
    PERFORM pg_notify('weighbridge_live', json_build_object(
        'workspace_id', NEW.workspace_id, 'upload_id', NEW.id, 'status', NEW.status)::text);
    RETURN NEW;
END $$;

CREATE TRIGGER guard_status BEFORE UPDATE OF status ON public.data_uploads
    FOR EACH ROW EXECUTE FUNCTION weighbridge.guard_status();

-- Attempts --------------------------------------------------------------------------------------------------

CREATE TABLE weighbridge.attempts (
    lease_token uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    queue text NOT NULL,
    subject uuid NOT NULL,
    workspace_id uuid NOT NULL,
    slot int, -- which of the workspace's places it holds, where the queue limits them
    worker text NOT NULL,
    opened_at timestamptz NOT NULL,
    progressed_at timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    closed_at timestamptz,
    outcome text CHECK (outcome IN ('done', 'failed', 'released', 'expired')),
    error text,
    CHECK ((closed_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 70);

COMMENT ON TABLE weighbridge.attempts IS 'Who works on what, until when. A lease_token is never reused.';

-- One live attempt per piece of work, and one per slot: limits that no race can pass.
CREATE UNIQUE INDEX attempts_live ON weighbridge.attempts (queue, subject) WHERE closed_at IS NULL;
CREATE UNIQUE INDEX attempts_slots ON weighbridge.attempts (queue, workspace_id, slot)
    WHERE closed_at IS NULL AND slot IS NOT NULL;
CREATE INDEX attempts_expiring ON weighbridge.attempts (lease_until) WHERE closed_at IS NULL;
CREATE INDEX attempts_history ON weighbridge.attempts (subject, opened_at);

-- Unlogged, so a crash of the server empties it. Batches commit without waiting for the disk, and a crash may undo
-- some of them under a worker that lives on and remembers them as done; such an attempt has to begin again from what
-- the tables say.
CREATE UNLOGGED TABLE weighbridge.unbroken (lease_token uuid PRIMARY KEY);

-- Every verdict on an attempt is written in a transaction that called this first.
CREATE FUNCTION weighbridge.fence(p_token uuid) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_subject uuid;
BEGIN
    SELECT subject INTO v_subject FROM attempts
    WHERE lease_token = p_token AND closed_at IS NULL
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease % is lost', p_token USING ERRCODE = 'WB001',
            HINT = 'Another attempt owns this work now. Change nothing.';
    END IF;
    RETURN v_subject;
END $$;

-- Every step of an attempt happens in a transaction that called this first: it holds the lease, and what it did so far
-- is still done.
CREATE FUNCTION weighbridge.enter(p_token uuid) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_subject uuid := fence(p_token);
BEGIN
    IF NOT EXISTS (SELECT FROM unbroken u WHERE u.lease_token = p_token)
       AND EXISTS (SELECT FROM attempts a WHERE a.lease_token = p_token AND a.queue = 'uploads') THEN
        RAISE EXCEPTION 'the server crashed during lease %', p_token USING ERRCODE = 'WB003',
            HINT = 'Commits that did not wait for the disk may be undone. Begin again from what the tables say.';
    END IF;
    RETURN v_subject;
END $$;

-- Moves the leases on; the tokens that come back are alive, the others are lost. A run that beats but makes
-- no progress is not kept alive past the ceiling.
CREATE FUNCTION weighbridge.heartbeat(p_tokens uuid[], p_lease interval, p_ceiling interval) RETURNS SETOF uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        UPDATE attempts
        SET lease_until = least(weighbridge.now() + p_lease, progressed_at + p_ceiling)
        WHERE lease_token = ANY (p_tokens) AND closed_at IS NULL
        RETURNING lease_token
    $$;

CREATE FUNCTION weighbridge.close_attempt(p_token uuid, p_outcome text, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    UPDATE attempts SET closed_at = weighbridge.now(), outcome = p_outcome, error = p_error
    WHERE lease_token = p_token AND closed_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease % is lost', p_token USING ERRCODE = 'WB001';
    END IF;
    DELETE FROM unbroken WHERE lease_token = p_token;
END $$;

-- Claims the oldest upload of the workspace whose turn it is: workspaces with a free slot, by the age of
-- their oldest waiting upload. Returns no row where nothing may be claimed.
CREATE FUNCTION weighbridge.claim_upload(
    p_worker text, p_from text[], p_pipelines text[], p_lease interval, p_per_workspace int
) RETURNS TABLE (upload_id uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_workspace uuid;
    v_upload uuid;
    v_status text;
    v_token uuid;
BEGIN
    FOR v_workspace IN
        -- A loose index scan: one probe per workspace with waiting uploads, however many each has, so that a
        -- full workspace at the head holds nobody up.
        WITH RECURSIVE waiting (workspace_id) AS (
            (SELECT d.workspace_id FROM data_uploads d
             WHERE d.status IN ('pending', 'staging_complete')
             ORDER BY d.workspace_id LIMIT 1)
            UNION ALL
            SELECT (SELECT d.workspace_id FROM data_uploads d
                    WHERE d.status IN ('pending', 'staging_complete') AND d.workspace_id > w.workspace_id
                    ORDER BY d.workspace_id LIMIT 1)
            FROM waiting w WHERE w.workspace_id IS NOT NULL
        )
        SELECT w.workspace_id
        FROM waiting w
        CROSS JOIN LATERAL (
            SELECT d.created_at FROM data_uploads d
            WHERE d.workspace_id = w.workspace_id AND d.status IN ('pending', 'staging_complete')
              AND d.status = ANY (p_from) AND d.pipeline = ANY (p_pipelines) AND d.run_after <= v_now
              AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = d.id AND a.closed_at IS NULL)
            ORDER BY d.created_at, d.id LIMIT 1
        ) head
        WHERE (SELECT count(*) FROM attempts a
               WHERE a.queue = 'uploads' AND a.workspace_id = w.workspace_id AND a.closed_at IS NULL
                 AND a.slot IS NOT NULL) < p_per_workspace
        ORDER BY head.created_at
    LOOP
        -- SKIP LOCKED: a slow claim must not queue the others.
        SELECT d.id, d.status INTO v_upload, v_status FROM data_uploads d
        WHERE d.workspace_id = v_workspace AND d.status IN ('pending', 'staging_complete')
          AND d.status = ANY (p_from) AND d.pipeline = ANY (p_pipelines) AND d.run_after <= v_now
          -- staged, and its own attempt goes on to promote it
          AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = d.id AND a.closed_at IS NULL)
        ORDER BY d.created_at, d.id LIMIT 1
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_token := NULL;
        FOR v_slot IN 1 .. p_per_workspace LOOP
            -- A lock that is tried, not waited for: a claim that froze before its commit keeps its slot, and
            -- holds nobody else up.
            CONTINUE WHEN EXISTS (
                    SELECT FROM attempts a
                    WHERE a.queue = 'uploads' AND a.workspace_id = v_workspace AND a.slot = v_slot AND a.closed_at IS NULL)
                OR NOT pg_try_advisory_xact_lock(hashtextextended(format('%s/%s', v_workspace, v_slot), 2));
            INSERT INTO attempts AS a (queue, subject, workspace_id, slot, worker, opened_at, progressed_at, lease_until)
            VALUES ('uploads', v_upload, v_workspace, v_slot, p_worker, v_now, v_now, v_now + p_lease)
            ON CONFLICT DO NOTHING
            RETURNING a.lease_token INTO v_token;
            EXIT WHEN v_token IS NOT NULL;
        END LOOP;
        CONTINUE WHEN v_token IS NULL;
        INSERT INTO unbroken (lease_token) VALUES (v_token);
        UPDATE data_uploads d
        SET status = CASE v_status WHEN 'pending' THEN 'processing' ELSE 'promoting' END,
            started_at = coalesce(d.started_at, v_now)
        WHERE d.id = v_upload;
        upload_id := v_upload;
        lease_token := v_token;
        RETURN NEXT;
        RETURN;
    END LOOP;
END $$;

-- Hands an upload back: after a graceful stop (no delay, no failure), or to try again later.
CREATE FUNCTION weighbridge.release_upload(
    p_token uuid, p_delay interval, p_failed boolean, p_error text
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'released', p_error);
    UPDATE data_uploads
    SET status = CASE status WHEN 'processing' THEN 'pending' WHEN 'promoting' THEN 'staging_complete' ELSE status END,
        run_after = weighbridge.now() + p_delay,
        failures = failures + p_failed::int
    WHERE id = v_upload;
    PERFORM pg_notify('weighbridge_work', '');
END $$;

CREATE FUNCTION weighbridge.fail_upload(p_token uuid, p_code text, p_text text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_text);
    UPDATE data_uploads
    SET status = 'failed', error_code = p_code, error_text = p_text, finished_at = weighbridge.now()
    WHERE id = v_upload;
END $$;

-- Closes every attempt whose lease ran out and gives its upload back. A rescue counts as a crash; an upload
-- that crashes its workers too often fails instead of going round for ever.
CREATE FUNCTION weighbridge.recover(p_max_crashes int)
    RETURNS TABLE (queue text, subject uuid, worker text, opened_at timestamptz, gave_up boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_dead record;
BEGIN
    -- A frozen worker may hold its fence: end the session that does, long after its lease.
    PERFORM pg_terminate_backend(s.pid)
    FROM attempts a
    JOIN pg_stat_activity s ON s.application_name = 'weighbridge ' || a.lease_token AND s.datname = current_database()
    WHERE a.closed_at IS NULL AND a.lease_until < v_now AND s.xact_start IS NOT NULL;

    FOR v_dead IN
        SELECT a.* FROM attempts a
        WHERE a.closed_at IS NULL AND a.lease_until < v_now
        ORDER BY a.lease_until
        FOR UPDATE SKIP LOCKED
    LOOP
        UPDATE attempts a SET closed_at = v_now, outcome = 'expired' WHERE a.lease_token = v_dead.lease_token;
        DELETE FROM unbroken u WHERE u.lease_token = v_dead.lease_token;
        gave_up := false;
        IF v_dead.queue = 'uploads' THEN
            UPDATE data_uploads d
            SET crashes = d.crashes + 1,
                status = CASE WHEN d.crashes + 1 >= p_max_crashes THEN 'failed'
                              WHEN d.status = 'promoting' THEN 'staging_complete'
                              WHEN d.status = 'processing' THEN 'pending'
                              ELSE d.status END,
                error_code = CASE WHEN d.crashes + 1 >= p_max_crashes THEN 'worker_crashed' END,
                error_text = CASE WHEN d.crashes + 1 >= p_max_crashes
                    THEN format('The worker stopped %s times while working on this file. Look at its log, then: weighbridge uploads retry %s', d.crashes + 1, d.id) END,
                finished_at = CASE WHEN d.crashes + 1 >= p_max_crashes THEN v_now END
            WHERE d.id = v_dead.subject AND d.status IN ('processing', 'staging_complete', 'promoting')
            RETURNING d.status = 'failed' INTO gave_up;
        END IF;
        IF v_dead.queue = 'outbox' THEN
            UPDATE event_deliveries d
            SET failures = d.failures + 1, last_error = 'the worker stopped while it delivered',
                gave_up_at = CASE WHEN d.failures + 1 > 10 THEN v_now END
            WHERE d.id = v_dead.subject AND d.delivered_at IS NULL
            RETURNING d.gave_up_at IS NOT NULL INTO gave_up;
        END IF;
        queue := v_dead.queue;
        subject := v_dead.subject;
        worker := v_dead.worker;
        opened_at := v_dead.opened_at;
        gave_up := coalesce(gave_up, false);
        RETURN NEXT;
    END LOOP;
    IF FOUND THEN
        PERFORM pg_notify('weighbridge_work', '');
    END IF;
END $$;

-- Intake ----------------------------------------------------------------------------------------------------

CREATE TYPE weighbridge.received AS (upload_id uuid, duplicate boolean);

-- Records a stored file. The same content again gives back the first upload.
CREATE FUNCTION weighbridge.receive_upload(
    p_workspace uuid, p_client uuid, p_platform text, p_source text, p_pipeline text, p_filename text,
    p_file_url text, p_file_kind text, p_sha256 bytea, p_size bigint, p_created_by uuid,
    p_force_partial boolean, p_forced boolean
) RETURNS weighbridge.received
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_id uuid;
BEGIN
    IF p_workspace IS DISTINCT FROM weighbridge.workspace() THEN
        RAISE EXCEPTION 'the transaction acts for another workspace' USING ERRCODE = 'insufficient_privilege';
    END IF;
    LOOP
        INSERT INTO data_uploads (workspace_id, client_id, platform, source, pipeline, filename, file_url, file_kind,
                                  content_sha256, byte_size, created_by, force_partial, forced)
        VALUES (p_workspace, p_client, p_platform, p_source, p_pipeline, p_filename, p_file_url, p_file_kind,
                p_sha256, p_size, p_created_by, p_force_partial, p_forced)
        ON CONFLICT DO NOTHING
        RETURNING id INTO v_id;
        IF v_id IS NOT NULL THEN
            PERFORM pg_notify('weighbridge_work', '');
            PERFORM pg_notify('weighbridge_live', json_build_object(
                'workspace_id', p_workspace, 'upload_id', v_id, 'status', 'pending')::text);
            RETURN (v_id, false);
        END IF;
        SELECT id INTO v_id FROM data_uploads
        WHERE workspace_id = p_workspace AND pipeline = p_pipeline
          AND client_id IS NOT DISTINCT FROM p_client AND platform IS NOT DISTINCT FROM p_platform
          AND content_sha256 = p_sha256 AND status <> 'failed' AND NOT forced;
        IF v_id IS NOT NULL THEN
            RETURN (v_id, true);
        END IF;
        -- It failed between the two statements: now the way is free.
    END LOOP;
END $$;

-- Parsing ---------------------------------------------------------------------------------------------------

CREATE FUNCTION weighbridge.note_rows_read(p_token uuid, p_rows bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE data_uploads SET rows_read = p_rows WHERE id = v_upload;
    UPDATE attempts SET progressed_at = weighbridge.now() WHERE lease_token = p_token;
END $$;

-- How far staging came: the last seq of an entity, in the transaction that wrote it.
CREATE FUNCTION weighbridge.note_staged(p_token uuid, p_entity text, p_seq bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE data_uploads SET staged = staged || jsonb_build_object(p_entity, p_seq) WHERE id = v_upload;
    UPDATE attempts SET progressed_at = weighbridge.now() WHERE lease_token = p_token;
END $$;

CREATE FUNCTION weighbridge.finish_staging(
    p_token uuid, p_bins jsonb, p_columns text[], p_mapping jsonb, p_dates date[], p_digest bytea
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_workspace uuid;
BEGIN
    SELECT workspace_id INTO v_workspace FROM data_uploads WHERE id = v_upload;
    -- Parsed again, after staging was lost in the middle of a promotion: the watermark holds if the same rows stand
    -- in the same order. They do, unless the program or its declaration has changed; then promotion begins anew.
    UPDATE data_uploads
    SET watermark_entity = '', watermark_seq = 0, promoted = '{}', promoted_rows = 0
    WHERE id = v_upload AND staged_digest IS DISTINCT FROM p_digest;
    IF FOUND THEN
        DELETE FROM upload_rejections WHERE upload_id = v_upload AND stage = 'promote';
        DELETE FROM upload_warnings WHERE upload_id = v_upload;
    END IF;
    -- From here until the end no dimension row of the workspace can be deleted: see keep_dimension.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_workspace::text, 1));
    UPDATE data_uploads
    SET status = 'staging_complete', bins = p_bins, columns = p_columns, mapping = p_mapping,
        affected_dates = p_dates, staged_digest = p_digest, failures = 0, staged_at = weighbridge.now(),
        total_rows = (p_bins ->> 'accepted')::bigint + (p_bins ->> 'duplicate')::bigint + (p_bins ->> 'rejected')::bigint,
        failed_rows = (p_bins ->> 'rejected')::bigint
    WHERE id = v_upload;
    UPDATE attempts SET progressed_at = weighbridge.now() WHERE lease_token = p_token;
END $$;

-- Removes what an earlier attempt staged, where staging has to begin anew.
CREATE FUNCTION weighbridge.reset_staging(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_table text;
BEGIN
    FOR v_table IN SELECT tablename FROM pg_tables WHERE schemaname = 'staging' LOOP
        EXECUTE format('DELETE FROM staging.%I WHERE upload_id = $1', v_table) USING v_upload;
    END LOOP;
    DELETE FROM staging_id_resolution WHERE upload_id = v_upload;
    DELETE FROM staging_groups WHERE upload_id = v_upload;
    DELETE FROM upload_rejections WHERE upload_id = v_upload AND stage = 'parse'; -- the others belong to the watermark
    UPDATE data_uploads SET staged = '{}' WHERE id = v_upload;
END $$;

-- Marks the staged rows of an old, finished upload as gone; its caller deletes them in the same transaction.
CREATE FUNCTION weighbridge.expire_staging(p_upload uuid, p_age interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    UPDATE data_uploads SET staged_at = NULL, staged = '{}'
    WHERE id = p_upload AND status IN ('completed', 'partial', 'failed') AND staged_at < weighbridge.now() - p_age;
    RETURN FOUND;
END $$;

-- Ends the parse attempt where another worker is to promote: staged, free to be claimed again.
CREATE FUNCTION weighbridge.hand_over(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    PERFORM pg_notify('weighbridge_work', '');
END $$;

-- Promotion -------------------------------------------------------------------------------------------------

CREATE FUNCTION weighbridge.begin_promotion(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE data_uploads SET status = 'promoting' WHERE id = v_upload AND status IN ('staging_complete', 'promoting');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'upload % is not staged', v_upload USING ERRCODE = 'WB001';
    END IF;
END $$;

-- Staging is gone (an unlogged table after a crash of Postgres, or older than seven days): parse again.
CREATE FUNCTION weighbridge.restage_upload(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'released', 'staging was gone');
    UPDATE data_uploads
    SET status = 'pending', staged = '{}', staged_at = NULL
    WHERE id = v_upload;
    PERFORM pg_notify('weighbridge_work', '');
END $$;

-- Counts and watermark, in the transaction that wrote the rows.
CREATE FUNCTION weighbridge.advance_promotion(
    p_token uuid, p_entity text, p_seq bigint, p_promoted jsonb, p_promoted_rows bigint
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE data_uploads
    SET watermark_entity = p_entity, watermark_seq = p_seq, promoted = p_promoted, promoted_rows = p_promoted_rows,
        failures = 0
    WHERE id = v_upload;
    UPDATE attempts SET progressed_at = weighbridge.now() WHERE lease_token = p_token;
END $$;

-- Events ----------------------------------------------------------------------------------------------------

CREATE TABLE weighbridge.events (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    upload_id uuid NOT NULL,
    type text NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    UNIQUE (upload_id, type) -- emitted once, whatever retries
);
CREATE TABLE weighbridge.event_deliveries (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    event_id uuid NOT NULL REFERENCES weighbridge.events ON DELETE CASCADE,
    workspace_id uuid NOT NULL,
    consumer text NOT NULL,
    run_after timestamptz NOT NULL DEFAULT '-infinity',
    failures int NOT NULL DEFAULT 0,
    last_error text,
    delivered_at timestamptz,
    gave_up_at timestamptz,
    UNIQUE (event_id, consumer)
);
CREATE INDEX event_deliveries_waiting ON weighbridge.event_deliveries (run_after)
    WHERE delivered_at IS NULL AND gave_up_at IS NULL;

-- Ends a promotion: status, row_count and the event, with a delivery per consumer, in one transaction.
CREATE FUNCTION weighbridge.finish_upload(
    p_token uuid, p_status text, p_failed_rows bigint, p_error_code text, p_error text, p_consumers text[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_now timestamptz := weighbridge.now();
    v_row data_uploads;
    v_event uuid;
BEGIN
    PERFORM close_attempt(p_token, 'done', p_error);
    UPDATE data_uploads
    SET status = p_status, row_count = promoted_rows, failed_rows = p_failed_rows, error_code = p_error_code,
        warnings = (SELECT count(*) FROM upload_warnings w WHERE w.upload_id = v_upload),
        error_text = p_error, finished_at = v_now, failures = 0
    WHERE id = v_upload
    RETURNING * INTO v_row;
    IF p_status IN ('completed', 'partial') AND v_row.promoted_rows > 0 AND NOT v_row.event_emitted THEN
        INSERT INTO events (workspace_id, upload_id, type, payload)
        VALUES (v_row.workspace_id, v_row.id, 'IngestionCompleteEvent', jsonb_build_object(
            'upload_id', v_row.id,
            'workspace_id', v_row.workspace_id,
            'client_id', v_row.client_id,
            'platform', v_row.platform,
            'status', v_row.status,
            'metrics', jsonb_build_object(
                'total_rows', v_row.total_rows,
                'promoted_rows', v_row.promoted_rows,
                'failed_rows', v_row.failed_rows
            ) || coalesce((
                -- campaigns_upserted and so on: the entities written, by table
                SELECT jsonb_object_agg(
                    e.value ->> 'table' || '_upserted',
                    (e.value ->> 'inserted')::bigint + (e.value ->> 'updated')::bigint)
                FROM jsonb_each(v_row.promoted) e), '{}'),
            'affected_dates', to_jsonb(v_row.affected_dates),
            'timestamp', v_now))
        ON CONFLICT DO NOTHING
        RETURNING id INTO v_event;
        IF v_event IS NOT NULL THEN
            INSERT INTO event_deliveries (event_id, workspace_id, consumer)
            SELECT v_event, v_row.workspace_id, c FROM unnest(p_consumers) c;
            UPDATE data_uploads SET event_emitted = true WHERE id = v_upload;
            PERFORM pg_notify('weighbridge_work', '');
        END IF;
    END IF;
END $$;

-- Only for consumers that the worker has: another one may have a hook that this one has not.
CREATE FUNCTION weighbridge.claim_deliveries(p_worker text, p_consumers text[], p_lease interval, p_limit int)
    RETURNS TABLE (lease_token uuid, delivery_id uuid, event_id uuid, consumer text, failures int, type text,
                   payload jsonb, workspace_id uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
BEGIN
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT d.* FROM event_deliveries d
        WHERE d.delivered_at IS NULL AND d.gave_up_at IS NULL AND d.run_after <= v_now
          AND d.consumer = ANY (p_consumers)
          AND NOT EXISTS (SELECT FROM attempts a
                          WHERE a.queue = 'outbox' AND a.subject = d.id AND a.closed_at IS NULL)
        ORDER BY d.run_after LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ), opened AS (
        INSERT INTO attempts AS a (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)
        SELECT 'outbox', d.id, d.workspace_id, p_worker, v_now, v_now, v_now + p_lease FROM due d
        ON CONFLICT DO NOTHING
        RETURNING a.lease_token, a.subject
    )
    SELECT o.lease_token, d.id, d.event_id, d.consumer, d.failures, e.type, e.payload, d.workspace_id
    FROM opened o JOIN due d ON d.id = o.subject JOIN events e ON e.id = d.event_id;
END $$;

CREATE FUNCTION weighbridge.finish_delivery(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_delivery uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    UPDATE event_deliveries SET delivered_at = weighbridge.now(), last_error = NULL WHERE id = v_delivery;
END $$;

-- A NULL delay gives up: the row stays, with its last error, for an operator.
CREATE FUNCTION weighbridge.fail_delivery(p_token uuid, p_delay interval, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_delivery uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_error);
    UPDATE event_deliveries
    SET failures = failures + 1, last_error = p_error,
        run_after = weighbridge.now() + coalesce(p_delay, '0'),
        gave_up_at = CASE WHEN p_delay IS NULL THEN weighbridge.now() END
    WHERE id = v_delivery;
END $$;

-- Operators -------------------------------------------------------------------------------------------------

CREATE TABLE weighbridge.audit_log (
    id bigserial PRIMARY KEY,
    workspace_id uuid,
    at timestamptz NOT NULL DEFAULT weighbridge.now(),
    actor text NOT NULL,
    action text NOT NULL,
    subject uuid,
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE UNIQUE INDEX audit_log_event ON weighbridge.audit_log ((detail ->> 'event_id')) WHERE detail ? 'event_id';
CREATE INDEX audit_log_subject ON weighbridge.audit_log (subject);

-- Opens a finished upload for another attempt, from the stored file, with its counts at zero.
CREATE FUNCTION weighbridge.retry_upload(p_upload uuid, p_force_partial boolean, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_before data_uploads;
BEGIN
    SELECT * INTO v_before FROM data_uploads WHERE id = p_upload FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF v_before.status NOT IN ('failed', 'partial') THEN
        RETURN v_before.status;
    END IF;
    PERFORM set_config('weighbridge.verb', 'retry', true);
    UPDATE data_uploads
    SET status = 'pending', run_after = '-infinity', failures = 0, crashes = 0, error_code = NULL, error_text = NULL,
        finished_at = NULL, started_at = NULL, rows_read = 0, staged = '{}', staged_at = NULL, watermark_entity = '',
        watermark_seq = 0, promoted = '{}', promoted_rows = 0, failed_rows = 0, total_rows = 0, warnings = 0,
        bins = NULL, row_count = NULL, affected_dates = '{}', force_partial = force_partial OR p_force_partial
    WHERE id = p_upload;
    PERFORM set_config('weighbridge.verb', '', true);
    DELETE FROM upload_rejections WHERE upload_id = p_upload;
    DELETE FROM upload_warnings WHERE upload_id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_before.workspace_id, p_actor, 'upload.retry', p_upload,
            jsonb_build_object('from', v_before.status, 'error_code', v_before.error_code));
    PERFORM pg_notify('weighbridge_work', '');
    RETURN 'pending';
END $$;

CREATE TABLE weighbridge.api_keys (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    key_hash bytea NOT NULL UNIQUE CHECK (length(key_hash) = 32),
    scopes text[] NOT NULL CHECK (scopes <@ ARRAY['upload', 'read', 'operate', 'admin'] AND cardinality(scopes) > 0),
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz
);

-- Rejections ------------------------------------------------------------------------------------------------

CREATE TABLE public.upload_rejections (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    row_index int NOT NULL,
    line int NOT NULL,
    stage text NOT NULL CHECK (stage IN ('parse', 'promote')),
    column_name text,
    code text NOT NULL,
    message text NOT NULL,
    raw text[],
    more text[],
    PRIMARY KEY (upload_id, row_index, stage)
);
-- Warnings: the row went in, but something about it should be known (S1 §6.1: FK not found → NULL).
CREATE TABLE public.upload_warnings (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    row_index int NOT NULL,
    line int NOT NULL,
    code text NOT NULL,
    message text NOT NULL,
    PRIMARY KEY (upload_id, row_index, code)
);

-- Staging ---------------------------------------------------------------------------------------------------

-- natural key → production id, for the dimensions of an upload; facts take their ids from here.
CREATE UNLOGGED TABLE public.staging_id_resolution (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    entity_type text NOT NULL,
    natural_key_hash bytea NOT NULL,
    production_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (upload_id, entity_type, production_id)
);

-- Which declaration the staging tables were made for; a changed one makes them anew.
CREATE TABLE weighbridge.pipelines (
    name text PRIMARY KEY,
    fingerprint text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now()
);

-- Receipts --------------------------------------------------------------------------------------------------

-- What was last applied to a group of production rows (for ads: a day of a client's platform). Where the rows of a
-- group have the digest of the receipt, writing them again would change nothing: parsing does not stage them and
-- promotion counts them as unchanged, if the receipt still stands then. A receipt is worth something only when complete: one upload applied the whole group and nobody else wrote
-- to it meanwhile (mixed).
CREATE TABLE weighbridge.receipts (
    workspace_id uuid NOT NULL,
    target text NOT NULL, -- table and declaration
    scope text NOT NULL, -- client and platform
    group_key text NOT NULL,
    upload_id uuid NOT NULL,
    digest bytea,
    complete boolean NOT NULL DEFAULT false,
    mixed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (workspace_id, target, scope, group_key)
);
GRANT SELECT, INSERT, UPDATE, DELETE ON weighbridge.receipts TO weighbridge_promote;
GRANT SELECT ON weighbridge.receipts TO weighbridge_parse;

-- The groups of an upload's rows: consecutive in seq, as rows are numbered in key order.
CREATE UNLOGGED TABLE weighbridge.staging_groups (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    group_key text NOT NULL,
    first_seq int NOT NULL,
    last_seq int NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (upload_id, first_seq)
);
GRANT INSERT ON weighbridge.staging_groups TO weighbridge_parse;
GRANT SELECT ON weighbridge.staging_groups TO weighbridge_promote;
GRANT SELECT, DELETE ON weighbridge.staging_groups TO weighbridge_clean;

-- On production tables: whoever writes to them other than promotion makes the receipts worthless.
CREATE FUNCTION weighbridge.void_receipts() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    IF current_setting('role', true) IS DISTINCT FROM 'weighbridge_promote' THEN
        DELETE FROM weighbridge.receipts WHERE target LIKE TG_TABLE_NAME || ':%';
    END IF;
    RETURN NULL;
END $$;

-- Who may do what -------------------------------------------------------------------------------------------

ALTER TABLE public.data_uploads ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.upload_rejections ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.upload_warnings ENABLE ROW LEVEL SECURITY;
-- The sub-select is evaluated once per statement, not once per row.
CREATE POLICY workspace ON public.data_uploads USING (workspace_id = (SELECT weighbridge.workspace()));
CREATE POLICY workspace ON public.upload_rejections USING (workspace_id = (SELECT weighbridge.workspace()));
CREATE POLICY workspace ON public.upload_warnings USING (workspace_id = (SELECT weighbridge.workspace()));

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA weighbridge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.now(), weighbridge.workspace(), weighbridge.natural_key_hash(text[]),
    weighbridge.entity_id(text[]) TO PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.fence(uuid) TO
    weighbridge_parse, weighbridge_promote, weighbridge_announce;

GRANT INSERT, UPDATE ON public.data_uploads TO weighbridge_intake;
GRANT EXECUTE ON FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean) TO weighbridge_intake;

GRANT SELECT ON public.data_uploads TO weighbridge_parse;
GRANT SELECT, INSERT ON public.staging_id_resolution TO weighbridge_parse;
GRANT INSERT ON public.upload_rejections, public.upload_warnings TO weighbridge_parse;
GRANT EXECUTE ON FUNCTION weighbridge.reset_staging(uuid), weighbridge.note_rows_read(uuid, bigint), weighbridge.note_staged(uuid, text, bigint),
    weighbridge.finish_staging(uuid, jsonb, text[], jsonb, date[], bytea) TO weighbridge_parse;

GRANT SELECT, INSERT, UPDATE ON public.data_uploads TO weighbridge_promote;
GRANT SELECT ON public.staging_id_resolution TO weighbridge_promote;
GRANT SELECT, INSERT, UPDATE ON public.upload_rejections, public.upload_warnings TO weighbridge_promote;
GRANT EXECUTE ON FUNCTION weighbridge.begin_promotion(uuid),
    weighbridge.advance_promotion(uuid, text, bigint, jsonb, bigint),
    weighbridge.finish_upload(uuid, text, bigint, text, text, text[]) TO weighbridge_promote;

GRANT SELECT, DELETE ON public.staging_id_resolution TO weighbridge_clean;
GRANT EXECUTE ON FUNCTION weighbridge.expire_staging(uuid, interval) TO weighbridge_clean;

GRANT SELECT, INSERT ON weighbridge.audit_log TO weighbridge_announce;
GRANT USAGE ON SEQUENCE weighbridge.audit_log_id_seq TO weighbridge_announce;
GRANT EXECUTE ON FUNCTION weighbridge.finish_delivery(uuid) TO weighbridge_announce;

GRANT SELECT ON public.data_uploads, public.upload_rejections, public.upload_warnings TO weighbridge_tenant;
