-- Uploads: from a received file to rows in production, and back by retry, preview and recovery.
--
-- Tables
--   data_uploads              one row per file; its status is the source of truth
--   moves                     the state machine; the trigger guard_status enforces it
--   upload_rejections         rejected rows; upload_warnings: warnings about loaded rows; upload_duplicates: repeated files
--   upload_fixes              links from the records of a fixed rejects file to the records that they replace
--   staging_id_resolution     natural key → production id of an upload's dimensions
--   receipts, staging_groups  groups of rows that were applied completely, so that an equal group is skipped
--   ingest.import_runs        a view of uploads as import runs, with a status that operators may update
--
-- The life of an upload
--   pending → processing → staging_complete → promoting → completed | partial | failed
--   receive_upload records it. claim_upload opens an attempt (engine/functions.sql) in a slot of its workspace.
--   Parsing calls begin_staging, note_rows_read, note_staged and finish_staging; promotion calls begin_promotion,
--   advance_promotion and finish_upload, which emits the event. release_upload returns it to the queue, fail_upload
--   fails it, restage_upload sends it back to parsing. retry_upload, a command of operators, opens a finished one again.
--
-- A preview stops at staging_complete. It is on hold: no worker claims it, because run_after is infinity, and
-- constraints prevent its promotion. promote_preview or discard_preview ends the hold. While it is parsed, a preview
-- is an ordinary upload. On hold or discarded, it does not count as a job of its project, in the backlog or as a
-- failure.
--
-- Call of a higher package. The first file of a project creates the project, in the same transaction: receive_upload
-- calls make_project (projects). docs/decisions.md has the reason.
--
-- Lock order: attempts, then the upload's project (FOR KEY SHARE), then data_uploads, then upload_rejections, then
-- events.
--   advisory lock 1   shared while an upload of the workspace is promoted, exclusive to delete a dimension row
--   advisory lock 2   one slot of a workspace: tried, never waited for
--   advisory lock 8   one lane of a workspace, while it is decided whether an upload may be promoted
--
-- The order of arrival. Files that may have the same rows share a lane (model/pipeline.py). They are parsed at the same time,
-- and promoted one after another in the order of their positions (waits_for), so that production is as if the files had been
-- processed one by one. A file that comes late (is_late) does not replace rows of later files: its rows are superseded.

-- States -----------------------------------------------------------------------------------------------------

-- Permits only the moves in weighbridge.moves, records each of them in `states`, and notifies live readers. WB002: not a move.
CREATE OR REPLACE FUNCTION weighbridge.guard_status() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
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
        RAISE EXCEPTION 'upload %: % → % is not an allowed transition', OLD.id, OLD.status, NEW.status
            USING ERRCODE = 'WB002',
                  HINT = CASE WHEN OLD.status IN ('completed', 'partial', 'failed')
                              THEN 'A finished upload can only be changed by an operator: weighbridge uploads retry.'
                              ELSE 'The allowed transitions are in weighbridge.moves.' END;
    END IF;
    NEW.states := CASE WHEN jsonb_array_length(OLD.states) < 100 THEN OLD.states ELSE OLD.states - 0 END
                  || jsonb_build_array(jsonb_build_array(NEW.status, weighbridge.now(), CASE
                      WHEN NEW.status IN ('partial', 'failed') THEN concat_ws(': ', NEW.error_code, left(NEW.error_text, 500)) END));
    PERFORM notify_live(NEW.workspace_id, NEW.id, NEW.status);
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION weighbridge.guard_status() FROM PUBLIC;
CREATE OR REPLACE TRIGGER guard_status BEFORE UPDATE OF status ON public.data_uploads
    FOR EACH ROW EXECUTE FUNCTION weighbridge.guard_status();

-- Notifies live readers that the upload has changed.
CREATE OR REPLACE FUNCTION weighbridge.notify_live(p_workspace uuid, p_upload uuid, p_status text) RETURNS void
    LANGUAGE sql
    AS $$
        SELECT pg_notify('weighbridge_live', json_build_object(
            'workspace_id', p_workspace, 'upload_id', p_upload, 'status', p_status)::text)
    $$;
REVOKE ALL ON FUNCTION weighbridge.notify_live(uuid, uuid, text) FROM PUBLIC;

-- The name of a batch in logs and alerts: the sender's, or the id of the upload. Never the name of the file.
CREATE OR REPLACE FUNCTION weighbridge.batch_name(p_upload public.data_uploads) RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT coalesce(p_upload.source_batch_id, p_upload.id::text) $$;
REVOKE ALL ON FUNCTION weighbridge.batch_name(public.data_uploads) FROM PUBLIC;

