-- Previews: an upload that stops when it is staged, shows what it would change, and waits for a person's word.
--
-- held        preview, and staging_complete: nobody claims it, as it is put off for ever, and no constraint lets it on
-- promote     preview goes; from here it is staged like any other
-- discard     failed, as `discarded`; or by itself, as `preview_expired`. Nobody's fault: no alert, no dead letter
--
-- While it is read, a preview is a file like any other: claims, leases, retries, the project's lock. Once it is held
-- or discarded it is none of its project's files, no backlog and no failure, and keeps no dimension row from going.

ALTER TABLE public.data_uploads
    ADD COLUMN preview boolean NOT NULL DEFAULT false, -- stops at staging_complete until told
    ADD COLUMN preview_counts jsonb, -- entity → {inserted, updated, unchanged}, as they were found
    ADD COLUMN previewed_at timestamptz, -- then
    ADD CONSTRAINT preview_is_not_promoted CHECK (NOT preview OR status NOT IN ('promoting', 'completed', 'partial')),
    ADD CONSTRAINT preview_is_held CHECK (NOT (preview AND status = 'staging_complete') OR run_after = 'infinity');

CREATE INDEX data_uploads_held ON public.data_uploads (workspace_id, staged_at) WHERE preview AND status = 'staging_complete';
CREATE INDEX data_uploads_set_aside ON public.data_uploads (workspace_id, finished_at) INCLUDE (project_id)
    WHERE preview AND status = 'failed' AND error_code IN ('discarded', 'preview_expired');
-- As before, with preview: who counts jobs reads nothing else.
DROP INDEX public.data_uploads_of_project;
CREATE INDEX data_uploads_of_project ON public.data_uploads (workspace_id, project_id, created_at, id)
    INCLUDE (status, started_at, finished_at, preview) WHERE project_id IS NOT NULL;

-- Wherever the status comes from: who enters the hold is put off for ever, who leaves it is not.
CREATE FUNCTION weighbridge.hold_preview() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.preview AND NEW.status = 'staging_complete' THEN
        NEW.run_after := 'infinity';
        IF OLD.status <> NEW.status THEN
            NEW.preview_counts := NULL; -- they were of other rows
            NEW.previewed_at := NULL;
        END IF;
    ELSIF OLD.preview AND OLD.status = 'staging_complete' AND NEW.run_after = 'infinity' THEN
        NEW.run_after := '-infinity';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER hold_preview BEFORE UPDATE OF status, preview, run_after ON public.data_uploads
    FOR EACH ROW WHEN (NEW.preview OR OLD.preview) EXECUTE FUNCTION weighbridge.hold_preview();

-- Coming in -------------------------------------------------------------------------------------------------

-- As before, but of content that waits as a preview the reason says so.
CREATE OR REPLACE FUNCTION weighbridge.known_upload(
    p_workspace uuid, p_pipeline text, p_client uuid, p_platform text, p_project bigint, p_sha256 bytea, p_batch text,
    p_forced boolean
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
              AND d.content_sha256 = p_sha256 AND d.status <> 'failed' AND NOT d.forced AND NOT p_forced
        ) AS found
        ORDER BY found.rank LIMIT 1
    $$;

