-- Storage: waiting files and their replay, usage and quotas, retention of blobs.
--
-- Tables
--   data_uploads.storage_status  where the file of an upload is
--   upload_queue                 waiting files: which bytes, to which object, next retry
--   storage_usage                counters, one row per workspace and user; only functions here change them
--   counted_blobs                the blobs that those counters are the sum of, each counted once
--   uncounted_blobs              blobs that could not be counted with their uploads; workers count them again
--   storage_limits               limits of one workspace or user, where they differ from the settings
--   storage_reservations         bytes reserved for files that are being received
--
-- The life of a waiting file. Where the store does not accept a file, it stays on the machine that received it.
-- receive_upload without a file_url records the upload, which no worker can claim yet; defer_upload adds the queue
-- row. claim_replays opens an attempt (queue 'storage') for the machine that has the file; finish_replay gives the
-- upload its file_url and lets workers claim it; fail_replay postpones it or, the last time, fails the upload and
-- leaves file and row to an operator (retry_replay, drop_replay). recover() treats an expired attempt as a failed
-- one.
--
-- The life of a file's bytes in the quota. reserve_storage reserves them or refuses the file; count_blob, in the
-- transaction that records the upload, turns the reservation into usage. A reader always sees exactly one of the
-- two. If count_blob fails, note_uncounted records that instead, and count_uncounted repeats it. retire_blob and note_blob_removed subtract them when the retention period is over.
--
-- Calls of a higher package. A waiting file changes the status of its upload, so set_stored calls notify_live and
-- drop_replay calls dismiss_upload (both in uploads). docs/decisions.md has the reason.
--
-- Lock order: attempts, upload_queue, projects, uncounted_blobs, data_uploads, then a workspace's counting (4),
-- counted_blobs, storage_usage.
--   advisory lock 3   one reservation of a workspace at a time: each sees the reservation before it
--   advisory lock 4   shared while counting in a workspace; exclusive for a recount, which must see no half-done counting

-- Defer ------------------------------------------------------------------------------------------------------

