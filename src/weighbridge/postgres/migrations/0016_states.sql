-- When an upload came to each of its states: what its timeline tells beside its attempts.

ALTER TABLE public.data_uploads
    ADD COLUMN states jsonb NOT NULL DEFAULT '[]'; -- [status, when, why] of each move, the last hundred; of files from before, none

CREATE OR REPLACE FUNCTION weighbridge.guard_status() RETURNS trigger
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
    NEW.states := CASE WHEN jsonb_array_length(OLD.states) < 100 THEN OLD.states ELSE OLD.states - 0 END
                  || jsonb_build_array(jsonb_build_array(NEW.status, weighbridge.now(), CASE
                      WHEN NEW.status IN ('partial', 'failed') THEN concat_ws(': ', NEW.error_code, left(NEW.error_text, 500)) END));
    PERFORM pg_notify('weighbridge_live', json_build_object(
        'workspace_id', NEW.workspace_id, 'upload_id', NEW.id, 'status', NEW.status)::text);
    RETURN NEW;
END $$;

-- As before; and the timeline can tell whether it was by force.
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
            jsonb_build_object('from', v_before.status, 'error_code', v_before.error_code,
                               'force_partial', p_force_partial));
    PERFORM pg_notify('weighbridge_work', '');
    RETURN 'pending';
END $$;
