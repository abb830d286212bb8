-- Read options: the sender of a file gives them, a retry may replace them. The same bytes read with other options may have
-- other values, so they are another upload.

DROP INDEX public.data_uploads_content;
CREATE UNIQUE INDEX data_uploads_content ON public.data_uploads
    (workspace_id, pipeline, client_id, platform, project_id, content_sha256, reading) NULLS NOT DISTINCT
    WHERE status <> 'failed' AND NOT forced;

-- As before, for uploads with the same read options. A batch is known by its content alone: its name is used once.
DROP FUNCTION weighbridge.known_upload(uuid, text, uuid, text, bigint, bytea, text, boolean);
CREATE FUNCTION weighbridge.known_upload(
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
GRANT EXECUTE ON FUNCTION weighbridge.known_upload(uuid, text, uuid, text, bigint, bytea, text, boolean, jsonb) TO weighbridge_tenant;

-- As before; it stores the read options.
DROP FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, bigint, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text, boolean);
CREATE FUNCTION weighbridge.receive_upload(
    p_workspace uuid, p_client uuid, p_platform text, p_project bigint, p_source text, p_pipeline text, p_filename text,
    p_file_url text, p_file_kind text, p_sha256 bytea, p_size bigint, p_created_by uuid, p_force_partial boolean,
    p_forced boolean, p_batch text, p_traceparent text, p_preview boolean DEFAULT false, p_reading jsonb DEFAULT '{}'
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
                                  source_batch_id, traceparent, preview, reading, storage_status, run_after, error_code,
                                  error_text)
        VALUES (p_workspace, p_client, p_platform, p_project, p_source, p_pipeline, p_filename, p_file_url,
                p_file_kind, p_sha256, p_size, p_created_by, p_force_partial, p_forced, p_batch, p_traceparent,
                p_preview, p_reading,
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
        FROM known_upload(p_workspace, p_pipeline, p_client, p_platform, p_project, p_sha256, p_batch, p_forced, p_reading);
        IF FOUND THEN
            RETURN v_known;
        END IF;
        -- It failed between the two statements: now the way is free.
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, bigint, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text, boolean, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, bigint, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text, boolean, jsonb) TO weighbridge_intake;

-- As before; p_reading replaces the read options, NULL keeps them. The file is always parsed again: the staged rows are
-- discarded, so the columns and warnings of the last attempt are removed as well.
DROP FUNCTION weighbridge.retry_upload(uuid, boolean, text);
CREATE FUNCTION weighbridge.retry_upload(p_upload uuid, p_force_partial boolean, p_actor text, p_reading jsonb DEFAULT NULL) RETURNS text
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
        preview = preview AND error_code IS DISTINCT FROM 'discarded',
        reading = coalesce(p_reading, reading), columns = '{}', column_report = '{}'
    WHERE id = p_upload;
    PERFORM set_config('weighbridge.verb', '', true);
    DELETE FROM upload_rejections WHERE upload_id = p_upload;
    DELETE FROM upload_warnings WHERE upload_id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_before.workspace_id, p_actor, 'upload.retry', p_upload,
            jsonb_build_object('from', v_before.status, 'error_code', v_before.error_code,
                               'force_partial', p_force_partial)
            || CASE WHEN p_reading <> v_before.reading
                    THEN jsonb_build_object('reading', p_reading, 'reading_before', v_before.reading)
                    ELSE '{}' END);
    PERFORM pg_notify('weighbridge_work', '');
    RETURN 'pending';
END $$;
REVOKE ALL ON FUNCTION weighbridge.retry_upload(uuid, boolean, text, jsonb) FROM PUBLIC;

-- The read options of an upload whose file still waits for the store: retry_replay has opened it again in the same transaction.
CREATE FUNCTION weighbridge.change_reading(p_upload uuid, p_reading jsonb, p_actor text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_before data_uploads;
BEGIN
    SELECT * INTO v_before FROM data_uploads WHERE id = p_upload AND status = 'pending' FOR UPDATE;
    IF NOT FOUND OR v_before.reading = p_reading THEN
        RETURN;
    END IF;
    UPDATE data_uploads SET reading = p_reading WHERE id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_before.workspace_id, p_actor, 'upload.reading', p_upload,
            jsonb_build_object('reading', p_reading, 'reading_before', v_before.reading));
END $$;
REVOKE ALL ON FUNCTION weighbridge.change_reading(uuid, jsonb, text) FROM PUBLIC;

-- The number of warnings is also correct on an upload that failed, for whatever reason, and on one that is held.
CREATE FUNCTION weighbridge.count_warnings() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    NEW.warnings := (SELECT count(*) FROM upload_warnings w WHERE w.upload_id = NEW.id);
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION weighbridge.count_warnings() FROM PUBLIC;
CREATE TRIGGER count_warnings BEFORE UPDATE OF status ON public.data_uploads
    FOR EACH ROW WHEN (NEW.status = 'failed' AND OLD.status <> NEW.status) EXECUTE FUNCTION weighbridge.count_warnings();

CREATE OR REPLACE FUNCTION weighbridge.hold_upload(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_row data_uploads;
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    UPDATE data_uploads SET warnings = (SELECT count(*) FROM upload_warnings w WHERE w.upload_id = v_upload)
    WHERE id = v_upload
    RETURNING * INTO v_row;
    PERFORM withdraw_alert('ingest_failure', v_upload::text, format('[INGEST RECOVERED] %s: held', batch_name(v_row)));
    PERFORM end_takeovers(v_row, 'held');
    PERFORM tell_live(v_row);
    PERFORM pg_notify('weighbridge_work', ''); -- somebody may have promoted it just now
END $$;