-- The queue row of a waiting file, in the transaction that has recorded its upload. The metadata describes the request
-- without names of files and people.
CREATE OR REPLACE FUNCTION weighbridge.defer_upload(
    p_upload uuid, p_queue uuid, p_spool uuid, p_path text, p_bucket text, p_object text, p_user uuid, p_max_retries int,
    p_delay interval, p_error text, p_consumers text[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload public.data_uploads;
BEGIN
    SELECT * INTO STRICT v_upload FROM public.data_uploads d
    WHERE d.id = p_upload AND d.workspace_id = weighbridge.workspace() AND d.storage_status = 'pending_retry';
    INSERT INTO public.upload_queue (id, temp_file_path, bucket, object_path, content_hash, byte_size, max_retries,
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
REVOKE ALL ON FUNCTION weighbridge.defer_upload(uuid, uuid, uuid, text, text, text, uuid, int, interval, text, text[]) FROM
    PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.defer_upload(uuid, uuid, uuid, text, text, text, uuid, int, interval, text, text[]) TO
    weighbridge_intake;

-- Replay -----------------------------------------------------------------------------------------------------

-- Claims files that are due. p_early_after: also others whose last try is longer ago than this; a failure of such an early
-- try does not count. The workspaces take turns: one file of each, those with the fewest under way first, until p_limit are
-- claimed.
CREATE OR REPLACE FUNCTION weighbridge.claim_replays(
    p_worker text, p_spool uuid, p_lease interval, p_limit int, p_early_after interval
)
    RETURNS TABLE (lease_token uuid, queue_id uuid, workspace_id uuid, upload_id uuid, user_id uuid, object_path text,
                   content_hash text, byte_size bigint, retry_count int, max_retries int, early boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
BEGIN
    RETURN QUERY
    WITH RECURSIVE waiting (workspace_id) AS ( -- one probe per workspace, as in claim_waiting_upload
        (SELECT q.workspace_id FROM public.upload_queue q
         WHERE q.spool_id = p_spool AND q.retry_count < q.max_retries ORDER BY q.workspace_id LIMIT 1)
        UNION ALL
        SELECT (SELECT q.workspace_id FROM public.upload_queue q
                WHERE q.spool_id = p_spool AND q.retry_count < q.max_retries AND q.workspace_id > w.workspace_id
                ORDER BY q.workspace_id LIMIT 1)
        FROM waiting w WHERE w.workspace_id IS NOT NULL
    ), under_way AS MATERIALIZED (
        SELECT a.workspace_id, count(*) AS attempts FROM attempts a
        WHERE a.queue = 'storage' AND a.closed_at IS NULL GROUP BY a.workspace_id
    ), turn AS MATERIALIZED (
        SELECT head.id FROM waiting w
        LEFT JOIN under_way u USING (workspace_id)
        CROSS JOIN LATERAL (
            SELECT q.id, q.next_retry_at, row_number() OVER (ORDER BY q.next_retry_at, q.id) AS turn FROM (
                SELECT q.id, q.next_retry_at FROM public.upload_queue q
                WHERE q.spool_id = p_spool AND q.workspace_id = w.workspace_id AND q.retry_count < q.max_retries
                  AND (q.next_retry_at <= v_now OR q.tried_at < v_now - p_early_after)
                  AND NOT EXISTS (SELECT FROM attempts a
                                  WHERE a.queue = 'storage' AND a.subject = q.id AND a.closed_at IS NULL)
                ORDER BY q.next_retry_at, q.id LIMIT 4 * p_limit) q
        ) head
        -- More than can be claimed: other processes of this machine claim the first ones now.
        ORDER BY coalesce(u.attempts, 0) + head.turn, head.next_retry_at, random() LIMIT 4 * p_limit
    ), due AS MATERIALIZED (
        SELECT q.* FROM turn t CROSS JOIN LATERAL (
            SELECT q.* FROM public.upload_queue q WHERE q.id = t.id AND q.retry_count < q.max_retries
            FOR UPDATE SKIP LOCKED) q
        LIMIT p_limit
    ), opened AS MATERIALIZED (
        SELECT o.* FROM (SELECT array_agg(d.id) AS ids, array_agg(d.workspace_id) AS workspaces FROM due d) a
        CROSS JOIN LATERAL open_attempts('storage', a.ids, a.workspaces, p_worker, p_lease) o
    )
    SELECT o.lease_token, d.id, d.workspace_id, d.payload_submission_id, d.user_id, d.object_path, d.content_hash,
           d.byte_size, d.retry_count, d.max_retries, d.next_retry_at > v_now
    FROM opened o JOIN due d ON d.id = o.subject;
END $$;
REVOKE ALL ON FUNCTION weighbridge.claim_replays(text, uuid, interval, int, interval) FROM PUBLIC;

-- The file of an upload is stored after all: workers can claim it.
CREATE OR REPLACE FUNCTION weighbridge.set_stored(p_upload uuid, p_file_url text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid;
BEGIN
    UPDATE public.data_uploads d
    SET file_url = p_file_url, storage_status = 'stored', run_after = '-infinity', error_code = NULL, error_text = NULL
    WHERE d.id = p_upload AND d.status = 'pending' AND d.storage_status = 'pending_retry'
    RETURNING d.workspace_id INTO v_workspace;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify('weighbridge_work', '');
    PERFORM notify_live(v_workspace, p_upload, 'pending');
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION weighbridge.set_stored(uuid, text) FROM PUBLIC;

-- The object exists and has been verified: the upload is as if it had been stored on receipt. False: an operator has dropped it
-- meanwhile.
CREATE OR REPLACE FUNCTION weighbridge.finish_replay(p_token uuid, p_file_url text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_queue uuid := fence(p_token);
    v_upload uuid;
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    DELETE FROM public.upload_queue q WHERE q.id = v_queue RETURNING q.payload_submission_id INTO v_upload;
    RETURN set_stored(v_upload, p_file_url);
END $$;
REVOKE ALL ON FUNCTION weighbridge.finish_replay(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.finish_replay(uuid, text) TO weighbridge_intake;

-- Fails an upload that waits for its file to be stored.
CREATE OR REPLACE FUNCTION weighbridge.fail_unstored(p_upload uuid, p_code text, p_text text) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        UPDATE public.data_uploads d
        SET status = 'failed', storage_status = 'retry_failed', error_code = p_code, error_text = p_text,
            finished_at = weighbridge.now()
        WHERE d.id = p_upload AND d.status = 'pending' AND d.storage_status = 'pending_retry'
    $$;
REVOKE ALL ON FUNCTION weighbridge.fail_unstored(uuid, text, text) FROM PUBLIC;

-- The same, without further retries; even if the upload had failed and its file was kept. None of its batch was loaded, so its
-- batch name can be used again.
CREATE OR REPLACE FUNCTION weighbridge.give_up_unstored(p_upload uuid, p_code text, p_text text) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        SELECT fail_unstored(p_upload, p_code, p_text);
        UPDATE public.data_uploads d SET error_code = p_code, error_text = p_text, source_batch_id = NULL
        WHERE d.id = p_upload AND d.storage_status = 'retry_failed'
    $$;
REVOKE ALL ON FUNCTION weighbridge.give_up_unstored(uuid, text, text) FROM PUBLIC;

-- The last retry failed: file and row are left to an operator.
CREATE OR REPLACE FUNCTION weighbridge.exhaust_replay(p_queue public.upload_queue, p_error text, p_consumers text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    UPDATE public.upload_queue q SET retry_count = q.max_retries WHERE q.id = p_queue.id;
    PERFORM fail_unstored(p_queue.payload_submission_id, 'STORAGE_RETRY_FAILED', format(
        'The file could not be stored after %s retries. It is kept: an operator can try again with weighbridge storage retry %s.',
        p_queue.max_retries, p_queue.id));
    PERFORM emit(p_queue.workspace_id, p_queue.payload_submission_id, 'storage.upload.retry_failed', jsonb_build_object(
        'upload_id', p_queue.payload_submission_id, 'workspace_id', p_queue.workspace_id, 'queue_id', p_queue.id,
        'bucket', p_queue.bucket, 'object_path', p_queue.object_path, 'byte_size', p_queue.byte_size,
        'retry_count', p_queue.max_retries, 'error_message', p_error), p_consumers);
END $$;
REVOKE ALL ON FUNCTION weighbridge.exhaust_replay(public.upload_queue, text, text[]) FROM PUBLIC;

-- Tries again after the delay; NULL: this was the last try. An early try does not count and leaves the time unchanged.
CREATE OR REPLACE FUNCTION weighbridge.fail_replay(
    p_token uuid, p_delay interval, p_error text, p_counts boolean, p_consumers text[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_id uuid := fence(p_token);
    v_queue public.upload_queue;
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_error);
    UPDATE public.upload_queue q
    SET retry_count = q.retry_count + p_counts::int,
        next_retry_at = CASE WHEN p_counts THEN weighbridge.now() + coalesce(p_delay, '0') ELSE q.next_retry_at END,
        error_message = p_error, tried_at = weighbridge.now()
    WHERE q.id = v_id
    RETURNING * INTO v_queue;
    IF FOUND AND p_counts AND p_delay IS NULL THEN
        PERFORM exhaust_replay(v_queue, p_error, p_consumers);
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.fail_replay(uuid, interval, text, boolean, text[]) FROM PUBLIC;

-- The process stopped while it stored the file: counts as a failure. True: it was the last try.
CREATE OR REPLACE FUNCTION weighbridge.recover_replay(p_queue uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_queue public.upload_queue;
BEGIN
    UPDATE public.upload_queue q
    SET retry_count = q.retry_count + 1, tried_at = weighbridge.now(),
        error_message = 'The process stopped while storing the file.'
    WHERE q.id = p_queue AND q.retry_count < q.max_retries
    RETURNING * INTO v_queue;
    IF NOT FOUND OR v_queue.retry_count < v_queue.max_retries THEN
        RETURN false;
    END IF;
    PERFORM exhaust_replay(v_queue, v_queue.error_message, ARRAY['audit_log', 'notifier']); -- these receive every event
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION weighbridge.recover_replay(uuid) FROM PUBLIC;

-- The waiting file no longer exists, so the upload fails. Without a token only where no attempt is open.
CREATE OR REPLACE FUNCTION weighbridge.fail_lost_replay(p_queue uuid, p_token uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid;
BEGIN
    IF p_token IS NOT NULL THEN
        PERFORM close_attempt(p_token, 'failed', 'the file is lost');
    END IF;
    DELETE FROM public.upload_queue q
    WHERE q.id = p_queue
      AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'storage' AND a.subject = q.id AND a.closed_at IS NULL)
    RETURNING q.payload_submission_id INTO v_upload;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM give_up_unstored(v_upload, 'STORAGE_FILE_LOST',
        'The file could not be stored when it was received, and its queued copy is lost. Upload it again.');
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION weighbridge.fail_lost_replay(uuid, uuid) FROM PUBLIC;

-- The same content was sent again and the store accepted it: the waiting upload is stored. False: it does not wait any
-- more.
CREATE OR REPLACE FUNCTION weighbridge.store_waiting(p_upload uuid, p_file_url text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    DELETE FROM public.upload_queue q WHERE q.payload_submission_id = p_upload AND q.workspace_id = weighbridge.workspace();
    RETURN FOUND AND set_stored(p_upload, p_file_url);
END $$;
REVOKE ALL ON FUNCTION weighbridge.store_waiting(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.store_waiting(uuid, text) TO weighbridge_intake;

-- Operators --------------------------------------------------------------------------------------------------

-- Retries a waiting file now, even one that was given up, with its upload. Returns 'queued', 'unknown' (no such row) or
-- 'superseded' (the content was sent again since, and that upload counts).
CREATE OR REPLACE FUNCTION weighbridge.retry_replay(p_queue uuid, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET lock_timeout = '5s'
    AS $$
DECLARE
    v_queue public.upload_queue;
    v_status text;
BEGIN
    SELECT * INTO v_queue FROM public.upload_queue q WHERE q.id = p_queue FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    -- A job that is opened again counts as a received one: its project must not be edited meanwhile.
    PERFORM FROM public.projects p JOIN public.data_uploads d ON d.workspace_id = p.workspace_id AND d.project_id = p.id
    WHERE d.id = v_queue.payload_submission_id FOR KEY SHARE OF p;
    SELECT d.status INTO v_status FROM public.data_uploads d WHERE d.id = v_queue.payload_submission_id FOR UPDATE;
    IF v_status = 'failed' THEN
        PERFORM set_config('weighbridge.verb', 'retry', true);
        BEGIN
            UPDATE public.data_uploads
            SET status = 'pending', storage_status = 'pending_retry', run_after = 'infinity', finished_at = NULL,
                error_code = 'STORAGE_PENDING_RETRY', error_text = 'Upload deferred and will retry automatically'
            WHERE id = v_queue.payload_submission_id;
        EXCEPTION WHEN unique_violation THEN
            RETURN 'superseded';
        END;
        PERFORM set_config('weighbridge.verb', '', true);
        UPDATE public.upload_queue SET retry_count = 0 WHERE id = p_queue;
    END IF;
    UPDATE public.upload_queue SET next_retry_at = weighbridge.now() WHERE id = p_queue;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_queue.workspace_id, p_actor, 'storage.retry', v_queue.payload_submission_id,
            jsonb_build_object('queue_id', p_queue));
    PERFORM pg_notify('weighbridge_work', '');
    RETURN 'queued';
END $$;
REVOKE ALL ON FUNCTION weighbridge.retry_replay(uuid, text) FROM PUBLIC;

-- Gives a file up: its row is deleted and its upload fails. The machine that has the bytes deletes them with its next
-- sweep.
CREATE OR REPLACE FUNCTION weighbridge.drop_replay(p_queue uuid, p_actor text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_queue public.upload_queue;
BEGIN
    DELETE FROM public.upload_queue q WHERE q.id = p_queue RETURNING * INTO v_queue;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM give_up_unstored(v_queue.payload_submission_id, 'STORAGE_DROPPED',
        'The file could not be stored, and an operator dropped it. Upload it again.');
    PERFORM dismiss_upload(v_queue.payload_submission_id, p_actor);
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_queue.workspace_id, p_actor, 'storage.drop', v_queue.payload_submission_id,
            jsonb_build_object('queue_id', p_queue, 'byte_size', v_queue.byte_size, 'metadata', v_queue.metadata));
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION weighbridge.drop_replay(uuid, text) FROM PUBLIC;

-- Raises or withdraws the alerts about waiting files: more than the threshold for longer than p_patience, or files that are
-- an hour overdue because their machine does not retry. Returns how many wait.
CREATE OR REPLACE FUNCTION weighbridge.watch_storage(p_threshold int, p_patience interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
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
    FROM public.upload_queue q WHERE q.retry_count < q.max_retries;
    IF v_old > p_threshold THEN
        PERFORM raise_alert('storage_queue', '', 'WARNING', format('%s files wait for the file store', v_depth));
    ELSIF v_depth <= p_threshold THEN
        PERFORM withdraw_alert('storage_queue', '', format('%s files wait for the file store', v_depth));
    END IF;
    IF v_left > 0 THEN
        PERFORM raise_alert('storage_left', '', 'ERROR',
            format('%s files wait for the file store on a machine that has stopped retrying', v_left));
    ELSE
        PERFORM withdraw_alert('storage_left', '', 'No file waits on a machine that has stopped retrying');
    END IF;
    RETURN v_depth;
END $$;
REVOKE ALL ON FUNCTION weighbridge.watch_storage(int, interval) FROM PUBLIC;

-- Usage ------------------------------------------------------------------------------------------------------

-- When the month counters start again.
CREATE OR REPLACE FUNCTION weighbridge.next_month() RETURNS timestamptz
    LANGUAGE sql STABLE
    AS $$ SELECT (date_trunc('month', weighbridge.now() AT TIME ZONE 'UTC') + INTERVAL '1 month') AT TIME ZONE 'UTC' $$;
REVOKE ALL ON FUNCTION weighbridge.next_month() FROM PUBLIC;

-- A blob within its workspace: date and content. It does not contain the address of the store, as a store can be moved.
-- No regular expression: it takes 40 µs, and a recount calls this for every blob.
CREATE OR REPLACE FUNCTION weighbridge.blob_key(p_file_url text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN right(p_file_url, 76) LIKE '/____/__/__/%' THEN right(p_file_url, 75) ELSE p_file_url END $$;
REVOKE ALL ON FUNCTION weighbridge.blob_key(text) FROM PUBLIC;

-- Adds a file, or with negative bytes removes one; the bytes of a month are never subtracted. The first call of a new month
-- resets the month counters; a call that began before the month changed must not change it back.
CREATE OR REPLACE FUNCTION weighbridge.increment_storage_usage(p_user_id uuid, p_bytes bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_month text := billing_month();
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_workspace::text, 4));
    INSERT INTO public.storage_usage AS u (workspace_id, user_id, total_bytes, total_sources, month_bytes, billing_month)
    VALUES (v_workspace, p_user_id, greatest(p_bytes, 0), (p_bytes >= 0)::int, greatest(p_bytes, 0), v_month)
    ON CONFLICT (workspace_id, user_id) DO UPDATE
    SET total_bytes = greatest(u.total_bytes + p_bytes, 0),
        total_sources = greatest(u.total_sources + CASE WHEN p_bytes < 0 THEN -1 ELSE 1 END, 0),
        month_bytes = CASE WHEN u.billing_month >= v_month THEN u.month_bytes ELSE 0 END + greatest(p_bytes, 0),
        interpretation_count_month = CASE WHEN u.billing_month >= v_month THEN u.interpretation_count_month ELSE 0 END,
        billing_month = greatest(u.billing_month, v_month),
        last_calculated = weighbridge.now();
END $$;
REVOKE ALL ON FUNCTION weighbridge.increment_storage_usage(uuid, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.increment_storage_usage(uuid, bigint) TO weighbridge_intake;

-- Counts that a file of a user is read again.
CREATE OR REPLACE FUNCTION weighbridge.increment_interpretation_count(p_user_id uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_month text := billing_month();
BEGIN
    INSERT INTO public.storage_usage AS u (workspace_id, user_id, interpretation_count_month, billing_month)
    VALUES (v_workspace, p_user_id, 1, v_month)
    ON CONFLICT (workspace_id, user_id) DO UPDATE
    SET interpretation_count_month =
            CASE WHEN u.billing_month >= v_month THEN u.interpretation_count_month ELSE 0 END + 1,
        month_bytes = CASE WHEN u.billing_month >= v_month THEN u.month_bytes ELSE 0 END,
        billing_month = greatest(u.billing_month, v_month);
END $$;
REVOKE ALL ON FUNCTION weighbridge.increment_interpretation_count(uuid) FROM PUBLIC;

-- Counts that several files of a user are read again: all of them or, where that is limited and exceeded, none. No row:
-- counted.
CREATE OR REPLACE FUNCTION weighbridge.take_interpretations(p_user uuid, p_number int, p_limited boolean)
    RETURNS TABLE (used int, allowed int, resets_at timestamptz, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
BEGIN
    INSERT INTO public.storage_usage (workspace_id, user_id) VALUES (v_workspace, p_user) ON CONFLICT DO NOTHING;
    SELECT CASE WHEN u.billing_month >= billing_month() THEN u.interpretation_count_month ELSE 0 END,
           u.interpretation_limit_month, next_month()
    INTO used, allowed, resets_at
    FROM public.storage_usage u WHERE u.workspace_id = v_workspace AND u.user_id = p_user
    FOR UPDATE;
    IF p_limited AND used + p_number > allowed THEN
        seconds := EXTRACT(EPOCH FROM resets_at - weighbridge.now());
        RETURN NEXT;
        RETURN;
    END IF;
    FOR _ IN 1 .. p_number LOOP
        PERFORM increment_interpretation_count(p_user);
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION weighbridge.take_interpretations(uuid, int, boolean) FROM PUBLIC;

-- Counts the blob of an upload once, and ends the reservation of its bytes.
CREATE OR REPLACE FUNCTION weighbridge.count_blob(p_user uuid, p_bytes bigint, p_file_url text, p_grant uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_new boolean;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_workspace::text, 4));
    DELETE FROM storage_reservations r WHERE r.workspace_id = v_workspace AND r.id = p_grant;
    INSERT INTO counted_blobs (workspace_id, blob_key, user_id, bytes)
    VALUES (v_workspace, blob_key(p_file_url), p_user, p_bytes)
    ON CONFLICT DO NOTHING;
    v_new := FOUND;
    IF v_new THEN
        PERFORM increment_storage_usage(p_user, p_bytes);
    END IF;
    RETURN v_new;
END $$;
REVOKE ALL ON FUNCTION weighbridge.count_blob(uuid, bigint, text, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.count_blob(uuid, bigint, text, uuid) TO weighbridge_intake;

-- The blob of an upload could not be counted; in the transaction that records the upload.
CREATE OR REPLACE FUNCTION weighbridge.note_uncounted(p_upload uuid, p_user uuid, p_bytes bigint, p_grant uuid) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        INSERT INTO uncounted_blobs (upload_id, workspace_id, user_id, bytes, reservation)
        VALUES (p_upload, acting_workspace(), p_user, p_bytes, p_grant) ON CONFLICT DO NOTHING
    $$;
REVOKE ALL ON FUNCTION weighbridge.note_uncounted(uuid, uuid, bigint, uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.note_uncounted(uuid, uuid, bigint, uuid) TO weighbridge_intake;

-- Counts noted blobs of all workspaces, each in its own subtransaction. Returns the number counted, the number that failed
-- again, and one of the errors. An upload whose blob was removed meanwhile has nothing to count.
CREATE OR REPLACE FUNCTION weighbridge.count_uncounted(p_limit int)
    RETURNS TABLE (counted bigint, failed bigint, error text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    SET lock_timeout = '100ms' -- for a file that is just being counted: its transaction goes on, and this one tries again later
    AS $$
DECLARE
    v_blob uncounted_blobs;
    v_upload public.data_uploads;
BEGIN
    counted := 0;
    failed := 0;
    FOR v_blob IN
        SELECT * FROM uncounted_blobs u ORDER BY u.since, u.upload_id LIMIT p_limit FOR UPDATE SKIP LOCKED
    LOOP
        -- FOR SHARE: its blob is not removed before it is counted.
        -- SKIP LOCKED: a transaction of one workspace must not delay the others. Its blobs are counted later.
        SELECT * INTO v_upload FROM public.data_uploads d WHERE d.id = v_blob.upload_id FOR SHARE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND AND EXISTS (SELECT FROM public.data_uploads d WHERE d.id = v_blob.upload_id);
        BEGIN
            CONTINUE WHEN NOT lock_usage(v_blob.workspace_id, v_blob.user_id);
            IF v_upload.storage_status = 'stored' THEN
                PERFORM set_config('weighbridge.workspace_id', v_blob.workspace_id::text, true);
                PERFORM count_blob(v_blob.user_id, v_blob.bytes, v_upload.file_url, v_blob.reservation);
            END IF;
            DELETE FROM uncounted_blobs u WHERE u.upload_id = v_blob.upload_id;
            counted := counted + 1;
        EXCEPTION WHEN OTHERS THEN
            failed := failed + 1;
            error := SQLSTATE; -- its text may contain values
        END;
    END LOOP;
    RETURN NEXT;
END $$;
REVOKE ALL ON FUNCTION weighbridge.count_uncounted(int) FROM PUBLIC;

-- Limits -----------------------------------------------------------------------------------------------------

-- Reserves the bytes of a file, or returns the limit that they would exceed as the only row. The total comes before the month:
-- waiting for the next month would not help. The defaults are those of the settings.
CREATE OR REPLACE FUNCTION weighbridge.reserve_storage(
    p_grant uuid, p_user uuid, p_bytes bigint, p_lasts interval, p_workspace_month bigint, p_workspace_total bigint,
    p_user_month bigint, p_user_total bigint, p_consumers text[]
) RETURNS TABLE (whose text, span text, used bigint, allowed bigint, resets_at timestamptz, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_month text := billing_month();
    v_limits bigint[]; -- user total, workspace total, user in the month, workspace in the month
BEGIN
    SELECT ARRAY[
        nullif(coalesce(max(l.total_bytes) FILTER (WHERE l.user_id = p_user), p_user_total), -1),
        nullif(coalesce(max(l.total_bytes) FILTER (WHERE l.user_id IS NULL), p_workspace_total), -1),
        nullif(coalesce(max(l.month_bytes) FILTER (WHERE l.user_id = p_user), p_user_month), -1),
        nullif(coalesce(max(l.month_bytes) FILTER (WHERE l.user_id IS NULL), p_workspace_month), -1)]
    INTO v_limits
    FROM storage_limits l WHERE l.workspace_id = v_workspace AND (l.user_id IS NULL OR l.user_id = p_user);
    IF num_nonnulls(VARIADIC v_limits) = 0 THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(v_workspace::text, 3));
    DELETE FROM storage_reservations r WHERE r.workspace_id = v_workspace AND r.until <= weighbridge.now();
    -- One statement sees one moment: a file that is counted meanwhile is seen as reserved or as used.
    WITH parts (user_id, total, month) AS (
        SELECT u.user_id, u.total_bytes, CASE WHEN u.billing_month >= v_month THEN u.month_bytes ELSE 0 END
        FROM public.storage_usage u WHERE u.workspace_id = v_workspace
        UNION ALL
        SELECT r.user_id, r.bytes, r.bytes FROM storage_reservations r
        WHERE r.workspace_id = v_workspace AND r.id <> p_grant
        UNION ALL
        SELECT q.user_id, q.byte_size, q.byte_size FROM public.upload_queue q
        WHERE q.workspace_id = v_workspace AND q.retry_count < q.max_retries
    ), sums AS (
        SELECT ARRAY[sum(p.total) FILTER (WHERE p.user_id = p_user), sum(p.total),
                     sum(p.month) FILTER (WHERE p.user_id = p_user), sum(p.month)]::bigint[] AS used
        FROM parts p
    )
    SELECT (ARRAY['user', 'workspace', 'user', 'workspace'])[n], (ARRAY['total', 'total', 'month', 'month'])[n],
           coalesce(s.used[n], 0), v_limits[n]
    INTO whose, span, used, allowed
    FROM sums s, generate_series(1, 4) AS n
    WHERE coalesce(s.used[n], 0) + p_bytes > v_limits[n]
    ORDER BY n LIMIT 1;
    IF NOT FOUND THEN
        INSERT INTO storage_reservations AS r (workspace_id, id, user_id, bytes, until)
        VALUES (v_workspace, p_grant, p_user, p_bytes, weighbridge.now() + p_lasts)
        ON CONFLICT (workspace_id, id) DO UPDATE SET bytes = EXCLUDED.bytes, until = EXCLUDED.until;
        RETURN;
    END IF;
    IF span = 'month' THEN
        resets_at := next_month();
        seconds := EXTRACT(EPOCH FROM resets_at - weighbridge.now());
    END IF;
    PERFORM emit(v_workspace, NULL, 'quota.storage.exceeded', jsonb_build_object(
        'workspace_id', v_workspace, 'user_id', CASE WHEN whose = 'user' THEN p_user END, 'limit_of', whose, 'span', span,
        'billing_month', v_month, 'used', used, 'limit', allowed, 'resets_at', resets_at), p_consumers);
    RETURN NEXT;
END $$;
REVOKE ALL ON FUNCTION weighbridge.reserve_storage(uuid, uuid, bigint, interval, bigint, bigint, bigint, bigint, text[]) FROM
    PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.reserve_storage(uuid, uuid, bigint, interval, bigint, bigint, bigint, bigint, text[])
    TO weighbridge_intake;

-- Ends a reservation whose file was not recorded.
CREATE OR REPLACE FUNCTION weighbridge.release_storage(p_grant uuid) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$ DELETE FROM storage_reservations WHERE workspace_id = acting_workspace() AND id = p_grant $$;
REVOKE ALL ON FUNCTION weighbridge.release_storage(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.release_storage(uuid) TO weighbridge_intake;

-- Deletes reservations of killed processes. Expired ones no longer count.
CREATE OR REPLACE FUNCTION weighbridge.sweep_reservations() RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        WITH deleted AS (
            DELETE FROM storage_reservations r
            WHERE r.ctid = ANY (ARRAY(SELECT e.ctid FROM storage_reservations e WHERE e.until <= (SELECT weighbridge.now())
                                      FOR UPDATE SKIP LOCKED))
            RETURNING r.id)
        SELECT count(*) FROM deleted
    $$;
REVOKE ALL ON FUNCTION weighbridge.sweep_reservations() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.sweep_reservations() TO weighbridge_clean;

-- For operators: limits of a workspace or of one user. NULL leaves a limit unchanged, -2 restores the one of the settings.
CREATE OR REPLACE FUNCTION weighbridge.set_storage_limit(
    p_user uuid, p_month bigint, p_total bigint, p_interpretations int, p_actor text
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
BEGIN
    INSERT INTO storage_limits AS l (workspace_id, user_id, month_bytes, total_bytes)
    VALUES (v_workspace, p_user, nullif(p_month, -2), nullif(p_total, -2))
    ON CONFLICT (workspace_id, user_id) DO UPDATE
    SET month_bytes = nullif(coalesce(p_month, l.month_bytes), -2),
        total_bytes = nullif(coalesce(p_total, l.total_bytes), -2);
    DELETE FROM storage_limits l
    WHERE l.workspace_id = v_workspace AND l.month_bytes IS NULL AND l.total_bytes IS NULL;
    IF p_interpretations IS NOT NULL THEN
        INSERT INTO public.storage_usage AS u (workspace_id, user_id, interpretation_limit_month)
        VALUES (v_workspace, p_user, p_interpretations)
        ON CONFLICT (workspace_id, user_id) DO UPDATE SET interpretation_limit_month = p_interpretations;
    END IF;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_workspace, p_actor, 'storage.limit', p_user, jsonb_strip_nulls(jsonb_build_object(
        'month_bytes', p_month, 'total_bytes', p_total, 'interpretations', p_interpretations)));
END $$;
REVOKE ALL ON FUNCTION weighbridge.set_storage_limit(uuid, bigint, bigint, int, text) FROM PUBLIC;

-- Usage and limits of a workspace; the row without a user is the workspace itself. SECURITY DEFINER: tenants cannot read the
-- queue, limits and reservations.
CREATE OR REPLACE FUNCTION weighbridge.usage_and_limits(
    p_workspace_month bigint, p_workspace_total bigint, p_user_month bigint, p_user_total bigint
) RETURNS TABLE (
        user_id uuid, total_bytes bigint, total_sources bigint, month_bytes bigint, waiting_bytes bigint,
        reserved_bytes bigint, month_limit bigint, total_limit bigint, last_calculated timestamptz,
        interpretation_count_month bigint, interpretation_limit_month int, billing_month text, resets_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        WITH mine AS MATERIALIZED (SELECT acting_workspace() AS id, billing_month() AS month),
        parts (user_id, total, sources, month, waiting, reserved, at, count, most) AS (
            SELECT u.user_id, u.total_bytes, u.total_sources,
                   CASE WHEN u.billing_month >= m.month THEN u.month_bytes ELSE 0 END, 0::bigint, 0::bigint, u.last_calculated,
                   CASE WHEN u.billing_month >= m.month THEN u.interpretation_count_month ELSE 0 END,
                   u.interpretation_limit_month
            FROM public.storage_usage u, mine m WHERE u.workspace_id = m.id
            UNION ALL
            SELECT q.user_id, 0, 0, 0, q.byte_size, 0, NULL, 0, NULL
            FROM public.upload_queue q, mine m WHERE q.workspace_id = m.id AND q.retry_count < q.max_retries
            UNION ALL
            SELECT r.user_id, 0, 0, 0, 0, r.bytes, NULL, 0, NULL
            FROM storage_reservations r, mine m WHERE r.workspace_id = m.id AND r.until > weighbridge.now()
            UNION ALL
            SELECT l.user_id, 0, 0, 0, 0, 0, NULL, 0, NULL
            FROM storage_limits l, mine m WHERE l.workspace_id = m.id AND l.user_id IS NOT NULL
        ), sums AS (
            SELECT p.user_id, sum(p.total) AS total, sum(p.sources) AS sources, sum(p.month) AS month,
                   sum(p.waiting) AS waiting, sum(p.reserved) AS reserved, max(p.at) AS at, sum(p.count) AS count,
                   max(p.most) AS most
            FROM parts p GROUP BY GROUPING SETS ((), (p.user_id))
        )
        SELECT s.user_id, coalesce(s.total, 0)::bigint, coalesce(s.sources, 0)::bigint, coalesce(s.month, 0)::bigint,
               coalesce(s.waiting, 0)::bigint, coalesce(s.reserved, 0)::bigint,
               nullif(coalesce(l.month_bytes, CASE WHEN s.user_id IS NULL THEN p_workspace_month ELSE p_user_month END), -1),
               nullif(coalesce(l.total_bytes, CASE WHEN s.user_id IS NULL THEN p_workspace_total ELSE p_user_total END), -1),
               s.at, coalesce(s.count, 0)::bigint, coalesce(s.most, 100), m.month, next_month()
        FROM sums s CROSS JOIN mine m
        LEFT JOIN storage_limits l ON l.workspace_id = m.id AND l.user_id IS NOT DISTINCT FROM s.user_id
        ORDER BY s.user_id NULLS FIRST
    $$;
REVOKE ALL ON FUNCTION weighbridge.usage_and_limits(bigint, bigint, bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.usage_and_limits(bigint, bigint, bigint, bigint) TO weighbridge_tenant;

-- Recount ----------------------------------------------------------------------------------------------------

-- Compares the counters of a workspace with a listing of its blobs and corrects them; a dry run only reports.
--
-- The listing takes time while uploads continue, so it shows no single moment. It began at p_began, so blobs counted
-- later are not compared with it. Blobs recorded before must be in it: bytes are stored before they are recorded, and
-- are deleted only after their uploads have the status 'removed'. No transaction counts in the workspace while this
-- runs.
CREATE OR REPLACE FUNCTION weighbridge.recount_storage(p_keys text[], p_sizes bigint[], p_began timestamptz, p_dry boolean) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    SET enable_nestloop = off SET work_mem = '64MB' -- the planner expects ten rows of a listing; there may be a million
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_month text := billing_month();
    v_answer jsonb;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(v_workspace::text, 4));
    BEGIN
        WITH listed AS MATERIALIZED (
            SELECT l.key, l.bytes FROM unnest(p_keys, p_sizes) AS l (key, bytes)
        ), naming AS MATERIALIZED ( -- uploads that name a blob which exists, or is being removed
            SELECT blob_key(d.file_url) AS key, d.id, d.storage_status, d.created_at,
                   coalesce(d.created_by, '00000000-0000-0000-0000-000000000000') AS user_id
            FROM public.data_uploads d
            WHERE d.workspace_id = v_workspace AND d.file_url IS NOT NULL
              AND (d.storage_status = 'stored'
                   OR d.storage_status = 'removed' AND (d.blob_removed_at IS NULL OR d.blob_removed_at >= p_began))
        ), lost AS (
            DELETE FROM counted_blobs b
            WHERE b.workspace_id = v_workspace AND b.counted_at < p_began
              AND NOT EXISTS (SELECT FROM listed l JOIN naming n ON n.key = l.key WHERE l.key = b.blob_key)
        ), resized AS (
            UPDATE counted_blobs b SET bytes = l.bytes FROM listed l
            WHERE b.workspace_id = v_workspace AND b.blob_key = l.key AND b.bytes <> l.bytes
              AND EXISTS (SELECT FROM naming n WHERE n.key = b.blob_key)
        ), missed AS (
            INSERT INTO counted_blobs (workspace_id, blob_key, user_id, bytes, counted_at)
            SELECT DISTINCT ON (n.key) v_workspace, n.key, n.user_id, l.bytes, n.created_at
            FROM naming n JOIN listed l ON l.key = n.key
            WHERE n.storage_status = 'stored'
              AND NOT EXISTS (SELECT FROM counted_blobs b WHERE b.workspace_id = v_workspace AND b.blob_key = n.key)
            ORDER BY n.key, n.created_at, n.id
            RETURNING user_id, bytes, counted_at
        ), of_month AS (
            UPDATE public.storage_usage u
            SET month_bytes = CASE WHEN u.billing_month >= v_month THEN u.month_bytes ELSE 0 END + m.bytes,
                interpretation_count_month =
                    CASE WHEN u.billing_month >= v_month THEN u.interpretation_count_month ELSE 0 END,
                billing_month = greatest(u.billing_month, v_month)
            FROM (SELECT x.user_id, sum(x.bytes) AS bytes FROM missed x
                  WHERE to_char(x.counted_at AT TIME ZONE 'UTC', 'YYYY-MM') = v_month GROUP BY x.user_id) m
            WHERE u.workspace_id = v_workspace AND u.user_id = m.user_id
        )
        SELECT jsonb_build_object(
            'missing', coalesce((
                SELECT jsonb_agg(jsonb_build_object('upload_id', n.id, 'key', n.key) ORDER BY n.created_at, n.id)
                FROM naming n
                WHERE n.storage_status = 'stored' AND n.created_at < p_began
                  AND NOT EXISTS (SELECT FROM listed l WHERE l.key = n.key)
                  AND NOT EXISTS (SELECT FROM counted_blobs b WHERE b.workspace_id = v_workspace AND b.blob_key = n.key
                                  AND b.counted_at >= p_began)), '[]'),
            -- A younger one may be stored and not yet recorded.
            'orphans', coalesce((
                SELECT jsonb_agg(jsonb_build_object('key', l.key, 'bytes', l.bytes) ORDER BY l.key)
                FROM listed l
                WHERE NOT EXISTS (SELECT FROM naming n WHERE n.key = l.key)
                  AND may_be_removed(v_workspace, l.key)), '[]'))
        INTO v_answer;
        -- A separate statement, which sees the changes of the one above.
        WITH found AS (
            SELECT coalesce(b.user_id, u.user_id) AS user_id, coalesce(b.bytes, 0) AS bytes, coalesce(b.sources, 0) AS sources,
                   coalesce(u.total_bytes, 0) AS recorded_bytes, coalesce(u.total_sources, 0) AS recorded_sources
            FROM (SELECT c.user_id, sum(c.bytes)::bigint AS bytes, count(*)::int AS sources
                  FROM counted_blobs c WHERE c.workspace_id = v_workspace GROUP BY c.user_id) b
            FULL JOIN (SELECT * FROM public.storage_usage s WHERE s.workspace_id = v_workspace) u ON u.user_id = b.user_id
        ), wrong AS MATERIALIZED (
            SELECT * FROM found f WHERE (f.bytes, f.sources) <> (f.recorded_bytes, f.recorded_sources)
        ), corrected AS (
            INSERT INTO public.storage_usage AS u (workspace_id, user_id, total_bytes, total_sources, month_bytes)
            SELECT v_workspace, w.user_id, w.bytes, w.sources,
                   -- only where there was no row: all its blobs were missed
                   coalesce((SELECT sum(c.bytes) FROM counted_blobs c
                             WHERE c.workspace_id = v_workspace AND c.user_id = w.user_id
                               AND to_char(c.counted_at AT TIME ZONE 'UTC', 'YYYY-MM') = v_month), 0)
            FROM wrong w
            ON CONFLICT (workspace_id, user_id) DO UPDATE
            SET total_bytes = EXCLUDED.total_bytes, total_sources = EXCLUDED.total_sources,
                last_calculated = weighbridge.now()
        )
        SELECT v_answer || jsonb_build_object('users', coalesce(jsonb_agg(jsonb_build_object(
            'user_id', w.user_id, 'recorded_bytes', w.recorded_bytes, 'recorded_sources', w.recorded_sources,
            'found_bytes', w.bytes, 'found_sources', w.sources) ORDER BY w.user_id), '[]'))
        INTO v_answer FROM wrong w;
        IF p_dry THEN
            RAISE EXCEPTION 'a dry run' USING ERRCODE = 'WB009';
        END IF;
    EXCEPTION WHEN SQLSTATE 'WB009' THEN
        NULL; -- everything is rolled back, and the answer is known
    END;
    RETURN v_answer;
END $$;
REVOKE ALL ON FUNCTION weighbridge.recount_storage(text[], bigint[], timestamptz, boolean) FROM PUBLIC;

-- Retention --------------------------------------------------------------------------------------------------

-- True where no file that is being received can get this key. Its date is at least two days back: a file gets the date of the
-- moment at which it is stored and is recorded right after, so even one stored just before midnight has had a day for that. A
-- waiting file keeps the key of the day on which it was received: its row in upload_queue has it.
CREATE OR REPLACE FUNCTION weighbridge.may_be_removed(p_workspace uuid, p_key text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        SELECT p_key ~ '^[0-9]{4}/[0-9]{2}/[0-9]{2}/[0-9a-f]{64}$'
           AND left(p_key, 10) <= to_char((weighbridge.now() AT TIME ZONE 'UTC')::date - 2, 'YYYY/MM/DD')
           AND NOT EXISTS (SELECT FROM public.upload_queue q
                           WHERE q.workspace_id = p_workspace AND q.object_path = p_workspace || '/' || p_key)
    $$;
REVOKE ALL ON FUNCTION weighbridge.may_be_removed(uuid, text) FROM PUBLIC;

-- Marks the blob of an upload as removed before it is deleted: from then on no upload that needs it can be retried. Returns the
-- key, or NULL where it has to stay: an upload that names it has not ended, ended recently, or is locked. A marked blob
-- is deleted at any age.
CREATE OR REPLACE FUNCTION weighbridge.retire_blob(p_upload uuid, p_age interval) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_first public.data_uploads;
    v_key text;
    v_locked bigint;
BEGIN
    SELECT * INTO v_first FROM public.data_uploads d WHERE d.id = p_upload AND d.workspace_id = v_workspace;
    v_key := blob_key(v_first.file_url);
    -- SKIP LOCKED: a transaction that holds one of them may be opening it again; the next run checks it again.
    SELECT count(*) INTO v_locked FROM (
        SELECT FROM public.data_uploads d
        WHERE d.workspace_id = v_workspace AND d.content_sha256 = v_first.content_sha256 AND blob_key(d.file_url) = v_key
        ORDER BY d.id FOR UPDATE SKIP LOCKED) held;
    IF may_be_removed(v_workspace, v_key) IS NOT TRUE
       OR v_locked <> (SELECT count(*) FROM public.data_uploads d
                     WHERE d.workspace_id = v_workspace AND d.content_sha256 = v_first.content_sha256
                       AND blob_key(d.file_url) = v_key)
       OR EXISTS (SELECT FROM public.data_uploads d
                  WHERE d.workspace_id = v_workspace AND d.content_sha256 = v_first.content_sha256
                    AND blob_key(d.file_url) = v_key
                    AND (d.status IN ('completed', 'partial', 'failed')
                         AND (d.storage_status = 'removed'
                              OR d.storage_status = 'stored' AND d.finished_at < weighbridge.now() - p_age)) IS NOT TRUE) THEN
        RETURN NULL;
    END IF;
    UPDATE public.data_uploads d SET storage_status = 'removed'
    WHERE d.workspace_id = v_workspace AND d.content_sha256 = v_first.content_sha256 AND blob_key(d.file_url) = v_key
      AND d.storage_status = 'stored';
    RETURN v_workspace || '/' || v_key;
END $$;
REVOKE ALL ON FUNCTION weighbridge.retire_blob(uuid, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.retire_blob(uuid, interval) TO weighbridge_clean;

-- Locks the counter of a user in the workspace, to count a blob, without waiting. False: another transaction has locked it.
CREATE OR REPLACE FUNCTION weighbridge.lock_usage(p_workspace uuid, p_user uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(hashtextextended(p_workspace::text, 4)) THEN
        RETURN false;
    END IF;
    PERFORM FROM public.storage_usage u WHERE u.workspace_id = p_workspace AND u.user_id = p_user FOR NO KEY UPDATE SKIP LOCKED;
    RETURN FOUND OR NOT EXISTS (SELECT FROM public.storage_usage u WHERE u.workspace_id = p_workspace AND u.user_id = p_user);
END $$;
REVOKE ALL ON FUNCTION weighbridge.lock_usage(uuid, uuid) FROM PUBLIC;

-- The blob is deleted: it no longer counts. Changes nothing while another transaction has locked the counters of the workspace:
-- the blobs of others must not wait for that. The next run deletes and notes the blob again.
CREATE OR REPLACE FUNCTION weighbridge.note_blob_removed(p_upload uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_first public.data_uploads;
    v_rows uuid[]; -- the uploads that have the blob
    v_blob counted_blobs;
    v_counted boolean;
BEGIN
    SELECT * INTO STRICT v_first FROM public.data_uploads d
    WHERE d.id = p_upload AND d.workspace_id = v_workspace AND d.storage_status = 'removed';
    v_rows := ARRAY(SELECT d.id FROM public.data_uploads d
                    WHERE d.workspace_id = v_workspace AND d.content_sha256 = v_first.content_sha256
                      AND blob_key(d.file_url) = blob_key(v_first.file_url)
                      AND d.storage_status = 'removed' AND d.blob_removed_at IS NULL);
    SELECT * INTO v_blob FROM counted_blobs b WHERE b.workspace_id = v_workspace AND b.blob_key = blob_key(v_first.file_url);
    v_counted := FOUND;
    IF (SELECT count(*) FROM (SELECT FROM public.data_uploads d WHERE d.id = ANY (v_rows) ORDER BY d.id
                              FOR NO KEY UPDATE SKIP LOCKED) l) < cardinality(v_rows)
       OR v_counted AND NOT lock_usage(v_workspace, v_blob.user_id) THEN
        RETURN;
    END IF;
    IF v_counted THEN
        PERFORM FROM counted_blobs b WHERE b.workspace_id = v_workspace AND b.blob_key = v_blob.blob_key FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        DELETE FROM counted_blobs b WHERE b.workspace_id = v_workspace AND b.blob_key = v_blob.blob_key RETURNING * INTO v_blob;
    END IF;
    UPDATE public.data_uploads d SET blob_removed_at = weighbridge.now() WHERE d.id = ANY (v_rows);
    IF v_counted THEN
        PERFORM increment_storage_usage(v_blob.user_id, -v_blob.bytes);
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.note_blob_removed(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.note_blob_removed(uuid) TO weighbridge_clean;
