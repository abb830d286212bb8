-- Storage (S5): an upload whose bytes the store could not take waits on the machine that received it, and is replayed.
--
-- data_uploads.storage_status  where its bytes are
-- upload_queue                 the files that wait: which bytes, whereto, when next
--
-- The life of a file that waits. defer_upload notes it, with its upload, which no worker can claim yet. claim_replays
-- opens an attempt in the queue 'storage', for the machine that has the file; finish_replay gives the upload its file_url
-- and sets it free; fail_replay puts it off or, the last time, fails the upload and leaves file and row to an operator.
-- Whoever dies is recovered like everybody else.

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

-- The store has just taken a file: those that wait need not wait for their time. Not one that was tried within the last
-- minute: where it alone cannot be stored, that must not use up its retries.
CREATE FUNCTION weighbridge.hurry_replays() RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        UPDATE upload_queue q SET next_retry_at = weighbridge.now()
        FROM (SELECT w.id FROM upload_queue w
              WHERE w.retry_count < w.max_retries AND w.next_retry_at > weighbridge.now()
                AND w.tried_at < weighbridge.now() - INTERVAL '1 minute'
              FOR UPDATE SKIP LOCKED) waiting
        WHERE q.id = waiting.id
    $$;

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
            IF NOT v_deferred THEN
                PERFORM hurry_replays();
            END IF;
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

CREATE FUNCTION weighbridge.claim_replays(p_worker text, p_spool uuid, p_lease interval, p_limit int)
    RETURNS TABLE (lease_token uuid, queue_id uuid, workspace_id uuid, upload_id uuid, user_id uuid, object_path text,
                   content_hash text, byte_size bigint, retry_count int, max_retries int)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
BEGIN
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT q.* FROM upload_queue q
        WHERE q.spool_id = p_spool AND q.retry_count < q.max_retries AND q.next_retry_at <= v_now
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
           d.byte_size, d.retry_count, d.max_retries
    FROM opened o JOIN due d ON d.id = o.subject;
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
    UPDATE data_uploads d
    SET file_url = p_file_url, storage_status = 'stored', run_after = '-infinity', error_code = NULL, error_text = NULL
    WHERE d.id = v_upload AND d.status = 'pending' AND d.storage_status = 'pending_retry';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM hurry_replays();
    PERFORM pg_notify('weighbridge_work', '');
    PERFORM pg_notify('weighbridge_live', json_build_object(
        'workspace_id', d.workspace_id, 'upload_id', d.id, 'status', d.status)::text) FROM data_uploads d WHERE d.id = v_upload;
    RETURN true;
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

-- After the delay it is tried again. A NULL delay was the last time: file and row are left to an operator.
CREATE FUNCTION weighbridge.fail_replay(p_token uuid, p_delay interval, p_error text, p_consumers text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_id uuid := fence(p_token);
    v_queue upload_queue;
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_error);
    UPDATE upload_queue q
    SET retry_count = CASE WHEN p_delay IS NULL THEN q.max_retries ELSE q.retry_count + 1 END,
        next_retry_at = weighbridge.now() + coalesce(p_delay, '0'), error_message = p_error, tried_at = weighbridge.now()
    WHERE q.id = v_id
    RETURNING * INTO v_queue;
    IF FOUND AND p_delay IS NULL THEN
        PERFORM fail_unstored(v_queue.payload_submission_id, 'STORAGE_RETRY_FAILED', format(
            'The file could not be stored and was tried again %s times. It is kept: an operator can try it once more, with weighbridge storage retry %s.',
            v_queue.max_retries, v_id));
        PERFORM emit(v_queue.workspace_id, v_queue.payload_submission_id, 'storage.upload.retry_failed', jsonb_build_object(
            'upload_id', v_queue.payload_submission_id, 'workspace_id', v_queue.workspace_id, 'queue_id', v_id,
            'bucket', v_queue.bucket, 'object_path', v_queue.object_path, 'byte_size', v_queue.byte_size,
            'retry_count', v_queue.retry_count, 'error_message', p_error), p_consumers);
    END IF;
END $$;

-- The file that waited is gone, or is not the one that came: there is nothing to try again with. Without a token only
-- where nobody has it in hand.
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
        'The file could not be stored when it came, and the copy that waited for the store is gone or damaged. Upload it again.');
    RETURN true;
END $$;

-- Operators -------------------------------------------------------------------------------------------------

-- Now, whatever its time: one that waits, or one that was given up, with its upload. What happened: 'queued', 'gone' (no
-- such row) or 'superseded' (the content came again since, and that one counts).
CREATE FUNCTION weighbridge.retry_replay(p_queue uuid, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_queue upload_queue;
    v_status text;
BEGIN
    SELECT * INTO v_queue FROM upload_queue q WHERE q.id = p_queue FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
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

-- More files waiting than the threshold, for longer than the patience: one that moves on is none to be woken for (S5).
CREATE FUNCTION weighbridge.watch_storage(p_threshold int, p_patience interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_depth bigint;
    v_old bigint;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE q.created_at < weighbridge.now() - p_patience) INTO v_depth, v_old
    FROM upload_queue q WHERE q.retry_count < q.max_retries;
    IF v_old > p_threshold THEN
        PERFORM raise_alert('storage_queue', '', 'WARNING', format('%s files wait for the file store', v_depth));
    ELSIF v_depth <= p_threshold THEN
        PERFORM withdraw_alert('storage_queue', '', format('%s files wait for the file store', v_depth));
    END IF;
    RETURN v_depth;
END $$;

-- Who may do what -------------------------------------------------------------------------------------------

REVOKE EXECUTE ON FUNCTION weighbridge.emit(uuid, uuid, text, jsonb, text[]), weighbridge.hurry_replays(),
    weighbridge.defer_upload(uuid, uuid, uuid, text, text, text, uuid, int, interval, text, text[]),
    weighbridge.claim_replays(text, uuid, interval, int), weighbridge.finish_replay(uuid, text),
    weighbridge.fail_unstored(uuid, text, text), weighbridge.give_up_unstored(uuid, text, text), weighbridge.fail_replay(uuid, interval, text, text[]),
    weighbridge.lose_replay(uuid, uuid), weighbridge.retry_replay(uuid, text), weighbridge.drop_replay(uuid, text),
    weighbridge.watch_storage(int, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    weighbridge.defer_upload(uuid, uuid, uuid, text, text, text, uuid, int, interval, text, text[]),
    weighbridge.finish_replay(uuid, text) TO weighbridge_intake;
