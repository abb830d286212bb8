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
