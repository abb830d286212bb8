-- Storage (S5): an upload whose bytes the store could not take waits on the machine that received it, and is replayed.
--
-- data_uploads.storage_status  where its bytes are
-- upload_queue                 the files that wait: which bytes, whereto, when next
--
-- The life of a file that waits. defer_upload notes it, with its upload, which no worker can claim yet. claim_replays
-- opens an attempt in the queue 'storage', for the machine that has the file; finish_replay gives the upload its file_url
-- and sets it free; fail_replay puts it off or, the last time, fails the upload and leaves file and row to an operator.
-- Whoever dies is recovered like everybody else.

-- Which database this is. Files that wait lie in a folder of this name: two databases on one machine must not take each
-- other's for orphans.
CREATE TABLE weighbridge.identity (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO weighbridge.identity DEFAULT VALUES;

-- Where the bytes are ---------------------------------------------------------------------------------------

ALTER TABLE public.data_uploads ADD COLUMN storage_status text NOT NULL DEFAULT 'stored'
    CHECK (storage_status IN ('stored', 'pending_retry', 'retry_failed', 'removed'));
-- What is not stored cannot be claimed: every claim asks for run_after.
ALTER TABLE public.data_uploads ADD CONSTRAINT claimed_when_stored
    CHECK (storage_status = 'stored' OR status IN ('completed', 'partial', 'failed') OR run_after = 'infinity');

CREATE TABLE public.upload_queue (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    temp_file_path text NOT NULL,
    bucket text NOT NULL,
    object_path text NOT NULL,
    content_hash text NOT NULL CHECK (content_hash ~ '^[0-9a-f]{64}$'),
    byte_size bigint NOT NULL CHECK (byte_size > 0),
    retry_count int NOT NULL DEFAULT 0,
    max_retries int NOT NULL DEFAULT 5,
    next_retry_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    error_message text,
    metadata jsonb NOT NULL DEFAULT '{}',
    user_id uuid NOT NULL,
    payload_submission_id uuid UNIQUE REFERENCES public.data_uploads ON DELETE SET NULL, -- its upload
    -- ours
    workspace_id uuid NOT NULL,
    spool_id uuid NOT NULL, -- which folder temp_file_path is in: only there it can be read
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    tried_at timestamptz
);
COMMENT ON TABLE public.upload_queue IS 'Files that the store could not take. retry_count = max_retries: an operator''s.';
CREATE INDEX idx_upload_queue_next_retry ON public.upload_queue (spool_id, next_retry_at)
    WHERE retry_count < max_retries;
CREATE INDEX idx_upload_queue_user ON public.upload_queue (workspace_id, user_id);
ALTER TABLE public.upload_queue ENABLE ROW LEVEL SECURITY; -- and no policy: the service alone, through these functions

-- Events that are about storage, for the consumers that hear of everything.
CREATE FUNCTION weighbridge.emit(p_workspace uuid, p_upload uuid, p_type text, p_payload jsonb, p_consumers text[])
    RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_event uuid;
BEGIN
    INSERT INTO events (workspace_id, upload_id, type, payload) VALUES (p_workspace, p_upload, p_type, p_payload)
    ON CONFLICT DO NOTHING
    RETURNING id INTO v_event;
    IF v_event IS NOT NULL THEN
        INSERT INTO event_deliveries (event_id, workspace_id, consumer)
        SELECT v_event, p_workspace, c FROM unnest(p_consumers) c;
        PERFORM pg_notify('weighbridge_work', '');
    END IF;
END $$;

-- Intake ----------------------------------------------------------------------------------------------------

-- As before; without a file_url the upload waits for its bytes to be stored.
CREATE OR REPLACE FUNCTION weighbridge.receive_upload(
    p_workspace uuid, p_client uuid, p_platform text, p_project bigint, p_source text, p_pipeline text, p_filename text,
    p_file_url text, p_file_kind text, p_sha256 bytea, p_size bigint, p_created_by uuid,
    p_force_partial boolean, p_forced boolean, p_batch text, p_traceparent text
) RETURNS weighbridge.received
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp SET lock_timeout = '5s'
    AS $$
DECLARE
    v_id uuid;
    v_known weighbridge.received;
    v_deferred boolean := p_file_url IS NULL;
BEGIN
    IF p_workspace IS DISTINCT FROM weighbridge.workspace() THEN
        RAISE EXCEPTION 'the transaction acts for another workspace' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF p_project IS NOT NULL THEN
        PERFORM make_project(p_project, NULL); -- its first file opens it
    END IF;
    LOOP
        INSERT INTO data_uploads (workspace_id, client_id, platform, project_id, source, pipeline, filename, file_url,
                                  file_kind, content_sha256, byte_size, created_by, force_partial, forced,
                                  source_batch_id, traceparent, storage_status, run_after, error_code, error_text)
        VALUES (p_workspace, p_client, p_platform, p_project, p_source, p_pipeline, p_filename, p_file_url,
                p_file_kind, p_sha256, p_size, p_created_by, p_force_partial, p_forced, p_batch, p_traceparent,
                CASE WHEN v_deferred THEN 'pending_retry' ELSE 'stored' END,
                CASE WHEN v_deferred THEN timestamptz 'infinity' ELSE '-infinity' END,
                CASE WHEN v_deferred THEN 'STORAGE_PENDING_RETRY' END,
                CASE WHEN v_deferred THEN 'Upload deferred and will retry automatically' END)
        ON CONFLICT DO NOTHING
        RETURNING id INTO v_id;
        IF v_id IS NOT NULL THEN
            PERFORM pg_notify('weighbridge_work', '');
            PERFORM pg_notify('weighbridge_live', json_build_object(
                'workspace_id', p_workspace, 'upload_id', v_id, 'status', 'pending')::text);
            RETURN (v_id, false, NULL::text);
        END IF;
        SELECT * INTO v_known
        FROM known_upload(p_workspace, p_pipeline, p_client, p_platform, p_project, p_sha256, p_batch, p_forced);
        IF FOUND THEN
            RETURN v_known;
        END IF;
        -- It failed between the two statements: now the way is free.
    END LOOP;
END $$;

-- The row of a file that waits, in the transaction that has recorded its upload. The metadata is what the upload says of
-- the request; names of files and people stay out of it.
CREATE FUNCTION weighbridge.defer_upload(
    p_upload uuid, p_queue uuid, p_spool uuid, p_path text, p_bucket text, p_object text, p_user uuid, p_max_retries int,
    p_delay interval, p_error text, p_consumers text[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload data_uploads;
BEGIN
    SELECT * INTO STRICT v_upload FROM data_uploads d
    WHERE d.id = p_upload AND d.workspace_id = weighbridge.workspace() AND d.storage_status = 'pending_retry';
    INSERT INTO upload_queue (id, temp_file_path, bucket, object_path, content_hash, byte_size, max_retries,
                              next_retry_at, error_message, metadata, user_id, payload_submission_id, workspace_id, spool_id,
                              tried_at)
    VALUES (p_queue, p_path, p_bucket, p_object, encode(v_upload.content_sha256, 'hex'), v_upload.byte_size, p_max_retries,
            weighbridge.now() + p_delay, p_error,
            jsonb_strip_nulls(jsonb_build_object(
                'pipeline', v_upload.pipeline, 'platform', v_upload.platform, 'client_id', v_upload.client_id,
                'project_id', v_upload.project_id, 'source', v_upload.source, 'file_kind', v_upload.file_kind,
                'source_batch_id', v_upload.source_batch_id)),
            p_user, p_upload, v_upload.workspace_id, p_spool, weighbridge.now());
    PERFORM emit(v_upload.workspace_id, p_upload, 'storage.upload.enqueued', jsonb_build_object(
        'upload_id', p_upload, 'workspace_id', v_upload.workspace_id, 'queue_id', p_queue, 'bucket', p_bucket,
        'object_path', p_object, 'byte_size', v_upload.byte_size), p_consumers);
END $$;

-- Replay ----------------------------------------------------------------------------------------------------

-- Files whose time has come. p_early: also others, but for those tried within the last minute; what comes of such a try
-- does not count, if it is not stored.
CREATE FUNCTION weighbridge.claim_replays(p_worker text, p_spool uuid, p_lease interval, p_limit int, p_early boolean)
    RETURNS TABLE (lease_token uuid, queue_id uuid, workspace_id uuid, upload_id uuid, user_id uuid, object_path text,
                   content_hash text, byte_size bigint, retry_count int, max_retries int, early boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
BEGIN
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT q.* FROM upload_queue q
        WHERE q.spool_id = p_spool AND q.retry_count < q.max_retries
          AND (q.next_retry_at <= v_now OR p_early AND q.tried_at < v_now - INTERVAL '1 minute')
          AND NOT EXISTS (SELECT FROM attempts a
                          WHERE a.queue = 'storage' AND a.subject = q.id AND a.closed_at IS NULL)
        ORDER BY q.next_retry_at, q.id LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ), opened AS (
        INSERT INTO attempts AS a (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)
        SELECT 'storage', d.id, d.workspace_id, p_worker, v_now, v_now, v_now + p_lease FROM due d
        ON CONFLICT DO NOTHING
        RETURNING a.lease_token, a.subject
    )
    SELECT o.lease_token, d.id, d.workspace_id, d.payload_submission_id, d.user_id, d.object_path, d.content_hash,
           d.byte_size, d.retry_count, d.max_retries, d.next_retry_at > v_now
    FROM opened o JOIN due d ON d.id = o.subject;
END $$;

-- An upload whose bytes are stored after all is on its way like any other.
CREATE FUNCTION weighbridge.set_stored(p_upload uuid, p_file_url text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_workspace uuid;
BEGIN
    UPDATE data_uploads d
    SET file_url = p_file_url, storage_status = 'stored', run_after = '-infinity', error_code = NULL, error_text = NULL
    WHERE d.id = p_upload AND d.status = 'pending' AND d.storage_status = 'pending_retry'
    RETURNING d.workspace_id INTO v_workspace;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify('weighbridge_work', '');
    PERFORM pg_notify('weighbridge_live', json_build_object(
        'workspace_id', v_workspace, 'upload_id', p_upload, 'status', 'pending')::text);
    RETURN true;
END $$;

-- The object is there and has been verified: the upload is as if it had been stored at once. False: an operator has
-- dropped it meanwhile.
CREATE FUNCTION weighbridge.finish_replay(p_token uuid, p_file_url text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_queue uuid := fence(p_token);
    v_upload uuid;
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    DELETE FROM upload_queue q WHERE q.id = v_queue RETURNING q.payload_submission_id INTO v_upload;
    RETURN set_stored(v_upload, p_file_url);
END $$;

-- Fails an upload that waits for its bytes.
CREATE FUNCTION weighbridge.fail_unstored(p_upload uuid, p_code text, p_text text) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        UPDATE data_uploads d
        SET status = 'failed', storage_status = 'retry_failed', error_code = p_code, error_text = p_text,
            finished_at = weighbridge.now()
        WHERE d.id = p_upload AND d.status = 'pending' AND d.storage_status = 'pending_retry'
    $$;

-- The same for good, also of one that had failed with the word that its file is kept. Nothing of its batch is here or
-- ever will be: the name is free for whoever sends it again.
CREATE FUNCTION weighbridge.give_up_unstored(p_upload uuid, p_code text, p_text text) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        SELECT fail_unstored(p_upload, p_code, p_text);
        UPDATE data_uploads d SET error_code = p_code, error_text = p_text, source_batch_id = NULL
        WHERE d.id = p_upload AND d.storage_status = 'retry_failed'
    $$;

-- File and row are left to an operator.
CREATE FUNCTION weighbridge.exhaust_replay(p_queue public.upload_queue, p_error text, p_consumers text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    UPDATE upload_queue q SET retry_count = q.max_retries WHERE q.id = p_queue.id;
    PERFORM fail_unstored(p_queue.payload_submission_id, 'STORAGE_RETRY_FAILED', format(
        'The file could not be stored and was tried again %s times. It is kept: an operator can try it once more, with weighbridge storage retry %s.',
        p_queue.max_retries, p_queue.id));
    PERFORM emit(p_queue.workspace_id, p_queue.payload_submission_id, 'storage.upload.retry_failed', jsonb_build_object(
        'upload_id', p_queue.payload_submission_id, 'workspace_id', p_queue.workspace_id, 'queue_id', p_queue.id,
        'bucket', p_queue.bucket, 'object_path', p_queue.object_path, 'byte_size', p_queue.byte_size,
        'retry_count', p_queue.max_retries, 'error_message', p_error), p_consumers);
END $$;

-- After the delay it is tried again; a NULL delay was the last time. One that came early does not count: its time stays.
CREATE FUNCTION weighbridge.fail_replay(
    p_token uuid, p_delay interval, p_error text, p_counts boolean, p_consumers text[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_id uuid := fence(p_token);
    v_queue upload_queue;
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_error);
    UPDATE upload_queue q
    SET retry_count = q.retry_count + p_counts::int,
        next_retry_at = CASE WHEN p_counts THEN weighbridge.now() + coalesce(p_delay, '0') ELSE q.next_retry_at END,
        error_message = p_error, tried_at = weighbridge.now()
    WHERE q.id = v_id
    RETURNING * INTO v_queue;
    IF FOUND AND p_counts AND p_delay IS NULL THEN
        PERFORM exhaust_replay(v_queue, p_error, p_consumers);
    END IF;
END $$;

-- The file that waited is gone: there is nothing to try again with. Without a token only where nobody has it in hand.
CREATE FUNCTION weighbridge.lose_replay(p_queue uuid, p_token uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid;
BEGIN
    IF p_token IS NOT NULL THEN
        PERFORM close_attempt(p_token, 'failed', 'the file is gone');
    END IF;
    DELETE FROM upload_queue q
    WHERE q.id = p_queue
      AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'storage' AND a.subject = q.id AND a.closed_at IS NULL)
    RETURNING q.payload_submission_id INTO v_upload;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM give_up_unstored(v_upload, 'STORAGE_FILE_LOST',
        'The file could not be stored when it came, and the copy that waited for the store is gone. Upload it again.');
    RETURN true;
END $$;

-- The same content came again, and the store took it: what waited for it is stored. False: it waits no more.
CREATE FUNCTION weighbridge.store_waiting(p_upload uuid, p_file_url text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    DELETE FROM upload_queue q WHERE q.payload_submission_id = p_upload AND q.workspace_id = weighbridge.workspace();
    RETURN FOUND AND set_stored(p_upload, p_file_url);
END $$;

-- Operators -------------------------------------------------------------------------------------------------

-- Now, whatever its time: one that waits, or one that was given up, with its upload. What happened: 'queued', 'gone' (no
-- such row) or 'superseded' (the content came again since, and that one counts).
CREATE FUNCTION weighbridge.retry_replay(p_queue uuid, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp SET lock_timeout = '5s'
    AS $$
DECLARE
    v_queue upload_queue;
    v_status text;
BEGIN
    SELECT * INTO v_queue FROM upload_queue q WHERE q.id = p_queue FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    -- A job that is opened again is one that comes: its project must not be edited meanwhile.
    PERFORM FROM projects p JOIN data_uploads d ON d.workspace_id = p.workspace_id AND d.project_id = p.id
    WHERE d.id = v_queue.payload_submission_id FOR KEY SHARE OF p;
    SELECT d.status INTO v_status FROM data_uploads d WHERE d.id = v_queue.payload_submission_id FOR UPDATE;
    IF v_status = 'failed' THEN
        PERFORM set_config('weighbridge.verb', 'retry', true);
        BEGIN
            UPDATE data_uploads
            SET status = 'pending', storage_status = 'pending_retry', run_after = 'infinity', finished_at = NULL,
                error_code = 'STORAGE_PENDING_RETRY', error_text = 'Upload deferred and will retry automatically'
            WHERE id = v_queue.payload_submission_id;
        EXCEPTION WHEN unique_violation THEN
            RETURN 'superseded';
        END;
        PERFORM set_config('weighbridge.verb', '', true);
        UPDATE upload_queue SET retry_count = 0 WHERE id = p_queue;
    END IF;
    UPDATE upload_queue SET next_retry_at = weighbridge.now() WHERE id = p_queue;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_queue.workspace_id, p_actor, 'storage.retry', v_queue.payload_submission_id,
            jsonb_build_object('queue_id', p_queue));
    PERFORM pg_notify('weighbridge_work', '');
    RETURN 'queued';
END $$;

-- Gives a file up: its row goes, its upload fails, its bytes go with the next sweep of the machine that has them.
CREATE FUNCTION weighbridge.drop_replay(p_queue uuid, p_actor text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_queue upload_queue;
BEGIN
    DELETE FROM upload_queue q WHERE q.id = p_queue RETURNING * INTO v_queue;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM give_up_unstored(v_queue.payload_submission_id, 'STORAGE_DROPPED',
        'The file could not be stored, and an operator gave it up. Upload it again.');
    PERFORM dismiss_upload(v_queue.payload_submission_id, p_actor);
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_queue.workspace_id, p_actor, 'storage.drop', v_queue.payload_submission_id,
            jsonb_build_object('queue_id', p_queue, 'byte_size', v_queue.byte_size, 'metadata', v_queue.metadata));
    RETURN true;
END $$;

-- What an operator drops needs no alert.
DROP TRIGGER alert_on_status ON public.data_uploads;
CREATE TRIGGER alert_on_status AFTER UPDATE OF status ON public.data_uploads
    FOR EACH ROW WHEN (NEW.status IN ('completed', 'partial', 'failed') AND OLD.status <> NEW.status
                       AND NEW.error_code IS DISTINCT FROM 'STORAGE_DROPPED')
    EXECUTE FUNCTION weighbridge.alert_on_status();

-- As before; of an upload whose bytes are not stored there is nothing to read: the answer says so.
CREATE OR REPLACE FUNCTION weighbridge.retry_upload(p_upload uuid, p_force_partial boolean, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp SET lock_timeout = '5s'
    AS $$
DECLARE
    v_before data_uploads;
BEGIN
    PERFORM FROM projects p JOIN data_uploads d ON d.workspace_id = p.workspace_id AND d.project_id = p.id
    WHERE d.id = p_upload FOR KEY SHARE OF p;
    SELECT * INTO v_before FROM data_uploads WHERE id = p_upload FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF v_before.status NOT IN ('failed', 'partial') THEN
        RETURN v_before.status;
    END IF;
    IF v_before.storage_status <> 'stored' THEN
        RETURN v_before.storage_status;
    END IF;
    PERFORM set_config('weighbridge.verb', 'retry', true);
    UPDATE data_uploads
    SET status = 'pending', run_after = '-infinity', failures = 0, crashes = 0, error_code = NULL, error_text = NULL,
        finished_at = NULL, started_at = NULL, rows_read = 0, staged = '{}', watermark_entity = '',
        watermark_seq = 0, promoted = '{}', promoted_rows = 0, failed_rows = 0, total_rows = 0, warnings = 0,
        staged_at = CASE WHEN staged <> '{}' THEN coalesce(staged_at, finished_at) ELSE staged_at END,
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

-- More files waiting than the threshold, for longer than the patience (S5); or some that nobody tries any more, long after
-- their time: the machine that has them is gone.
CREATE FUNCTION weighbridge.watch_storage(p_threshold int, p_patience interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_now timestamptz := weighbridge.now();
    v_depth bigint;
    v_old bigint;
    v_left bigint;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE q.created_at < v_now - p_patience),
           count(*) FILTER (WHERE q.next_retry_at < v_now - INTERVAL '1 hour')
    INTO v_depth, v_old, v_left
    FROM upload_queue q WHERE q.retry_count < q.max_retries;
    IF v_old > p_threshold THEN
        PERFORM raise_alert('storage_queue', '', 'WARNING', format('%s files wait for the file store', v_depth));
    ELSIF v_depth <= p_threshold THEN
        PERFORM withdraw_alert('storage_queue', '', format('%s files wait for the file store', v_depth));
    END IF;
    IF v_left > 0 THEN
        PERFORM raise_alert('storage_left', '', 'ERROR',
            format('%s files wait for the file store on a machine that does not try any more', v_left));
    ELSE
        PERFORM withdraw_alert('storage_left', '', 'No file waits on a machine that does not try any more');
    END IF;
    RETURN v_depth;
END $$;

-- As before; a replay that died counts as one that failed: a file that takes its workers down does not go round for ever.
CREATE OR REPLACE FUNCTION weighbridge.recover(p_max_crashes int)
    RETURNS TABLE (queue text, subject uuid, worker text, opened_at timestamptz, hours double precision, batch text,
                   gave_up boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_dead record;
    v_queue upload_queue;
    v_any boolean := false;
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
        queue := v_dead.queue;
        subject := v_dead.subject;
        worker := v_dead.worker;
        opened_at := v_dead.opened_at;
        hours := EXTRACT(EPOCH FROM v_now - v_dead.opened_at) / 3600;
        batch := NULL;
        gave_up := false;
        UPDATE attempts a SET closed_at = v_now, outcome = 'expired' WHERE a.lease_token = v_dead.lease_token;
        DELETE FROM unbroken u WHERE u.lease_token = v_dead.lease_token;
        IF v_dead.queue = 'uploads' THEN
            SELECT batch_name(d) INTO batch FROM data_uploads d WHERE d.id = v_dead.subject;
            gave_up := rescue(v_dead.subject, batch, v_dead.lease_token::text, hours, p_max_crashes);
        END IF;
        IF v_dead.queue = 'outbox' THEN
            UPDATE event_deliveries d
            SET failures = d.failures + 1, last_error = 'the worker stopped while it delivered',
                gave_up_at = CASE WHEN d.failures + 1 > 10 THEN v_now END
            WHERE d.id = v_dead.subject AND d.delivered_at IS NULL
            RETURNING d.gave_up_at IS NOT NULL INTO gave_up;
        END IF;
        IF v_dead.queue = 'storage' THEN
            UPDATE upload_queue q
            SET retry_count = q.retry_count + 1, tried_at = v_now, error_message = 'The process stopped while it stored the file.'
            WHERE q.id = v_dead.subject AND q.retry_count < q.max_retries
            RETURNING * INTO v_queue;
            gave_up := FOUND AND v_queue.retry_count >= v_queue.max_retries;
            IF gave_up THEN
                PERFORM exhaust_replay(v_queue, v_queue.error_message, ARRAY['audit_log', 'notifier']);
            END IF;
        END IF;
        gave_up := coalesce(gave_up, false);
        v_any := true;
        RETURN NEXT;
    END LOOP;

    FOR v_dead IN
        SELECT o.* FROM orphans o JOIN data_uploads d ON d.id = o.id
        WHERE d.status IN ('processing', 'promoting')
        FOR UPDATE OF d SKIP LOCKED
    LOOP
        -- Another may have taken it between the look and the lock: its attempt is seen now.
        CONTINUE WHEN EXISTS (SELECT FROM attempts a
                              WHERE a.queue = 'uploads' AND a.subject = v_dead.id AND a.closed_at IS NULL);
        queue := 'uploads';
        subject := v_dead.id;
        worker := 'unknown';
        opened_at := v_dead.started_at;
        hours := v_dead.hours_stale;
        batch := v_dead.source_batch_id;
        gave_up := rescue(v_dead.id, batch, v_now::text, hours, p_max_crashes);
        v_any := true;
        RETURN NEXT;
    END LOOP;
    IF v_any THEN
        PERFORM pg_notify('weighbridge_work', '');
    END IF;
END $$;

-- Who may do what -------------------------------------------------------------------------------------------

REVOKE EXECUTE ON FUNCTION weighbridge.emit(uuid, uuid, text, jsonb, text[]),
    weighbridge.defer_upload(uuid, uuid, uuid, text, text, text, uuid, int, interval, text, text[]),
    weighbridge.claim_replays(text, uuid, interval, int, boolean), weighbridge.set_stored(uuid, text),
    weighbridge.finish_replay(uuid, text), weighbridge.store_waiting(uuid, text),
    weighbridge.fail_unstored(uuid, text, text), weighbridge.give_up_unstored(uuid, text, text),
    weighbridge.exhaust_replay(public.upload_queue, text, text[]),
    weighbridge.fail_replay(uuid, interval, text, boolean, text[]), weighbridge.lose_replay(uuid, uuid),
    weighbridge.retry_replay(uuid, text), weighbridge.drop_replay(uuid, text),
    weighbridge.watch_storage(int, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    weighbridge.defer_upload(uuid, uuid, uuid, text, text, text, uuid, int, interval, text, text[]),
    weighbridge.finish_replay(uuid, text), weighbridge.store_waiting(uuid, text) TO weighbridge_intake;
