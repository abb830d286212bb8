-- Rejected rows that a later file fixes, and batch names that an operator releases.
--
-- upload_fixes              which record of a fixed rejects file stands for which rejected record of an earlier upload
-- upload_rejections.fixed_by, fixed_at     the upload that loaded the fixed record
-- data_uploads.read_as                     how the file was read, for the rows of its rejects file
-- data_uploads.released_batch_id           the name that a failed upload had before release_batch
--
-- A rejects file of a fixed file links to the fixed file, so the links form chains: a record that is loaded at last
-- fixes every record of its chain.

ALTER TABLE public.upload_rejections ADD COLUMN fixed_by uuid, ADD COLUMN fixed_at timestamptz;
CREATE INDEX upload_rejections_fixed ON public.upload_rejections (fixed_by) WHERE fixed_by IS NOT NULL;

ALTER TABLE public.data_uploads
    ADD COLUMN released_batch_id text,
    ADD COLUMN read_as jsonb NOT NULL DEFAULT '{}'; -- decimal, date_order, preamble: for the rows of its rejects file

CREATE TABLE weighbridge.upload_fixes (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    row_index int NOT NULL,
    original_upload uuid NOT NULL, -- of the same workspace and pipeline
    original_row int NOT NULL, -- its row_index there
    PRIMARY KEY (upload_id, row_index)
);
CREATE INDEX upload_fixes_original ON weighbridge.upload_fixes (original_upload, original_row);
ALTER TABLE weighbridge.upload_fixes ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON weighbridge.upload_fixes USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT INSERT ON weighbridge.upload_fixes TO weighbridge_parse;
GRANT SELECT ON weighbridge.upload_fixes TO weighbridge_tenant;

-- Marks the rejected records that an upload has fixed: its record was loaded, or is a duplicate of a loaded one. Marks
-- of an earlier run of the same upload are replaced.
CREATE FUNCTION weighbridge.mark_fixed(p_upload uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    -- A retry of an original removes its rejections: it waits, or this does.
    PERFORM FROM data_uploads d
    WHERE d.id IN (
        WITH RECURSIVE originals AS (
            SELECT f.original_upload AS id FROM upload_fixes f WHERE f.upload_id = p_upload
            UNION
            SELECT f.original_upload FROM originals o JOIN upload_fixes f ON f.upload_id = o.id
        )
        SELECT o.id FROM originals o WHERE o.id <> p_upload
    )
    ORDER BY d.id FOR KEY SHARE;
    UPDATE upload_rejections SET fixed_by = NULL, fixed_at = NULL WHERE fixed_by = p_upload;
    WITH RECURSIVE fixed AS (
        SELECT f.original_upload AS upload_id, f.original_row AS row_index
        FROM upload_fixes f
        WHERE f.upload_id = p_upload
          AND NOT EXISTS (SELECT FROM upload_rejections r WHERE r.upload_id = p_upload AND r.row_index = f.row_index)
        UNION
        SELECT f.original_upload, f.original_row
        FROM fixed JOIN upload_fixes f ON f.upload_id = fixed.upload_id AND f.row_index = fixed.row_index
    ), locked AS ( -- in one order: two uploads may fix rows of one original at the same time
        SELECT r.upload_id, r.row_index, r.stage
        FROM upload_rejections r JOIN fixed ON fixed.upload_id = r.upload_id AND fixed.row_index = r.row_index
        WHERE r.upload_id <> p_upload AND r.fixed_by IS NULL
        ORDER BY r.upload_id, r.row_index, r.stage
        FOR UPDATE OF r
    )
    UPDATE upload_rejections r SET fixed_by = p_upload, fixed_at = weighbridge.now()
    FROM locked l
    WHERE r.upload_id = l.upload_id AND r.row_index = l.row_index AND r.stage = l.stage;
END $$;

-- When an upload ends, the records that it fixes are marked. When an original was parsed or promoted again, after a
-- retry, its new rejections get the marks that the old ones had. Ordinary uploads have no links, which costs two looks
-- into an index.
CREATE FUNCTION weighbridge.mark_fixes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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
            SELECT d.id FROM fixing x JOIN data_uploads d ON d.id = x.id
            WHERE d.id <> NEW.id AND d.status IN ('completed', 'partial')
            ORDER BY d.finished_at, d.id
        ) AS later;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER mark_fixes AFTER UPDATE OF status ON public.data_uploads
    FOR EACH ROW WHEN (NEW.status IN ('staging_complete', 'completed', 'partial') AND OLD.status <> NEW.status)
    EXECUTE FUNCTION weighbridge.mark_fixes();

-- As before; it also removes the links of an earlier attempt.
CREATE OR REPLACE FUNCTION weighbridge.reset_staging(p_token uuid) RETURNS void
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
    DELETE FROM upload_fixes WHERE upload_id = v_upload;
    UPDATE data_uploads SET staged = '{}' WHERE id = v_upload;
END $$;

-- How the file was read. The rows of its rejects file, which show less than the whole file, are read in the same way.
CREATE FUNCTION weighbridge.note_reading(p_token uuid, p_read_as jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        UPDATE data_uploads SET read_as = p_read_as WHERE id = fence(p_token)
    $$;

-- Takes the batch name off a failed upload, so that the fixed file can have it. Returns 'released', 'unnamed' where it
-- has no name, its status where it has not failed, or NULL where there is no such upload.
CREATE FUNCTION weighbridge.release_batch(p_upload uuid, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp SET lock_timeout = '5s'
    AS $$
DECLARE
    v_before data_uploads;
BEGIN
    SELECT * INTO v_before FROM data_uploads WHERE id = p_upload FOR UPDATE;
    IF v_before.status <> 'failed' THEN
        RETURN v_before.status;
    END IF;
    IF v_before.source_batch_id IS NULL THEN
        RETURN CASE WHEN FOUND THEN 'unnamed' END;
    END IF;
    UPDATE data_uploads SET source_batch_id = NULL, released_batch_id = source_batch_id WHERE id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_before.workspace_id, p_actor, 'upload.release_batch', p_upload, jsonb_build_object(
        'source_batch_id', v_before.source_batch_id, 'error_code', v_before.error_code));
    RETURN 'released';
END $$;

REVOKE ALL ON FUNCTION weighbridge.mark_fixed(uuid), weighbridge.mark_fixes(), weighbridge.note_reading(uuid, jsonb),
    weighbridge.release_batch(uuid, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.note_reading(uuid, jsonb) TO weighbridge_parse;