-- As before, and with preview.
DROP FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, bigint, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text);
CREATE FUNCTION weighbridge.receive_upload(
    p_workspace uuid, p_client uuid, p_platform text, p_project bigint, p_source text, p_pipeline text, p_filename text,
    p_file_url text, p_file_kind text, p_sha256 bytea, p_size bigint, p_created_by uuid, p_force_partial boolean,
    p_forced boolean, p_batch text, p_traceparent text, p_preview boolean DEFAULT false
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
                                  source_batch_id, traceparent, preview, storage_status, run_after, error_code,
                                  error_text)
        VALUES (p_workspace, p_client, p_platform, p_project, p_source, p_pipeline, p_filename, p_file_url,
                p_file_kind, p_sha256, p_size, p_created_by, p_force_partial, p_forced, p_batch, p_traceparent,
                p_preview,
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

-- The hold --------------------------------------------------------------------------------------------------

CREATE FUNCTION weighbridge.tell_live(p_upload public.data_uploads) RETURNS void
    LANGUAGE sql
    AS $$
        SELECT pg_notify('weighbridge_live', json_build_object(
            'workspace_id', p_upload.workspace_id, 'upload_id', p_upload.id, 'status', p_upload.status)::text)
    $$;

-- Takeovers of an upload are over, one word for all of them; none where there is nothing good to say.
CREATE FUNCTION weighbridge.end_takeovers(p_upload public.data_uploads, p_word text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_takeover alerts;
BEGIN
    SELECT * INTO v_takeover FROM alerts
    WHERE condition = 'stale_takeover' AND subject LIKE p_upload.id || '/%' AND closed_at IS NULL
    ORDER BY opened_at DESC LIMIT 1;
    UPDATE alerts SET closed_at = weighbridge.now()
    WHERE condition = 'stale_takeover' AND subject LIKE p_upload.id || '/%' AND closed_at IS NULL;
    IF FOUND AND p_word IS NOT NULL THEN
        PERFORM announce_alert('AlertRecovered', v_takeover,
            format('[STALE TAKEOVER RECOVERED] %s: %s', batch_name(p_upload), p_word));
    END IF;
END $$;

-- Ends the attempt that read a preview: from here it waits for a person. Whatever went wrong on the way is over.
CREATE FUNCTION weighbridge.hold_upload(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_row data_uploads;
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    SELECT * INTO v_row FROM data_uploads WHERE id = v_upload;
    PERFORM withdraw_alert('ingest_failure', v_upload::text, format('[INGEST RECOVERED] %s: held', batch_name(v_row)));
    PERFORM end_takeovers(v_row, 'held');
    PERFORM tell_live(v_row);
    PERFORM pg_notify('weighbridge_work', ''); -- somebody may have promoted it just now
END $$;

-- What the comparison found, if it is still held.
CREATE FUNCTION weighbridge.note_preview(p_upload uuid, p_counts jsonb, p_at timestamptz) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        UPDATE data_uploads SET preview_counts = p_counts, previewed_at = p_at
        WHERE id = p_upload AND preview AND status = 'staging_complete'
    $$;

-- Locks an upload if it is held and nobody is at it; the answer is whether. Its project's row comes first, as where a
-- job is opened again: it must not be edited meanwhile.
CREATE FUNCTION weighbridge.lock_held(p_upload uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp SET lock_timeout = '5s'
    AS $$
BEGIN
    PERFORM FROM projects p JOIN data_uploads d ON d.workspace_id = p.workspace_id AND d.project_id = p.id
    WHERE d.id = p_upload FOR KEY SHARE OF p;
    PERFORM FROM data_uploads WHERE id = p_upload AND preview AND status = 'staging_complete' FOR UPDATE;
    RETURN FOUND AND NOT in_hand(p_upload);
END $$;

-- True: this call promoted it. False: it is not held, or not any more.
CREATE FUNCTION weighbridge.promote_preview(p_upload uuid, p_actor text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_row data_uploads;
BEGIN
    IF NOT lock_held(p_upload) THEN
        RETURN false;
    END IF;
    SELECT * INTO v_row FROM data_uploads WHERE id = p_upload;
    -- From here until the end no dimension row of the workspace can be deleted: see keep_dimension.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_row.workspace_id::text, 1));
    UPDATE data_uploads SET preview = false WHERE id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_row.workspace_id, p_actor, 'upload.promote', p_upload, '{}');
    PERFORM tell_live(v_row);
    PERFORM pg_notify('weighbridge_work', '');
    RETURN true;
END $$;

-- True: this call discarded it, as it was held so long at least. Its caller deletes what is staged in the same
-- transaction. A batch that was discarded has not come: its name is free for the one that comes instead.
CREATE FUNCTION weighbridge.discard_preview(p_upload uuid, p_code text, p_text text, p_actor text, p_age interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_row data_uploads;
    v_now timestamptz := weighbridge.now();
BEGIN
    IF NOT lock_held(p_upload) THEN
        RETURN false;
    END IF;
    SELECT * INTO v_row FROM data_uploads WHERE id = p_upload;
    IF v_row.staged_at > v_now - p_age THEN
        RETURN false;
    END IF;
    UPDATE data_uploads
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

-- What was staged is gone, or says too little by now: it is read again, and held again.
CREATE FUNCTION weighbridge.restage_preview(p_upload uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    IF lock_held(p_upload) THEN
        UPDATE data_uploads SET status = 'pending', staged = '{}', staged_at = NULL WHERE id = p_upload;
        PERFORM pg_notify('weighbridge_work', '');
    END IF;
END $$;

-- As before, but what was set aside is no failure.
CREATE OR REPLACE FUNCTION weighbridge.alert_on_status() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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
    PERFORM end_takeovers(NEW, CASE WHEN NEW.status <> 'failed' THEN NEW.status END);
    RETURN NULL;
END $$;

-- As before, but nothing of a preview is abandoned that was staged already: it is held.
CREATE OR REPLACE FUNCTION weighbridge.rescue(p_upload uuid, p_batch text, p_episode text, p_hours double precision, p_max_crashes int)
    RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_gave_up boolean;
    v_held data_uploads;
BEGIN
    IF p_batch IS NULL THEN -- the upload itself is gone
        RETURN false;
    END IF;
    SELECT * INTO v_held FROM data_uploads d WHERE d.id = p_upload AND d.preview AND d.status = 'staging_complete';
    IF FOUND THEN
        PERFORM end_takeovers(v_held, 'held');
        PERFORM tell_live(v_held);
        RETURN false;
    END IF;
    PERFORM raise_alert('stale_takeover', p_upload || '/' || p_episode, 'WARNING',
        format('[STALE TAKEOVER] %s abandoned for %sh', p_batch, round(p_hours::numeric, CASE WHEN p_hours < 1 THEN 2 ELSE 1 END)));
    UPDATE data_uploads d
    SET crashes = d.crashes + 1,
        status = CASE WHEN d.crashes + 1 >= p_max_crashes THEN 'failed'
                      WHEN d.status = 'promoting' THEN 'staging_complete'
                      WHEN d.status = 'processing' THEN 'pending'
                      ELSE d.status END,
        error_code = CASE WHEN d.crashes + 1 >= p_max_crashes THEN 'worker_crashed' END,
        error_text = CASE WHEN d.crashes + 1 >= p_max_crashes
            THEN format('The worker stopped %s times while working on this file. Look at its log, then: weighbridge uploads retry %s', d.crashes + 1, d.id) END,
        finished_at = CASE WHEN d.crashes + 1 >= p_max_crashes THEN weighbridge.now() END
    WHERE d.id = p_upload AND d.status IN ('processing', 'staging_complete', 'promoting')
    RETURNING d.status = 'failed' INTO v_gave_up;
    RETURN coalesce(v_gave_up, false);
END $$;

-- As before, but what was discarded comes in without a preview: whoever opens it again has seen it.
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
        bins = NULL, row_count = NULL, affected_dates = '{}', force_partial = force_partial OR p_force_partial,
        preview = preview AND error_code IS DISTINCT FROM 'discarded'
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

-- As before, but a preview that is held writes nothing yet; with promote_preview it counts.
CREATE OR REPLACE FUNCTION weighbridge.keep_dimension() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(OLD.workspace_id::text, 1));
    IF EXISTS (SELECT FROM data_uploads
               WHERE workspace_id = OLD.workspace_id
                 AND (status = 'staging_complete' AND NOT preview OR status = 'promoting'
                      OR status IN ('pending', 'processing') AND watermark_entity <> '')) -- to be staged again
       OR EXISTS (SELECT FROM daily_metrics f
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

-- Projects (S2) ---------------------------------------------------------------------------------------------

-- As before, but neither held nor set aside: nothing came of them. While it is read, a preview is a job.
CREATE OR REPLACE VIEW public.csv_processing_jobs WITH (security_invoker = true) AS
SELECT d.id,
       d.project_id,
       d.id AS csv_upload_id,
       -- staged, and put off or left by its worker: it waits like one that never began
       CASE WHEN d.status = 'staging_complete' AND NOT weighbridge.in_hand(d.id) THEN 'queued'
            ELSE weighbridge.job_status(d.status) END AS status,
       d.filename AS source_filename,
       encode(d.content_sha256, 'hex') AS idempotency_key,
       d.attempts,
       d.error_text AS error,
       d.created_at,
       d.started_at,
       d.finished_at,
       d.workspace_id,
       d.status AS upload_status,
       d.error_code,
       d.total_rows AS rows,
       coalesce(made.inserted, 0) AS inserted,
       -- told twice in the file, or known from another one
       coalesce((d.bins ->> 'duplicate')::bigint, 0) + coalesce(made.known, 0) AS duplicate,
       d.failed_rows AS invalid,
       -- How far it is. What is refused or told twice is through once the file is parsed.
       CASE WHEN d.bins IS NULL THEN d.rows_read ELSE d.total_rows END AS rows_total,
       CASE WHEN d.status IN ('completed', 'partial', 'failed') THEN
                CASE WHEN d.bins IS NULL THEN d.rows_read ELSE d.total_rows END
            WHEN d.bins IS NULL THEN 0
            ELSE least(d.total_rows, d.total_rows - (d.bins ->> 'accepted')::bigint + coalesce(made.through, 0)) END
           AS rows_processed
FROM public.data_uploads d
LEFT JOIN LATERAL (
    SELECT sum((e.value ->> 'inserted')::bigint)::bigint AS inserted,
           sum((e.value ->> 'updated')::bigint + (e.value ->> 'unchanged')::bigint)::bigint AS known,
           sum((e.value ->> 'inserted')::bigint + (e.value ->> 'updated')::bigint + (e.value ->> 'unchanged')::bigint
               + (e.value ->> 'failed')::bigint)::bigint AS through
    FROM jsonb_each(d.promoted) e
) made ON true
WHERE d.project_id IS NOT NULL
  AND NOT (d.preview AND (d.status = 'staging_complete'
                          OR d.status = 'failed' AND d.error_code IN ('discarded', 'preview_expired')));

CREATE OR REPLACE FUNCTION weighbridge.has_jobs(p_workspace uuid, p_project bigint) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
        SELECT EXISTS (
            SELECT FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.project_id = p_project
              AND d.status IN ('pending', 'processing', 'staging_complete', 'promoting')
              AND NOT (d.preview AND d.status = 'staging_complete'))
    $$;

-- As before, but a preview changes nothing that would have to be grouped.
CREATE OR REPLACE FUNCTION weighbridge.claim_job(p_token uuid, p_worker text, p_pipelines text[], p_lease interval, p_per_workspace int)
    RETURNS TABLE (upload_id uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_project projects := fence_project(p_token);
    v_upload uuid;
    v_preview boolean;
BEGIN
    IF claimable_since(v_project.workspace_id, v_project.id, p_pipelines, p_per_workspace) IS NULL THEN
        RETURN;
    END IF;
    SELECT d.id, d.preview INTO v_upload, v_preview FROM data_uploads d
    WHERE d.workspace_id = v_project.workspace_id AND d.project_id = v_project.id
      AND d.status IN ('pending', 'staging_complete') AND d.pipeline = ANY (p_pipelines) AND d.run_after <= weighbridge.now()
    ORDER BY d.created_at, d.id LIMIT 1
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        IF NOT v_preview THEN
            UPDATE projects p SET ungrouped = true WHERE p.key = v_project.key AND NOT p.ungrouped;
        END IF;
        lease_token := open_attempt(v_upload, v_project.workspace_id, p_worker, p_lease, p_per_workspace, p_token);
        IF lease_token IS NOT NULL THEN
            UPDATE attempts a SET progressed_at = weighbridge.now() WHERE a.lease_token = p_token;
            upload_id := v_upload;
            RETURN NEXT;
        END IF;
    END IF;
END $$;

-- Figures ---------------------------------------------------------------------------------------------------

-- As before, but for those that wait for a person.
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

CREATE OR REPLACE FUNCTION weighbridge.workspace_figures() RETURNS TABLE (
        backlog_count bigint, failed_24h bigint, stale_runs bigint, avg_processing_seconds double precision,
        last_failed_batch text, last_failed_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        WITH mine AS MATERIALIZED (SELECT workspace() AS id),
        failed AS (
            SELECT batch_name(d) AS batch, d.finished_at
            FROM data_uploads d WHERE d.workspace_id = (SELECT id FROM mine) AND d.status = 'failed'
              AND NOT (d.preview AND d.error_code IN ('discarded', 'preview_expired'))
            ORDER BY d.finished_at DESC LIMIT 1
        )
        SELECT waiting_uploads((SELECT id FROM mine))
               + (SELECT count(*) FROM data_uploads d WHERE d.workspace_id = (SELECT id FROM mine)
                  AND d.status IN ('processing', 'promoting')),
               (SELECT count(*) FROM data_uploads d WHERE d.workspace_id = (SELECT id FROM mine)
                AND d.status = 'failed' AND d.finished_at > weighbridge.now() - INTERVAL '24h'
                AND NOT (d.preview AND d.error_code IN ('discarded', 'preview_expired'))),
               (SELECT count(*) FROM ingest.v_stale_runs s JOIN data_uploads d ON d.id = s.id
                WHERE d.workspace_id = (SELECT id FROM mine)),
               (SELECT avg(EXTRACT(EPOCH FROM d.finished_at - d.started_at))::double precision FROM data_uploads d
                WHERE d.workspace_id = (SELECT id FROM mine) AND d.status IN ('completed', 'partial')),
               (SELECT f.batch FROM failed f),
               (SELECT f.finished_at FROM failed f)
    $$;

-- Who may do what -------------------------------------------------------------------------------------------

REVOKE EXECUTE ON FUNCTION weighbridge.hold_preview(), weighbridge.tell_live(public.data_uploads),
    weighbridge.end_takeovers(public.data_uploads, text), weighbridge.hold_upload(uuid),
    weighbridge.note_preview(uuid, jsonb, timestamptz), weighbridge.lock_held(uuid),
    weighbridge.promote_preview(uuid, text), weighbridge.discard_preview(uuid, text, text, text, interval),
    weighbridge.restage_preview(uuid), weighbridge.receive_upload(
        uuid, uuid, text, bigint, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text, boolean)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, bigint, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text, boolean)
    TO weighbridge_intake;
GRANT EXECUTE ON FUNCTION weighbridge.discard_preview(uuid, text, text, text, interval) TO weighbridge_clean;
