-- Resuming, receipts and cleaning, closer:
--
-- begin_staging   staged rows count only for an attempt that numbers its rows as the one that staged them
-- receipts        belong to a table, whatever declaration wrote to it; the digest tells the declarations apart
-- expire_staging  also for uploads that failed in the middle of staging, or before a retry staged anew

ALTER TABLE public.data_uploads ADD COLUMN staging_digest bytea; -- of the rows that `staged` counts
CREATE INDEX data_uploads_half_staged ON public.data_uploads (finished_at)
    WHERE staged_at IS NULL AND staged <> '{}' AND status IN ('completed', 'partial', 'failed');

-- True where what an earlier attempt staged is a beginning of what this one is about to stage; else it is removed.
CREATE FUNCTION weighbridge.begin_staging(p_token uuid, p_digest bytea) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    IF EXISTS (SELECT FROM data_uploads WHERE id = v_upload AND staging_digest = p_digest AND staged <> '{}') THEN
        RETURN true;
    END IF;
    PERFORM reset_staging(p_token);
    UPDATE data_uploads SET staging_digest = p_digest WHERE id = v_upload;
    RETURN false;
END $$;

REVOKE EXECUTE ON FUNCTION weighbridge.begin_staging(uuid, bytea) FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION weighbridge.reset_staging(uuid) FROM weighbridge_parse;
GRANT EXECUTE ON FUNCTION weighbridge.begin_staging(uuid, bytea) TO weighbridge_parse;

-- Marks the staged rows of an old, finished upload as gone; its caller deletes them in the same transaction.
CREATE OR REPLACE FUNCTION weighbridge.expire_staging(p_upload uuid, p_age interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    UPDATE data_uploads SET staged_at = NULL, staged = '{}'
    WHERE id = p_upload AND status IN ('completed', 'partial', 'failed')
      AND (staged_at IS NOT NULL OR staged <> '{}') AND coalesce(staged_at, finished_at) < weighbridge.now() - p_age;
    RETURN FOUND;
END $$;

-- Opens a finished upload for another attempt, from the stored file, with its counts at zero. What is staged is left to
-- the next attempt to remove or, should that fail before, to the clean-up: so staged_at stays.
CREATE OR REPLACE FUNCTION weighbridge.retry_upload(p_upload uuid, p_force_partial boolean, p_actor text) RETURNS text
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

DELETE FROM weighbridge.receipts; -- the next import of each file compares row by row, once
COMMENT ON COLUMN weighbridge.receipts.target IS 'The production table.';
CREATE OR REPLACE FUNCTION weighbridge.void_receipts() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    IF current_setting('role', true) IS DISTINCT FROM 'weighbridge_promote' THEN
        DELETE FROM weighbridge.receipts WHERE target = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END $$;