-- Closes the takeover alerts of an upload, with one announcement for all of them; with none where p_outcome is NULL.
CREATE OR REPLACE FUNCTION weighbridge.close_takeover_alerts(p_upload public.data_uploads, p_outcome text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_takeover alerts;
BEGIN
    SELECT * INTO v_takeover FROM alerts
    WHERE condition = 'stale_takeover' AND subject LIKE p_upload.id || '/%' AND closed_at IS NULL
    ORDER BY opened_at DESC LIMIT 1;
    UPDATE alerts SET closed_at = weighbridge.now()
    WHERE condition = 'stale_takeover' AND subject LIKE p_upload.id || '/%' AND closed_at IS NULL;
    IF FOUND AND p_outcome IS NOT NULL THEN
        PERFORM announce_alert('AlertRecovered', v_takeover,
            format('[STALE TAKEOVER RECOVERED] %s: %s', batch_name(p_upload), p_outcome));
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.close_takeover_alerts(public.data_uploads, text) FROM PUBLIC;

-- Raises an alert when an upload fails and withdraws it when the upload completes, for every change of status. A
-- discarded or expired preview is no failure.
CREATE OR REPLACE FUNCTION weighbridge.alert_on_status() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_failed boolean := NEW.status = 'failed' AND NOT (NEW.preview AND NEW.error_code IN ('discarded', 'preview_expired'));
BEGIN
    IF v_failed THEN
        PERFORM raise_alert('ingest_failure', NEW.id::text, 'ERROR',
            format('[INGEST FAILURE] %s: %s', batch_name(NEW), coalesce(NEW.error_code, 'unknown')));
    ELSE
        PERFORM withdraw_alert('ingest_failure', NEW.id::text, format('[INGEST RECOVERED] %s: %s', batch_name(NEW),
            CASE NEW.status WHEN 'failed' THEN NEW.error_code ELSE NEW.status END));
    END IF;
    PERFORM close_takeover_alerts(NEW, CASE WHEN NEW.status <> 'failed' THEN NEW.status END);
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION weighbridge.alert_on_status() FROM PUBLIC;
-- A file that an operator drops needs no alert.
CREATE OR REPLACE TRIGGER alert_on_status AFTER UPDATE OF status ON public.data_uploads
    FOR EACH ROW WHEN (NEW.status IN ('completed', 'partial', 'failed') AND OLD.status <> NEW.status
                       AND NEW.error_code IS DISTINCT FROM 'STORAGE_DROPPED')
    EXECUTE FUNCTION weighbridge.alert_on_status();

-- Counts the warnings of a failed upload, for every reason of failure.
CREATE OR REPLACE FUNCTION weighbridge.count_warnings() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    NEW.warnings := (SELECT count(*) FROM public.upload_warnings w WHERE w.upload_id = NEW.id);
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION weighbridge.count_warnings() FROM PUBLIC;
CREATE OR REPLACE TRIGGER count_warnings BEFORE UPDATE OF status ON public.data_uploads
    FOR EACH ROW WHEN (NEW.status = 'failed' AND OLD.status <> NEW.status) EXECUTE FUNCTION weighbridge.count_warnings();

-- The status of an upload as the status of an import run.
CREATE OR REPLACE FUNCTION ingest.run_status(p_status text) RETURNS ingest.import_run_status
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT CASE p_status WHEN 'pending' THEN 'pending' WHEN 'failed' THEN 'failed'
                             WHEN 'completed' THEN 'completed' WHEN 'partial' THEN 'completed'
                             ELSE 'processing' END::ingest.import_run_status
    $$;
GRANT EXECUTE ON FUNCTION ingest.run_status(text) TO PUBLIC;

-- Receive ----------------------------------------------------------------------------------------------------

-- The upload that a file already is, if any: by the name of its batch, else by its content and read options. A batch name is
-- used once, even with other read options.
CREATE OR REPLACE FUNCTION weighbridge.known_upload(
    p_workspace uuid, p_pipeline text, p_client uuid, p_platform text, p_project bigint, p_sha256 bytea, p_batch text,
    p_forced boolean, p_reading jsonb DEFAULT '{}'
) RETURNS SETOF weighbridge.received
    LANGUAGE sql STABLE
    AS $$
        SELECT found.id, true, found.reason
        FROM (
            SELECT d.id, 1 AS rank,
                   CASE WHEN (d.content_sha256, d.pipeline, d.client_id, d.platform, d.project_id)
                             IS DISTINCT FROM (p_sha256, p_pipeline, p_client, p_platform, p_project) THEN 'batch_differs'
                        WHEN d.status = 'failed' THEN 'batch_failed'
                        WHEN d.preview THEN 'duplicate_preview'
                        ELSE 'duplicate_' || ingest.run_status(d.status) END AS reason
            FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.source_batch_id = p_batch
            UNION ALL
            SELECT d.id, 2, CASE WHEN d.preview THEN 'duplicate_preview' ELSE 'duplicate_content' END
            FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.pipeline = p_pipeline
              AND d.client_id IS NOT DISTINCT FROM p_client AND d.platform IS NOT DISTINCT FROM p_platform
              AND d.project_id IS NOT DISTINCT FROM p_project
              AND d.content_sha256 = p_sha256 AND d.reading = p_reading
              AND d.status <> 'failed' AND NOT d.forced AND NOT p_forced
        ) AS found
        ORDER BY found.rank LIMIT 1
    $$;
REVOKE ALL ON FUNCTION weighbridge.known_upload(uuid, text, uuid, text, bigint, bytea, text, boolean, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.known_upload(uuid, text, uuid, text, bigint, bytea, text, boolean, jsonb) TO
    weighbridge_tenant;

-- Records a file. The same content or the same batch again returns the first upload. Without a file_url the upload waits for
-- its file to be stored.
CREATE OR REPLACE FUNCTION weighbridge.receive_upload(
    p_workspace uuid, p_client uuid, p_platform text, p_project bigint, p_source text, p_pipeline text, p_filename text,
    p_file_url text, p_file_kind text, p_sha256 bytea, p_size bigint, p_created_by uuid, p_force_partial boolean,
    p_forced boolean, p_batch text, p_traceparent text, p_preview boolean DEFAULT false, p_reading jsonb DEFAULT '{}',
    p_lane text DEFAULT NULL
) RETURNS weighbridge.received
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET lock_timeout = '5s'
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
        PERFORM make_project(p_project, NULL); -- its first file creates it
    END IF;
    LOOP
        INSERT INTO public.data_uploads (workspace_id, client_id, platform, project_id, source, pipeline, filename, file_url,
                                  file_kind, content_sha256, byte_size, created_by, force_partial, forced,
                                  source_batch_id, traceparent, preview, reading, lane, storage_status, run_after, error_code,
                                  error_text)
        VALUES (p_workspace, p_client, p_platform, p_project, p_source, p_pipeline, p_filename, p_file_url,
                p_file_kind, p_sha256, p_size, p_created_by, p_force_partial, p_forced, p_batch, p_traceparent,
                p_preview, p_reading, p_lane,
                CASE WHEN v_deferred THEN 'pending_retry' ELSE 'stored' END,
                CASE WHEN v_deferred THEN timestamptz 'infinity' ELSE '-infinity' END,
                CASE WHEN v_deferred THEN 'STORAGE_PENDING_RETRY' END,
                CASE WHEN v_deferred THEN 'Upload deferred and will retry automatically' END)
        ON CONFLICT DO NOTHING
        RETURNING id INTO v_id;
        IF v_id IS NOT NULL THEN
            PERFORM pg_notify('weighbridge_work', '');
            PERFORM notify_live(p_workspace, v_id, 'pending');
            RETURN (v_id, false, NULL::text);
        END IF;
        SELECT * INTO v_known
        FROM known_upload(p_workspace, p_pipeline, p_client, p_platform, p_project, p_sha256, p_batch, p_forced, p_reading);
        IF FOUND THEN
            RETURN v_known;
        END IF;
        -- The known upload failed between the two statements: insert again.
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION weighbridge.receive_upload(uuid, uuid, text, bigint, text, text, text, text, text, bytea, bigint,
    uuid, boolean, boolean, text, text, boolean, jsonb, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.receive_upload(uuid, uuid, text, bigint, text, text, text, text, text, bytea, bigint,
    uuid, boolean, boolean, text, text, boolean, jsonb, text) TO weighbridge_intake;

-- Counts that a file was sent again.
CREATE OR REPLACE FUNCTION weighbridge.note_duplicate(p_upload uuid, p_filename text) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        INSERT INTO public.upload_duplicates AS u (upload_id, workspace_id, filename)
        SELECT d.id, d.workspace_id, coalesce(p_filename, '')
        FROM public.data_uploads d WHERE d.id = p_upload AND d.workspace_id = weighbridge.workspace()
        ON CONFLICT (upload_id, filename) DO UPDATE SET times = u.times + 1, last_at = excluded.last_at
    $$;
REVOKE ALL ON FUNCTION weighbridge.note_duplicate(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.note_duplicate(uuid, text) TO weighbridge_intake;

-- Order of arrival -------------------------------------------------------------------------------------------

-- The upload of a lane whose turn it is: one whose promotion has begun, or the one with the lowest position. The others do not
-- wait for a preview on hold, a file that is not stored, or one that is tried again only after a minute. Such a file can be late:
-- see is_late.
CREATE OR REPLACE FUNCTION weighbridge.lane_head(p_workspace uuid, p_lane text) RETURNS uuid
    LANGUAGE sql STABLE
    AS $$
        SELECT coalesce(
            (SELECT e.id FROM public.data_uploads e
             WHERE e.workspace_id = p_workspace AND e.lane = p_lane
               AND (e.status = 'promoting'
                    OR e.watermark_entity <> '' AND e.status IN ('pending', 'processing', 'staging_complete'))
             ORDER BY e.status = 'promoting' DESC, e.position LIMIT 1),
            (SELECT e.id FROM public.data_uploads e
             WHERE e.workspace_id = p_workspace AND e.lane = p_lane
               AND e.status IN ('pending', 'processing', 'staging_complete', 'promoting')
               AND NOT e.preview AND e.storage_status = 'stored' AND e.run_after <= weighbridge.now() + INTERVAL '1 minute'
             ORDER BY e.position LIMIT 1))
    $$;
REVOKE ALL ON FUNCTION weighbridge.lane_head(uuid, text) FROM PUBLIC;

-- The upload that a staged upload waits for before it is promoted; NULL: none. The files of a lane are promoted one after
-- another, in the order of their positions.
CREATE OR REPLACE FUNCTION weighbridge.waits_for(p_upload public.data_uploads) RETURNS uuid
    LANGUAGE sql STABLE
    AS $$
        SELECT nullif(CASE WHEN p_upload.lane IS NOT NULL THEN weighbridge.lane_head(p_upload.workspace_id, p_upload.lane) END,
                      p_upload.id)
    $$;
REVOKE ALL ON FUNCTION weighbridge.waits_for(public.data_uploads) FROM PUBLIC;

-- The upload counts as arrived now.
CREATE OR REPLACE FUNCTION weighbridge.count_as_newest(p_upload uuid) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$ UPDATE public.data_uploads SET position = nextval('arrivals') WHERE id = p_upload $$;
REVOKE ALL ON FUNCTION weighbridge.count_as_newest(uuid) FROM PUBLIC;

-- Whether rows of a later file of its lane are in production. Then the rows of this one must not replace those.
CREATE OR REPLACE FUNCTION weighbridge.is_late(p_upload public.data_uploads) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
        SELECT p_upload.lane IS NOT NULL AND EXISTS (
            SELECT FROM public.data_uploads e
            WHERE e.workspace_id = p_upload.workspace_id AND e.lane = p_upload.lane AND e.position > p_upload.position
              AND e.has_rows)
    $$;
REVOKE ALL ON FUNCTION weighbridge.is_late(public.data_uploads) FROM PUBLIC;

-- Serialises the decisions about one lane, until the end of the transaction. Tried, not waited for, by claims.
CREATE OR REPLACE FUNCTION weighbridge.lane_lock(p_upload public.data_uploads) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT hashtextextended(format('%s/%s', p_upload.workspace_id, p_upload.lane), 8) $$;
REVOKE ALL ON FUNCTION weighbridge.lane_lock(public.data_uploads) FROM PUBLIC;

-- For claims: whether the upload, which the caller has locked, is not staged or may be promoted now. If it may, no other file of
-- its lane begins before the transaction ends. False also while another transaction decides about the lane.
CREATE OR REPLACE FUNCTION weighbridge.may_promote_now(p_upload uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_row public.data_uploads;
BEGIN
    SELECT * INTO v_row FROM public.data_uploads WHERE id = p_upload;
    IF v_row.status = 'pending' OR v_row.lane IS NULL THEN
        RETURN true;
    END IF;
    IF NOT pg_try_advisory_xact_lock(lane_lock(v_row)) THEN
        RETURN false;
    END IF;
    RETURN waits_for(v_row) IS NULL; -- a statement of its own: it sees what was committed before the lock
END $$;
REVOKE ALL ON FUNCTION weighbridge.may_promote_now(uuid) FROM PUBLIC;

-- Wakes the workers if a staged file of the lane may have waited for this upload.
CREATE OR REPLACE FUNCTION weighbridge.wake_lane(p_upload public.data_uploads) RETURNS void
    LANGUAGE sql
    AS $$
        SELECT pg_notify('weighbridge_work', '') WHERE EXISTS (
            SELECT FROM public.data_uploads e
            WHERE e.workspace_id = p_upload.workspace_id AND e.lane = p_upload.lane AND e.status = 'staging_complete')
    $$;
REVOKE ALL ON FUNCTION weighbridge.wake_lane(public.data_uploads) FROM PUBLIC;

-- Claim ------------------------------------------------------------------------------------------------------

-- Slots of a workspace that live attempts at uploads hold.
CREATE OR REPLACE FUNCTION weighbridge.slots_in_use(p_workspace uuid) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
        SELECT count(*) FROM weighbridge.attempts a
        WHERE a.queue = 'uploads' AND a.workspace_id = p_workspace AND a.closed_at IS NULL AND a.slot IS NOT NULL
    $$;
REVOKE ALL ON FUNCTION weighbridge.slots_in_use(uuid) FROM PUBLIC;

-- Whether a live attempt at the upload exists. SECURITY DEFINER: tenants cannot read attempts.
CREATE OR REPLACE FUNCTION weighbridge.has_live_attempt(p_upload uuid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        SELECT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = p_upload AND a.closed_at IS NULL)
    $$;
REVOKE ALL ON FUNCTION weighbridge.has_live_attempt(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.has_live_attempt(uuid) TO weighbridge_tenant;

-- Opens an attempt at an upload whose row the caller has locked, in a free slot of its workspace. NULL: no slot is free.
CREATE OR REPLACE FUNCTION weighbridge.open_attempt(
    p_upload uuid, p_workspace uuid, p_worker text, p_lease interval, p_per_workspace int, p_under uuid
) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_now timestamptz := weighbridge.now();
    v_token uuid;
BEGIN
    FOR v_slot IN 1 .. p_per_workspace LOOP
        -- The lock is tried, not waited for: a claim that froze before its commit keeps its slot and blocks no other.
        CONTINUE WHEN EXISTS (
                SELECT FROM attempts a
                WHERE a.queue = 'uploads' AND a.workspace_id = p_workspace AND a.slot = v_slot AND a.closed_at IS NULL)
            OR NOT pg_try_advisory_xact_lock(hashtextextended(format('%s/%s', p_workspace, v_slot), 2));
        INSERT INTO attempts AS a (queue, subject, workspace_id, slot, worker, opened_at, progressed_at, lease_until,
                                   renewed_at, under)
        VALUES ('uploads', p_upload, p_workspace, v_slot, p_worker, v_now, v_now, v_now + p_lease, v_now, p_under)
        ON CONFLICT DO NOTHING
        RETURNING a.lease_token INTO v_token;
        EXIT WHEN v_token IS NOT NULL;
    END LOOP;
    IF v_token IS NOT NULL THEN
        INSERT INTO unbroken (lease_token) VALUES (v_token);
        UPDATE public.data_uploads d
        SET status = CASE d.status WHEN 'pending' THEN 'processing' ELSE 'promoting' END,
            started_at = coalesce(d.started_at, v_now), attempts = d.attempts + 1
        WHERE d.id = p_upload;
    END IF;
    RETURN v_token;
END $$;
REVOKE ALL ON FUNCTION weighbridge.open_attempt(uuid, uuid, text, interval, int, uuid) FROM PUBLIC;

-- The uploads of a workspace that can be claimed now, oldest first. Of the staged files of each lane, only the one whose turn it
-- is: the others are not looked at, however many they are.
CREATE OR REPLACE FUNCTION weighbridge.claimable_uploads(p_workspace uuid, p_from text[], p_pipelines text[], p_limit int)
    RETURNS SETOF uuid
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, pg_temp
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
    AS $$
        WITH RECURSIVE lanes (lane) AS ( -- a loose index scan
            (SELECT d.lane FROM public.data_uploads d
             WHERE d.workspace_id = p_workspace AND d.lane IS NOT NULL
               AND d.status IN ('pending', 'processing', 'staging_complete', 'promoting')
               AND 'staging_complete' = ANY (p_from)
             ORDER BY d.lane LIMIT 1)
            UNION ALL
            SELECT (SELECT d.lane FROM public.data_uploads d
                    WHERE d.workspace_id = p_workspace AND d.lane IS NOT NULL AND d.lane > l.lane
                      AND d.status IN ('pending', 'processing', 'staging_complete', 'promoting')
                    ORDER BY d.lane LIMIT 1)
            FROM lanes l WHERE l.lane IS NOT NULL
        ), waiting AS (
            (SELECT d.id, d.created_at FROM public.data_uploads d
             WHERE d.workspace_id = p_workspace AND d.status IN ('pending', 'staging_complete') AND d.project_id IS NULL
               AND (d.status = 'pending' OR d.lane IS NULL)
               AND d.status = ANY (p_from) AND d.pipeline = ANY (p_pipelines) AND d.run_after <= weighbridge.now()
               -- not one that is staged and whose own attempt continues with promotion
               AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = d.id AND a.closed_at IS NULL)
             ORDER BY d.created_at, d.id LIMIT p_limit)
            UNION ALL
            SELECT d.id, d.created_at
            FROM (SELECT lane_head(p_workspace, l.lane) AS id FROM lanes l WHERE l.lane IS NOT NULL OFFSET 0) head
            CROSS JOIN LATERAL (SELECT * FROM public.data_uploads u WHERE u.id = head.id OFFSET 0) d
            WHERE d.status = 'staging_complete' AND d.project_id IS NULL
              AND d.pipeline = ANY (p_pipelines) AND d.run_after <= weighbridge.now()
              AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = d.id AND a.closed_at IS NULL)
        )
        SELECT w.id FROM waiting w ORDER BY w.created_at, w.id LIMIT p_limit
    $$;
REVOKE ALL ON FUNCTION weighbridge.claimable_uploads(uuid, text[], text[], int) FROM PUBLIC;

-- Claims the oldest upload of the next workspace: of those with a free slot, the one with the fewest running attempts, then
-- the one that got a slot longest ago. p_skip: not of these workspaces, as a worker keeps its last slot for another one. No
-- row: nothing can be claimed. Jobs of projects are claimed by claim_job.
CREATE OR REPLACE FUNCTION weighbridge.claim_waiting_upload(
    p_worker text, p_from text[], p_pipelines text[], p_lease interval, p_per_workspace int, p_skip uuid[] DEFAULT '{}'
) RETURNS TABLE (upload_id uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_workspace uuid;
    v_upload uuid;
    v_token uuid;
BEGIN
    FOR v_workspace IN
        -- A loose index scan: one probe per workspace with waiting uploads, however many each has, so that a workspace
        -- without free slots does not block the others.
        WITH RECURSIVE waiting (workspace_id) AS (
            (SELECT d.workspace_id FROM public.data_uploads d
             WHERE d.status IN ('pending', 'staging_complete') AND d.project_id IS NULL
             ORDER BY d.workspace_id LIMIT 1)
            UNION ALL
            SELECT (SELECT d.workspace_id FROM public.data_uploads d
                    WHERE d.status IN ('pending', 'staging_complete') AND d.project_id IS NULL
                      AND d.workspace_id > w.workspace_id
                    ORDER BY d.workspace_id LIMIT 1)
            FROM waiting w WHERE w.workspace_id IS NOT NULL
        )
        SELECT w.workspace_id
        FROM waiting w
        CROSS JOIN LATERAL (
            SELECT d.created_at FROM public.data_uploads d
            WHERE d.workspace_id = w.workspace_id AND d.status IN ('pending', 'staging_complete')
              AND d.project_id IS NULL
              AND d.status = ANY (p_from) AND d.pipeline = ANY (p_pipelines) AND d.run_after <= v_now
              AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = d.id AND a.closed_at IS NULL)
            ORDER BY d.created_at, d.id LIMIT 1
        ) head
        LEFT JOIN running_work() r USING (workspace_id)
        WHERE w.workspace_id <> ALL (p_skip) AND slots_in_use(w.workspace_id) < p_per_workspace
        ORDER BY coalesce(r.attempts, 0), served_at(w.workspace_id), head.created_at
    LOOP
        v_token := NULL;
        FOR v_upload IN SELECT c FROM claimable_uploads(v_workspace, p_from, p_pipelines, 20) c LOOP
            -- SKIP LOCKED: a slow claim must not queue the others. Another one may have claimed it since.
            PERFORM FROM public.data_uploads d
            WHERE d.id = v_upload AND d.status = ANY (p_from) AND d.run_after <= v_now
              AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = d.id AND a.closed_at IS NULL)
            FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND OR NOT may_promote_now(v_upload);
            v_token := open_attempt(v_upload, v_workspace, p_worker, p_lease, p_per_workspace, NULL);
            EXIT; -- without a token, no slot is free
        END LOOP;
        CONTINUE WHEN v_token IS NULL;
        PERFORM note_turn(v_workspace);
        upload_id := v_upload;
        lease_token := v_token;
        RETURN NEXT;
        RETURN;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION weighbridge.claim_waiting_upload(text, text[], text[], interval, int, uuid[]) FROM PUBLIC;

-- Claims the next upload. Abandoned work returns to its queue first, in the same statement, so that it can be claimed immediately;
-- a run with a live lease is not touched.
CREATE OR REPLACE FUNCTION weighbridge.claim_upload(
    p_worker text, p_from text[], p_pipelines text[], p_lease interval, p_per_workspace int, p_max_crashes int,
    p_skip uuid[] DEFAULT '{}'
) RETURNS TABLE (upload_id uuid, lease_token uuid, abandoned jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
#variable_conflict use_column
BEGIN
    abandoned := recover_abandoned(p_max_crashes);
    SELECT c.upload_id, c.lease_token INTO upload_id, lease_token
    FROM claim_waiting_upload(p_worker, p_from, p_pipelines, p_lease, p_per_workspace, p_skip) c;
    IF upload_id IS NOT NULL OR abandoned IS NOT NULL THEN
        RETURN NEXT;
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.claim_upload(text, text[], text[], interval, int, int, uuid[]) FROM PUBLIC;

-- Returns an upload to its queue: after a graceful stop (no delay, no failure), or to try again later.
CREATE OR REPLACE FUNCTION weighbridge.release_upload(
    p_token uuid, p_delay interval, p_failed boolean, p_error text
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'released', p_error);
    UPDATE public.data_uploads
    SET status = CASE status WHEN 'processing' THEN 'pending' WHEN 'promoting' THEN 'staging_complete' ELSE status END,
        run_after = weighbridge.now() + p_delay,
        failures = failures + p_failed::int
    WHERE id = v_upload;
    PERFORM pg_notify('weighbridge_work', '');
END $$;
REVOKE ALL ON FUNCTION weighbridge.release_upload(uuid, interval, boolean, text) FROM PUBLIC;

-- Fails an upload and closes its attempt.
CREATE OR REPLACE FUNCTION weighbridge.fail_upload(p_token uuid, p_code text, p_text text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_row public.data_uploads;
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_text);
    UPDATE public.data_uploads
    SET status = 'failed', error_code = p_code, error_text = p_text, finished_at = weighbridge.now()
    WHERE id = v_upload
    RETURNING * INTO v_row;
    PERFORM wake_lane(v_row);
END $$;
REVOKE ALL ON FUNCTION weighbridge.fail_upload(uuid, text, text) FROM PUBLIC;

-- Parse ------------------------------------------------------------------------------------------------------

-- Removes the rows, rejections and links that an earlier attempt staged. p_digest: of the rows that will be staged.
CREATE OR REPLACE FUNCTION weighbridge.reset_staging(p_token uuid, p_digest bytea) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_table text;
BEGIN
    FOR v_table IN SELECT tablename FROM pg_tables WHERE schemaname = 'staging' LOOP
        EXECUTE format('DELETE FROM staging.%I WHERE upload_id = $1', v_table) USING v_upload;
    END LOOP;
    DELETE FROM public.staging_id_resolution WHERE upload_id = v_upload;
    DELETE FROM staging_groups WHERE upload_id = v_upload;
    DELETE FROM public.upload_rejections WHERE upload_id = v_upload AND stage = 'parse'; -- the others belong to the watermark
    DELETE FROM upload_fixes WHERE upload_id = v_upload;
    UPDATE public.data_uploads SET staged = '{}', staging_digest = p_digest WHERE id = v_upload;
END $$;
REVOKE ALL ON FUNCTION weighbridge.reset_staging(uuid, bytea) FROM PUBLIC;

-- True if the rows staged by an earlier attempt are the first rows of this one; otherwise they are removed.
CREATE OR REPLACE FUNCTION weighbridge.begin_staging(p_token uuid, p_digest bytea) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    IF EXISTS (SELECT FROM public.data_uploads WHERE id = v_upload AND staging_digest = p_digest AND staged <> '{}') THEN
        RETURN true;
    END IF;
    PERFORM reset_staging(p_token, p_digest);
    RETURN false;
END $$;
REVOKE ALL ON FUNCTION weighbridge.begin_staging(uuid, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.begin_staging(uuid, bytea) TO weighbridge_parse;

-- Progress of parsing: rows read.
CREATE OR REPLACE FUNCTION weighbridge.note_rows_read(p_token uuid, p_rows bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE public.data_uploads SET rows_read = p_rows WHERE id = v_upload;
    PERFORM note_progress(p_token);
END $$;
REVOKE ALL ON FUNCTION weighbridge.note_rows_read(uuid, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.note_rows_read(uuid, bigint) TO weighbridge_parse;

-- Progress of staging: the last seq of each entity (entity → seq), in the transaction that wrote them.
CREATE OR REPLACE FUNCTION weighbridge.note_staged(p_token uuid, p_staged jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE public.data_uploads SET staged = staged || p_staged WHERE id = v_upload;
    PERFORM note_progress(p_token);
END $$;
REVOKE ALL ON FUNCTION weighbridge.note_staged(uuid, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.note_staged(uuid, jsonb) TO weighbridge_parse;

-- The columns of a file that is refused as a whole.
CREATE OR REPLACE FUNCTION weighbridge.note_columns(p_token uuid, p_columns text[], p_report jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        UPDATE public.data_uploads SET columns = p_columns, column_report = p_report WHERE id = fence(p_token)
    $$;
REVOKE ALL ON FUNCTION weighbridge.note_columns(uuid, text[], jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.note_columns(uuid, text[], jsonb) TO weighbridge_parse;

-- Ends parsing: counts, columns, how the file was read, the last rows (p_staged, as in note_staged) and the status
-- staging_complete.
CREATE OR REPLACE FUNCTION weighbridge.finish_staging(
    p_token uuid, p_bins jsonb, p_columns text[], p_mapping jsonb, p_dates date[], p_digest bytea, p_report jsonb,
    p_read_as jsonb, p_staged jsonb
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_workspace uuid;
    v_rows bigint := (p_bins ->> 'accepted')::bigint + (p_bins ->> 'duplicate')::bigint + (p_bins ->> 'rejected')::bigint;
BEGIN
    SELECT workspace_id INTO v_workspace FROM public.data_uploads WHERE id = v_upload;
    -- Parsed again, after staging was lost during a promotion: the watermark is valid if the same rows are in the same
    -- order. They are, unless the program or the declaration has changed; then promotion starts again.
    UPDATE public.data_uploads
    SET watermark_entity = '', watermark_seq = 0, promoted = '{}', promoted_rows = 0
    WHERE id = v_upload AND staged_digest <> p_digest; -- NULL: it was never staged completely
    IF FOUND THEN
        DELETE FROM public.upload_rejections WHERE upload_id = v_upload AND stage = 'promote';
        DELETE FROM public.upload_warnings WHERE upload_id = v_upload;
    END IF;
    -- From here until the end no dimension row of the workspace can be deleted: see keep_dimension.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_workspace::text, 1));
    UPDATE public.data_uploads
    SET status = 'staging_complete', bins = p_bins, columns = p_columns, mapping = p_mapping, column_report = p_report,
        read_as = p_read_as, staged = staged || p_staged, affected_dates = p_dates, staged_digest = p_digest, failures = 0,
        staged_at = weighbridge.now(), rows_read = v_rows, total_rows = v_rows,
        failed_rows = (p_bins ->> 'rejected')::bigint
    WHERE id = v_upload;
    PERFORM note_progress(p_token);
END $$;
REVOKE ALL ON FUNCTION weighbridge.finish_staging(uuid, jsonb, text[], jsonb, date[], bytea, jsonb, jsonb, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.finish_staging(uuid, jsonb, text[], jsonb, date[], bytea, jsonb, jsonb, jsonb) TO
    weighbridge_parse;

-- Ends the parse attempt if another worker promotes: the staged upload can be claimed again.
CREATE OR REPLACE FUNCTION weighbridge.release_staged(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    PERFORM pg_notify('weighbridge_work', '');
END $$;
REVOKE ALL ON FUNCTION weighbridge.release_staged(uuid) FROM PUBLIC;

-- Promote ----------------------------------------------------------------------------------------------------

-- From staging_complete to promoting; also where the attempt claimed it as promoting. `in_order` or `late`; or it must wait for
-- another one of its lane: `wait` if that is in progress and p_patient, so that the attempt can ask again, else `released`, and
-- the attempt is closed.
CREATE OR REPLACE FUNCTION weighbridge.begin_promotion(p_token uuid, p_patient boolean) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_row public.data_uploads;
    v_earlier uuid;
BEGIN
    SELECT * INTO v_row FROM public.data_uploads WHERE id = v_upload;
    IF v_row.status NOT IN ('staging_complete', 'promoting') THEN
        RAISE EXCEPTION 'upload % is not staged', v_upload USING ERRCODE = 'WB001';
    END IF;
    IF v_row.lane IS NOT NULL AND v_row.status = 'staging_complete' THEN
        PERFORM pg_advisory_xact_lock(lane_lock(v_row));
        v_earlier := waits_for(v_row);
        IF v_earlier IS NOT NULL AND p_patient AND has_live_attempt(v_earlier)
           AND (SELECT count(*) FROM (SELECT FROM public.data_uploads e
                                      WHERE e.workspace_id = v_row.workspace_id AND e.lane = v_row.lane
                                        AND e.position < v_row.position AND NOT e.preview
                                        AND e.status IN ('pending', 'processing', 'staging_complete', 'promoting')
                                      LIMIT 3) AS few) < 3 THEN
            RETURN 'wait';
        ELSIF v_earlier IS NOT NULL THEN
            PERFORM close_attempt(p_token, 'done', NULL);
            RETURN 'released';
        END IF;
    END IF;
    UPDATE public.data_uploads SET status = 'promoting' WHERE id = v_upload;
    RETURN CASE WHEN is_late(v_row) THEN 'late' ELSE 'in_order' END;
END $$;
REVOKE ALL ON FUNCTION weighbridge.begin_promotion(uuid, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.begin_promotion(uuid, boolean) TO weighbridge_promote;

-- The later files of its lane whose rows are in production, and the groups of rows that they did not stage because production
-- already had them.
CREATE OR REPLACE FUNCTION weighbridge.later_uploads(p_upload uuid) RETURNS TABLE (
    id uuid, client_id uuid, platform text, project_id bigint, column_report jsonb, groups text[])
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        SELECT e.id, e.client_id, e.platform, e.project_id, e.column_report, ARRAY(SELECT g.group_key FROM staging_groups g WHERE g.upload_id = e.id AND g.skipped)
        FROM public.data_uploads d
        JOIN public.data_uploads e ON e.workspace_id = d.workspace_id AND e.lane = d.lane AND e.position > d.position
        WHERE d.id = p_upload AND e.has_rows
    $$;
REVOKE ALL ON FUNCTION weighbridge.later_uploads(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.later_uploads(uuid) TO weighbridge_promote;

-- The staged rows are lost (an unlogged table after a crash of Postgres, or older than the retention period): parse again.
CREATE OR REPLACE FUNCTION weighbridge.restage_upload(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'released', 'the staged rows were lost');
    UPDATE public.data_uploads
    SET status = 'pending', staged = '{}', staged_at = NULL
    WHERE id = v_upload;
    PERFORM pg_notify('weighbridge_work', '');
END $$;
REVOKE ALL ON FUNCTION weighbridge.restage_upload(uuid) FROM PUBLIC;

-- Counts and watermark, in the transaction that wrote the rows.
CREATE OR REPLACE FUNCTION weighbridge.advance_promotion(
    p_token uuid, p_entity text, p_seq bigint, p_promoted jsonb, p_promoted_rows bigint
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE public.data_uploads
    SET watermark_entity = p_entity, watermark_seq = p_seq, promoted = p_promoted, promoted_rows = p_promoted_rows,
        has_rows = true, failures = 0
    WHERE id = v_upload;
    PERFORM note_progress(p_token);
END $$;
REVOKE ALL ON FUNCTION weighbridge.advance_promotion(uuid, text, bigint, jsonb, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.advance_promotion(uuid, text, bigint, jsonb, bigint) TO weighbridge_promote;

-- Ends a promotion: status, row_count and the event with a delivery per consumer, in one transaction.
CREATE OR REPLACE FUNCTION weighbridge.finish_upload(
    p_token uuid, p_status text, p_failed_rows bigint, p_error_code text, p_error text, p_consumers text[]
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_now timestamptz := weighbridge.now();
    v_emits boolean;
    v_row public.data_uploads;
BEGIN
    PERFORM close_attempt(p_token, 'done', p_error);
    SELECT p_status IN ('completed', 'partial') AND promoted_rows > 0 AND NOT event_emitted INTO v_emits
    FROM public.data_uploads WHERE id = v_upload;
    UPDATE public.data_uploads
    SET status = p_status, row_count = promoted_rows, failed_rows = p_failed_rows, error_code = p_error_code,
        warnings = (SELECT count(*) FROM public.upload_warnings w WHERE w.upload_id = v_upload),
        error_text = p_error, finished_at = v_now, failures = 0, event_emitted = event_emitted OR v_emits
    WHERE id = v_upload
    RETURNING * INTO v_row;
    PERFORM wake_lane(v_row);
    IF v_emits THEN
        PERFORM emit(v_row.workspace_id, v_row.id, 'IngestionCompleteEvent', jsonb_build_object(
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
                FROM jsonb_each(v_row.promoted) e), '{}') || coalesce((
                SELECT jsonb_object_agg(e.value ->> 'table' || '_superseded', (e.value ->> 'superseded')::bigint)
                FROM jsonb_each(v_row.promoted) e WHERE e.value ? 'superseded'), '{}'),
            'affected_dates', to_jsonb(v_row.affected_dates),
            'timestamp', v_now), p_consumers);
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.finish_upload(uuid, text, bigint, text, text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.finish_upload(uuid, text, bigint, text, text, text[]) TO weighbridge_promote;

-- Marks the staged rows of an old, finished upload as deleted; the caller deletes them in the same transaction.
CREATE OR REPLACE FUNCTION weighbridge.expire_staging(p_upload uuid, p_age interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    -- SKIP LOCKED: the next run deletes them. This one serves all workspaces.
    PERFORM FROM public.data_uploads WHERE id = p_upload FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE public.data_uploads SET staged_at = NULL, staged = '{}'
    WHERE id = p_upload AND status IN ('completed', 'partial', 'failed')
      AND (staged_at IS NOT NULL OR staged <> '{}') AND coalesce(staged_at, finished_at) < weighbridge.now() - p_age;
    RETURN FOUND;
END $$;
REVOKE ALL ON FUNCTION weighbridge.expire_staging(uuid, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.expire_staging(uuid, interval) TO weighbridge_clean;

-- Production tables ------------------------------------------------------------------------------------------

-- A write to a production table by anything other than promotion voids the receipts of the workspaces whose rows it changed,
-- and of no others: a transaction that stays open must not block another workspace. TRUNCATE voids all.
CREATE OR REPLACE FUNCTION weighbridge.void_receipts() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspaces uuid[];
BEGIN
    IF current_setting('role', true) = 'weighbridge_promote' THEN
        RETURN NULL;
    END IF;
    CASE TG_OP
        WHEN 'INSERT' THEN v_workspaces := ARRAY(SELECT DISTINCT n.workspace_id FROM new_rows n);
        WHEN 'DELETE' THEN v_workspaces := ARRAY(SELECT DISTINCT o.workspace_id FROM old_rows o);
        WHEN 'UPDATE' THEN
            v_workspaces := ARRAY(SELECT n.workspace_id FROM new_rows n UNION SELECT o.workspace_id FROM old_rows o);
        ELSE DELETE FROM receipts r WHERE r.target = TG_TABLE_NAME;
    END CASE;
    PERFORM void_receipts_of(TG_TABLE_NAME, v_workspaces);
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION weighbridge.void_receipts() FROM PUBLIC;

-- Voids the receipts that some workspaces have for a production table.
CREATE OR REPLACE FUNCTION weighbridge.void_receipts_of(p_target text, p_workspaces uuid[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    SET enable_seqscan = off -- statistics may not know a new workspace
    AS $$ DELETE FROM receipts r WHERE r.workspace_id = ANY (p_workspaces) AND r.target = p_target $$;
REVOKE ALL ON FUNCTION weighbridge.void_receipts_of(text, uuid[]) FROM PUBLIC;

-- Creates the triggers that void receipts on a table of facts. Promotion writes a thousand rows per statement, so that their
-- transition tables stay in memory: they cost a promotion nothing that can be measured.
CREATE OR REPLACE FUNCTION weighbridge.watch_writes(p_table regclass) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER void_receipts AFTER TRUNCATE ON %s'
        ' FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts()', p_table);
    EXECUTE format('CREATE OR REPLACE TRIGGER void_receipts_inserted AFTER INSERT ON %s REFERENCING NEW TABLE AS new_rows'
        ' FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts()', p_table);
    EXECUTE format('CREATE OR REPLACE TRIGGER void_receipts_updated AFTER UPDATE ON %s'
        ' REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows'
        ' FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts()', p_table);
    EXECUTE format('CREATE OR REPLACE TRIGGER void_receipts_deleted AFTER DELETE ON %s REFERENCING OLD TABLE AS old_rows'
        ' FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts()', p_table);
END $$;
REVOKE ALL ON FUNCTION weighbridge.watch_writes(regclass) FROM PUBLIC;

-- Also the tables of pipelines that were installed by an earlier version.
SELECT weighbridge.watch_writes(t.oid)
FROM pg_class t
WHERE t.oid = ANY ('{public.daily_metrics,public.judgments,public.keywords,public.sales}'::regclass[])
   OR EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = t.oid AND g.tgparentid = 0
              AND g.tgfoid = 'weighbridge.void_receipts()'::regprocedure)
ORDER BY t.oid;

-- A dimension row cannot be deleted while facts refer to it, or while a staged or promoting upload may still write such facts.
-- A preview on hold writes nothing.
CREATE OR REPLACE FUNCTION weighbridge.keep_dimension() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(OLD.workspace_id::text, 1));
    IF EXISTS (SELECT FROM public.data_uploads
               WHERE workspace_id = OLD.workspace_id
                 AND (status = 'staging_complete' AND NOT preview OR status = 'promoting'
                      OR status IN ('pending', 'processing') AND watermark_entity <> '')) -- to be staged again
       OR EXISTS (SELECT FROM public.daily_metrics f
                  WHERE f.workspace_id = OLD.workspace_id AND f.client_id IS NOT DISTINCT FROM OLD.client_id
                    AND f.platform = OLD.platform
                    AND CASE TG_TABLE_NAME WHEN 'campaigns' THEN f.campaign_id
                                           WHEN 'ad_sets' THEN f.ad_set_id ELSE f.ad_id END = OLD.id)
    THEN
        RAISE EXCEPTION '% % is in use by daily_metrics', TG_TABLE_NAME, OLD.id
            USING ERRCODE = 'foreign_key_violation',
                  HINT = 'Delete its daily_metrics first, while no upload of the workspace is being promoted.';
    END IF;
    RETURN OLD;
END $$;
REVOKE ALL ON FUNCTION weighbridge.keep_dimension() FROM PUBLIC;
CREATE OR REPLACE TRIGGER keep_dimension BEFORE DELETE ON public.campaigns
    FOR EACH ROW EXECUTE FUNCTION weighbridge.keep_dimension();
CREATE OR REPLACE TRIGGER keep_dimension BEFORE DELETE ON public.ad_sets
    FOR EACH ROW EXECUTE FUNCTION weighbridge.keep_dimension();
CREATE OR REPLACE TRIGGER keep_dimension BEFORE DELETE ON public.ads
    FOR EACH ROW EXECUTE FUNCTION weighbridge.keep_dimension();

-- Preview ----------------------------------------------------------------------------------------------------

-- For every change of status: an upload on hold is postponed without end; an upload that is no longer on hold is not.
CREATE OR REPLACE FUNCTION weighbridge.hold_preview() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.preview AND NEW.status = 'staging_complete' THEN
        NEW.run_after := 'infinity';
        IF OLD.status <> NEW.status THEN
            NEW.preview_counts := NULL; -- they counted other rows
            NEW.previewed_at := NULL;
        END IF;
    ELSIF OLD.preview AND OLD.status = 'staging_complete' AND NEW.run_after = 'infinity' THEN
        NEW.run_after := '-infinity';
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION weighbridge.hold_preview() FROM PUBLIC;
CREATE OR REPLACE TRIGGER hold_preview BEFORE UPDATE OF status, preview, run_after ON public.data_uploads
    FOR EACH ROW WHEN (NEW.preview OR OLD.preview) EXECUTE FUNCTION weighbridge.hold_preview();

-- Ends the attempt that parsed a preview: it now waits for a person. Alerts about its earlier failures are withdrawn.
CREATE OR REPLACE FUNCTION weighbridge.hold_upload(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_row public.data_uploads;
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    UPDATE public.data_uploads SET warnings = (SELECT count(*) FROM public.upload_warnings w WHERE w.upload_id = v_upload)
    WHERE id = v_upload
    RETURNING * INTO v_row;
    PERFORM withdraw_alert('ingest_failure', v_upload::text, format('[INGEST RECOVERED] %s: on hold', batch_name(v_row)));
    PERFORM close_takeover_alerts(v_row, 'on hold');
    PERFORM notify_live(v_row.workspace_id, v_row.id, v_row.status);
    PERFORM pg_notify('weighbridge_work', ''); -- an operator may have promoted it already
END $$;
REVOKE ALL ON FUNCTION weighbridge.hold_upload(uuid) FROM PUBLIC;

-- The counts of the comparison with production, if the upload is still on hold.
CREATE OR REPLACE FUNCTION weighbridge.note_preview(p_upload uuid, p_counts jsonb, p_at timestamptz) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        UPDATE public.data_uploads SET preview_counts = p_counts, previewed_at = p_at
        WHERE id = p_upload AND preview AND status = 'staging_complete'
    $$;
REVOKE ALL ON FUNCTION weighbridge.note_preview(uuid, jsonb, timestamptz) FROM PUBLIC;

-- Locks an upload if it is on hold and has no live attempt, and returns whether it did. The row of its project is
-- locked first, as when a job is opened again: the project must not be edited meanwhile.
CREATE OR REPLACE FUNCTION weighbridge.lock_preview_on_hold(p_upload uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET lock_timeout = '5s'
    AS $$
BEGIN
    PERFORM FROM public.projects p JOIN public.data_uploads d ON d.workspace_id = p.workspace_id AND d.project_id = p.id
    WHERE d.id = p_upload FOR KEY SHARE OF p;
    PERFORM FROM public.data_uploads WHERE id = p_upload AND preview AND status = 'staging_complete' FOR UPDATE;
    RETURN FOUND AND NOT has_live_attempt(p_upload);
END $$;
REVOKE ALL ON FUNCTION weighbridge.lock_preview_on_hold(uuid) FROM PUBLIC;

-- True: this call promoted it, and it counts as arrived now. False: it is not, or no longer, on hold.
CREATE OR REPLACE FUNCTION weighbridge.promote_preview(p_upload uuid, p_actor text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_row public.data_uploads;
BEGIN
    IF NOT lock_preview_on_hold(p_upload) THEN
        RETURN false;
    END IF;
    SELECT * INTO v_row FROM public.data_uploads WHERE id = p_upload;
    -- From here until the end no dimension row of the workspace can be deleted: see keep_dimension.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_row.workspace_id::text, 1));
    UPDATE public.data_uploads SET preview = false, position = nextval('arrivals') WHERE id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_row.workspace_id, p_actor, 'upload.promote', p_upload, '{}');
    PERFORM notify_live(v_row.workspace_id, v_row.id, v_row.status);
    PERFORM pg_notify('weighbridge_work', '');
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION weighbridge.promote_preview(uuid, text) FROM PUBLIC;

-- True: this call discarded it; it had been on hold for at least p_age. The caller deletes its staged rows in the same
-- transaction. The batch name of a discarded upload can be used again.
CREATE OR REPLACE FUNCTION weighbridge.discard_preview(p_upload uuid, p_code text, p_text text, p_actor text, p_age interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_row public.data_uploads;
    v_now timestamptz := weighbridge.now();
BEGIN
    IF p_code = 'preview_expired' THEN -- by a chore, which serves all workspaces: it waits for no lock
        PERFORM FROM public.projects p JOIN public.data_uploads d ON d.workspace_id = p.workspace_id AND d.project_id = p.id
        WHERE d.id = p_upload FOR KEY SHARE OF p SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT FROM public.data_uploads d WHERE d.id = p_upload AND d.project_id IS NOT NULL) THEN
            RETURN false;
        END IF;
        PERFORM FROM public.data_uploads d WHERE d.id = p_upload FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    END IF;
    IF NOT lock_preview_on_hold(p_upload) THEN
        RETURN false;
    END IF;
    SELECT * INTO v_row FROM public.data_uploads WHERE id = p_upload;
    IF v_row.staged_at > v_now - p_age THEN
        RETURN false;
    END IF;
    UPDATE public.data_uploads
    SET status = 'failed', error_code = p_code, error_text = p_text, finished_at = v_now,
        dismissed_at = v_now, -- no dead letter
        source_batch_id = CASE WHEN p_code <> 'discarded' THEN source_batch_id END,
        preview_counts = NULL, previewed_at = NULL
    WHERE id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_row.workspace_id, p_actor, 'upload.discard', p_upload, jsonb_strip_nulls(jsonb_build_object(
        'error_code', p_code, 'source_batch_id', v_row.source_batch_id)));
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION weighbridge.discard_preview(uuid, text, text, text, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.discard_preview(uuid, text, text, text, interval) TO weighbridge_clean;

-- The staged rows are lost, or the declaration has changed: parse again, and hold again.
CREATE OR REPLACE FUNCTION weighbridge.restage_preview(p_upload uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    IF lock_preview_on_hold(p_upload) THEN
        UPDATE public.data_uploads SET status = 'pending', staged = '{}', staged_at = NULL WHERE id = p_upload;
        PERFORM pg_notify('weighbridge_work', '');
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.restage_preview(uuid) FROM PUBLIC;

-- Retry and dismiss ------------------------------------------------------------------------------------------

-- Opens a finished upload again, from the stored file, with its counts at zero. Returns 'pending', or the status that does not
-- permit it. The next attempt or, if it fails before, the clean-up removes the staged rows: so staged_at does not
-- change. A discarded preview is loaded without a preview.
CREATE OR REPLACE FUNCTION weighbridge.retry_upload(
    p_upload uuid, p_force_partial boolean, p_actor text, p_reading jsonb DEFAULT NULL, p_newest boolean DEFAULT false
) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET lock_timeout = '5s'
    AS $$
DECLARE
    v_before public.data_uploads;
BEGIN
    PERFORM FROM public.projects p JOIN public.data_uploads d ON d.workspace_id = p.workspace_id AND d.project_id = p.id
    WHERE d.id = p_upload FOR KEY SHARE OF p;
    SELECT * INTO v_before FROM public.data_uploads WHERE id = p_upload FOR UPDATE;
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
    UPDATE public.data_uploads
    SET status = 'pending', run_after = '-infinity', failures = 0, crashes = 0, error_code = NULL, error_text = NULL,
        finished_at = NULL, started_at = NULL, rows_read = 0, staged = '{}', watermark_entity = '',
        watermark_seq = 0, promoted = '{}', promoted_rows = 0, failed_rows = 0, total_rows = 0, warnings = 0,
        staged_at = CASE WHEN staged <> '{}' THEN coalesce(staged_at, finished_at) ELSE staged_at END,
        bins = NULL, row_count = NULL, affected_dates = '{}', force_partial = force_partial OR p_force_partial,
        preview = preview AND error_code IS DISTINCT FROM 'discarded',
        reading = coalesce(p_reading, reading), columns = '{}', column_report = '{}',
        position = CASE WHEN p_newest THEN nextval('arrivals') ELSE position END
    WHERE id = p_upload;
    PERFORM set_config('weighbridge.verb', '', true);
    DELETE FROM public.upload_rejections WHERE upload_id = p_upload;
    DELETE FROM public.upload_warnings WHERE upload_id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_before.workspace_id, p_actor, 'upload.retry', p_upload,
            jsonb_build_object('from', v_before.status, 'error_code', v_before.error_code,
                               'force_partial', p_force_partial, 'as_newest', p_newest)
            || CASE WHEN p_reading <> v_before.reading
                    THEN jsonb_build_object('reading', p_reading, 'reading_before', v_before.reading)
                    ELSE '{}' END);
    PERFORM pg_notify('weighbridge_work', '');
    RETURN 'pending';
END $$;
REVOKE ALL ON FUNCTION weighbridge.retry_upload(uuid, boolean, text, jsonb, boolean) FROM PUBLIC;

-- The read options of an upload whose file still waits for the store: retry_replay has opened it again in the same transaction.
CREATE OR REPLACE FUNCTION weighbridge.change_reading(p_upload uuid, p_reading jsonb, p_actor text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_before public.data_uploads;
BEGIN
    SELECT * INTO v_before FROM public.data_uploads WHERE id = p_upload AND status = 'pending' FOR UPDATE;
    IF NOT FOUND OR v_before.reading = p_reading THEN
        RETURN;
    END IF;
    UPDATE public.data_uploads SET reading = p_reading WHERE id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_before.workspace_id, p_actor, 'upload.reading', p_upload,
            jsonb_build_object('reading', p_reading, 'reading_before', v_before.reading));
END $$;
REVOKE ALL ON FUNCTION weighbridge.change_reading(uuid, jsonb, text) FROM PUBLIC;

-- Removes a failed upload from the dead letters. Returns its status.
CREATE OR REPLACE FUNCTION weighbridge.dismiss_upload(p_upload uuid, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_before public.data_uploads;
BEGIN
    SELECT * INTO v_before FROM public.data_uploads WHERE id = p_upload FOR UPDATE;
    IF v_before.status = 'failed' AND coalesce(v_before.dismissed_at, '-infinity') < v_before.finished_at THEN
        UPDATE public.data_uploads SET dismissed_at = weighbridge.now() WHERE id = p_upload;
        PERFORM withdraw_alert('ingest_failure', p_upload::text, format('[INGEST FAILURE DISMISSED] %s', batch_name(v_before)));
        INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
        VALUES (v_before.workspace_id, p_actor, 'upload.dismiss', p_upload,
                jsonb_build_object('error_code', v_before.error_code));
    END IF;
    RETURN v_before.status;
END $$;
REVOKE ALL ON FUNCTION weighbridge.dismiss_upload(uuid, text) FROM PUBLIC;

-- Removes the batch name from a failed upload, so that the fixed file can use it. Returns 'released', 'unnamed' where
-- it has no name, its status where it has not failed, or NULL where there is no such upload.
CREATE OR REPLACE FUNCTION weighbridge.release_batch(p_upload uuid, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET lock_timeout = '5s'
    AS $$
DECLARE
    v_before public.data_uploads;
BEGIN
    SELECT * INTO v_before FROM public.data_uploads WHERE id = p_upload FOR UPDATE;
    IF v_before.status <> 'failed' THEN
        RETURN v_before.status;
    END IF;
    IF v_before.source_batch_id IS NULL THEN
        RETURN CASE WHEN FOUND THEN 'unnamed' END;
    END IF;
    UPDATE public.data_uploads SET source_batch_id = NULL, released_batch_id = source_batch_id WHERE id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_before.workspace_id, p_actor, 'upload.release_batch', p_upload, jsonb_build_object(
        'source_batch_id', v_before.source_batch_id, 'error_code', v_before.error_code));
    RETURN 'released';
END $$;
REVOKE ALL ON FUNCTION weighbridge.release_batch(uuid, text) FROM PUBLIC;

-- Fixes of rejected rows -------------------------------------------------------------------------------------

-- Marks the rejected records that an upload has fixed: its record was loaded, or is a duplicate of a loaded one. Marks of an
-- earlier run of the same upload are replaced.
CREATE OR REPLACE FUNCTION weighbridge.mark_fixed(p_upload uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    -- The planner cannot know how long a chain of links is: other joins would read the links of all workspaces.
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
    AS $$
BEGIN
    -- A retry of an original removes its rejections: one of the two transactions waits for the other.
    PERFORM FROM public.data_uploads d
    WHERE d.id IN (
        WITH RECURSIVE originals AS (
            SELECT f.original_upload AS id FROM upload_fixes f WHERE f.upload_id = p_upload
            UNION
            SELECT f.original_upload FROM originals o JOIN upload_fixes f ON f.upload_id = o.id
        )
        SELECT o.id FROM originals o WHERE o.id <> p_upload
    )
    ORDER BY d.id FOR KEY SHARE;
    UPDATE public.upload_rejections SET fixed_by = NULL, fixed_at = NULL WHERE fixed_by = p_upload;
    WITH RECURSIVE fixed AS (
        SELECT f.original_upload AS upload_id, f.original_row AS row_index
        FROM upload_fixes f
        WHERE f.upload_id = p_upload
          AND NOT EXISTS (SELECT FROM public.upload_rejections r WHERE r.upload_id = p_upload AND r.row_index = f.row_index)
        UNION
        SELECT f.original_upload, f.original_row
        FROM fixed JOIN upload_fixes f ON f.upload_id = fixed.upload_id AND f.row_index = fixed.row_index
    ), locked AS ( -- in one order: two uploads may fix rows of one original at the same time
        SELECT r.upload_id, r.row_index, r.stage
        FROM public.upload_rejections r JOIN fixed ON fixed.upload_id = r.upload_id AND fixed.row_index = r.row_index
        WHERE r.upload_id <> p_upload AND r.fixed_by IS NULL
        ORDER BY r.upload_id, r.row_index, r.stage
        FOR UPDATE OF r
    )
    UPDATE public.upload_rejections r SET fixed_by = p_upload, fixed_at = weighbridge.now()
    FROM locked l
    WHERE r.upload_id = l.upload_id AND r.row_index = l.row_index AND r.stage = l.stage;
END $$;
REVOKE ALL ON FUNCTION weighbridge.mark_fixed(uuid) FROM PUBLIC;

-- When an upload ends, marks the records that it fixes. When an original was parsed or promoted again, after a retry, its new
-- rejections get the marks that the old ones had. An upload without links costs two index look-ups.
CREATE OR REPLACE FUNCTION weighbridge.mark_fixed_at_end() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
    AS $$
BEGIN
    IF NEW.status <> 'staging_complete' AND EXISTS (SELECT FROM upload_fixes f WHERE f.upload_id = NEW.id) THEN
        PERFORM mark_fixed(NEW.id);
    END IF;
    IF EXISTS (SELECT FROM upload_fixes f WHERE f.original_upload = NEW.id) THEN
        PERFORM mark_fixed(later.id)
        FROM (
            WITH RECURSIVE fixing AS (
                SELECT f.upload_id AS id FROM upload_fixes f WHERE f.original_upload = NEW.id
                UNION
                SELECT f.upload_id FROM fixing x JOIN upload_fixes f ON f.original_upload = x.id
            )
            SELECT d.id FROM fixing x JOIN public.data_uploads d ON d.id = x.id
            WHERE d.id <> NEW.id AND d.status IN ('completed', 'partial')
            ORDER BY d.finished_at, d.id
        ) AS later;
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION weighbridge.mark_fixed_at_end() FROM PUBLIC;
CREATE OR REPLACE TRIGGER mark_fixed_at_end AFTER UPDATE OF status ON public.data_uploads
    FOR EACH ROW WHEN (NEW.status IN ('staging_complete', 'completed', 'partial') AND OLD.status <> NEW.status)
    EXECUTE FUNCTION weighbridge.mark_fixed_at_end();

-- Import runs and recovery -----------------------------------------------------------------------------------

-- security_invoker: a reader sees what row-level security permits of data_uploads.
CREATE OR REPLACE VIEW ingest.import_runs WITH (security_invoker = true) AS
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
GRANT SELECT ON ingest.import_runs TO weighbridge_tenant;

-- Runs that are under way without a live lease and were started over an hour ago. A long run that renews its lease and makes
-- progress is not stale (PROCESSING_TIMEOUT_HOURS limits one without progress), nor is one that is staged and waits to be
-- promoted.
CREATE OR REPLACE VIEW ingest.v_stale_runs WITH (security_invoker = true) AS
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

-- Stale runs without any open attempt: after a restored backup or a change in psql. Only recover() returns them to the
-- queue.
CREATE OR REPLACE VIEW weighbridge.orphans AS
SELECT s.id, s.source_batch_id, s.started_at, s.hours_stale::double precision
FROM ingest.v_stale_runs s
WHERE NOT EXISTS (SELECT FROM weighbridge.attempts a
                  WHERE a.queue = 'uploads' AND a.subject = s.id AND a.closed_at IS NULL);

-- Returns an upload to its queue after its worker stopped. Counts as a crash; an upload with too many crashes fails, and the
-- answer is true. A preview that is already staged is put on hold instead.
CREATE OR REPLACE FUNCTION weighbridge.recover_upload(p_upload uuid, p_batch text, p_episode text, p_hours double precision, p_max_crashes int)
    RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_gave_up boolean;
    v_preview public.data_uploads;
BEGIN
    IF p_batch IS NULL THEN -- the upload was deleted
        RETURN false;
    END IF;
    SELECT * INTO v_preview FROM public.data_uploads d WHERE d.id = p_upload AND d.preview AND d.status = 'staging_complete';
    IF FOUND THEN
        PERFORM close_takeover_alerts(v_preview, 'on hold');
        PERFORM notify_live(v_preview.workspace_id, v_preview.id, v_preview.status);
        RETURN false;
    END IF;
    PERFORM raise_alert('stale_takeover', p_upload || '/' || p_episode, 'WARNING',
        format('[STALE TAKEOVER] %s abandoned for %sh', p_batch, round(p_hours::numeric, CASE WHEN p_hours < 1 THEN 2 ELSE 1 END)));
    UPDATE public.data_uploads d
    SET crashes = d.crashes + 1,
        status = CASE WHEN d.crashes + 1 >= p_max_crashes THEN 'failed'
                      WHEN d.status = 'promoting' THEN 'staging_complete'
                      WHEN d.status = 'processing' THEN 'pending'
                      ELSE d.status END,
        error_code = CASE WHEN d.crashes + 1 >= p_max_crashes THEN 'worker_crashed' END,
        error_text = CASE WHEN d.crashes + 1 >= p_max_crashes
            THEN format('The worker stopped %s times while processing this file. Check its log, then run: weighbridge uploads retry %s', d.crashes + 1, d.id) END,
        finished_at = CASE WHEN d.crashes + 1 >= p_max_crashes THEN weighbridge.now() END
    WHERE d.id = p_upload AND d.status IN ('processing', 'staging_complete', 'promoting')
    RETURNING d.status = 'failed' INTO v_gave_up;
    RETURN coalesce(v_gave_up, false);
END $$;
REVOKE ALL ON FUNCTION weighbridge.recover_upload(uuid, text, text, double precision, int) FROM PUBLIC;

-- Returns a run without a live lease to the queue, or fails it: an operator's change through the view.
CREATE OR REPLACE FUNCTION weighbridge.reset_import_run(p_upload uuid, p_fail boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    WITH closed AS (
        UPDATE attempts SET closed_at = weighbridge.now(), outcome = 'expired'
        WHERE queue = 'uploads' AND subject = p_upload AND closed_at IS NULL AND lease_until < weighbridge.now()
        RETURNING lease_token
    )
    DELETE FROM unbroken u USING closed WHERE u.lease_token = closed.lease_token;
    UPDATE public.data_uploads
    SET status = CASE WHEN p_fail THEN 'failed' ELSE 'pending' END,
        staged = CASE WHEN status = 'processing' THEN staged ELSE '{}' END,
        staged_at = CASE WHEN status = 'processing' THEN staged_at END,
        crashes = crashes + 1,
        error_code = CASE WHEN p_fail THEN 'given_up' END,
        error_text = CASE WHEN p_fail THEN 'An operator marked it as failed.' END,
        finished_at = CASE WHEN p_fail THEN weighbridge.now() END
    WHERE id = p_upload;
    PERFORM pg_notify('weighbridge_work', '');
END $$;
REVOKE ALL ON FUNCTION weighbridge.reset_import_run(uuid, boolean) FROM PUBLIC;

-- Through the view, a run without a live lease can be reset to pending or failed. Every other move belongs to a worker, as it
-- needs a lease.
CREATE OR REPLACE FUNCTION ingest.guard_status_transition() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
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
        -- A takeover locks both until it commits; its attempt is visible only then.
        PERFORM FROM attempts a WHERE a.queue = 'uploads' AND a.subject = OLD.id AND a.closed_at IS NULL FOR UPDATE;
        PERFORM FROM public.data_uploads d WHERE d.id = OLD.id FOR UPDATE;
        IF EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = OLD.id
                   AND a.closed_at IS NULL AND a.lease_until >= weighbridge.now()) THEN
            RAISE EXCEPTION 'Invalid transition: a worker is processing %', OLD.source_batch_id USING ERRCODE = 'WB002',
                HINT = 'Its lease is alive. Stop the worker first; the run then returns to the queue.';
        END IF;
        PERFORM reset_import_run(OLD.id, NEW.status = 'failed');
    END IF;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION ingest.guard_status_transition() FROM PUBLIC;
CREATE OR REPLACE TRIGGER trg_import_runs_status_guard INSTEAD OF UPDATE ON ingest.import_runs
    FOR EACH ROW EXECUTE FUNCTION ingest.guard_status_transition();

-- Postgres would let rows of a simple view be deleted, and with them the list of loaded files.
CREATE OR REPLACE FUNCTION ingest.guard_import_runs() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'Import runs cannot be inserted or deleted through this view' USING ERRCODE = 'WB002',
        HINT = 'Upload a file to create one. To remove a failed one from the dead letters: weighbridge uploads dismiss.';
END $$;
REVOKE ALL ON FUNCTION ingest.guard_import_runs() FROM PUBLIC;
CREATE OR REPLACE TRIGGER trg_import_runs_guard INSTEAD OF INSERT OR DELETE ON ingest.import_runs
    FOR EACH ROW EXECUTE FUNCTION ingest.guard_import_runs();

-- Figures ----------------------------------------------------------------------------------------------------

-- Uploads that wait for a worker; previews that wait for a person do not count. Counted in parts, one for each partial
-- index. NULL: of all workspaces.
CREATE OR REPLACE FUNCTION weighbridge.waiting_uploads(p_workspace uuid) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
        SELECT (SELECT count(*) FROM public.data_uploads d WHERE d.status IN ('pending', 'staging_complete')
                AND d.project_id IS NULL AND (p_workspace IS NULL OR d.workspace_id = p_workspace))
             + (SELECT count(*) FROM public.data_uploads d WHERE d.status IN ('pending', 'staging_complete')
                AND d.project_id IS NOT NULL AND (p_workspace IS NULL OR d.workspace_id = p_workspace))
             - (SELECT count(*) FROM public.data_uploads d WHERE d.preview AND d.status = 'staging_complete'
                AND (p_workspace IS NULL OR d.workspace_id = p_workspace))
    $$;
REVOKE ALL ON FUNCTION weighbridge.waiting_uploads(uuid) FROM PUBLIC;

-- Raises or withdraws the alerts about dead letters and backlog, and returns both counts. Any number of workers may call it at
-- once: an alert is open once.
CREATE OR REPLACE FUNCTION weighbridge.watch_queues(p_dead_letters int, p_backlog int) RETURNS TABLE (dead_letters bigint, backlog bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    SELECT count(*) INTO dead_letters FROM public.data_uploads WHERE status = 'failed' AND (dismissed_at IS NULL OR dismissed_at < finished_at);
    SELECT waiting_uploads(NULL)
         + (SELECT count(*) FROM attempts a JOIN public.data_uploads d ON d.id = a.subject AND d.status IN ('processing', 'promoting')
            WHERE a.queue = 'uploads' AND a.closed_at IS NULL) INTO backlog;
    IF dead_letters > p_dead_letters THEN
        PERFORM raise_alert('dead_letters', '', 'WARNING',
            format('Ingest dead-letter queue has %s messages', dead_letters));
    ELSE
        PERFORM withdraw_alert('dead_letters', '',
            format('Ingest dead-letter queue is back to %s messages', dead_letters));
    END IF;
    IF backlog > p_backlog THEN
        PERFORM raise_alert('backlog', '', 'WARNING', format('Ingest backlog at %s pending jobs', backlog));
    ELSE
        PERFORM withdraw_alert('backlog', '', format('Ingest backlog is back to %s pending jobs', backlog));
    END IF;
    RETURN NEXT;
END $$;
REVOKE ALL ON FUNCTION weighbridge.watch_queues(int, int) FROM PUBLIC;

-- The figures of GET /api/metrics for the workspace of the transaction. SECURITY DEFINER: tenants cannot read attempts, which
-- say which runs are stale.
CREATE OR REPLACE FUNCTION weighbridge.workspace_figures() RETURNS TABLE (
        backlog_count bigint, failed_24h bigint, stale_runs bigint, avg_processing_seconds double precision,
        last_failed_batch text, last_failed_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        WITH mine AS MATERIALIZED (SELECT workspace() AS id),
        failed AS (
            SELECT batch_name(d) AS batch, d.finished_at
            FROM public.data_uploads d WHERE d.workspace_id = (SELECT id FROM mine) AND d.status = 'failed'
              AND NOT (d.preview AND d.error_code IN ('discarded', 'preview_expired'))
            ORDER BY d.finished_at DESC LIMIT 1
        )
        SELECT waiting_uploads((SELECT id FROM mine))
               + (SELECT count(*) FROM public.data_uploads d WHERE d.workspace_id = (SELECT id FROM mine)
                  AND d.status IN ('processing', 'promoting')),
               (SELECT count(*) FROM public.data_uploads d WHERE d.workspace_id = (SELECT id FROM mine)
                AND d.status = 'failed' AND d.finished_at > weighbridge.now() - INTERVAL '24h'
                AND NOT (d.preview AND d.error_code IN ('discarded', 'preview_expired'))),
               (SELECT count(*) FROM ingest.v_stale_runs s JOIN public.data_uploads d ON d.id = s.id
                WHERE d.workspace_id = (SELECT id FROM mine)),
               (SELECT avg(EXTRACT(EPOCH FROM d.finished_at - d.started_at))::double precision FROM public.data_uploads d
                WHERE d.workspace_id = (SELECT id FROM mine) AND d.status IN ('completed', 'partial')),
               (SELECT f.batch FROM failed f),
               (SELECT f.finished_at FROM failed f)
    $$;
REVOKE ALL ON FUNCTION weighbridge.workspace_figures() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.workspace_figures() TO weighbridge_tenant;
