-- Promotion compares a fixed record with what the upload that it is from has loaded.
GRANT SELECT ON weighbridge.upload_fixes TO weighbridge_promote;

-- As before; it also stores how the file was read, and how many rows: one update in the place of three.
DROP FUNCTION weighbridge.note_reading(uuid, jsonb);
DROP FUNCTION weighbridge.finish_staging(uuid, jsonb, text[], jsonb, date[], bytea, jsonb);
CREATE FUNCTION weighbridge.finish_staging(
    p_token uuid, p_bins jsonb, p_columns text[], p_mapping jsonb, p_dates date[], p_digest bytea, p_report jsonb,
    p_read_as jsonb
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_workspace uuid;
    v_rows bigint := (p_bins ->> 'accepted')::bigint + (p_bins ->> 'duplicate')::bigint + (p_bins ->> 'rejected')::bigint;
BEGIN
    SELECT workspace_id INTO v_workspace FROM data_uploads WHERE id = v_upload;
    -- Parsed again, after staging was lost in the middle of a promotion: the watermark holds if the same rows stand
    -- in the same order. They do, unless the program or its declaration has changed; then promotion begins anew.
    UPDATE data_uploads
    SET watermark_entity = '', watermark_seq = 0, promoted = '{}', promoted_rows = 0
    WHERE id = v_upload AND staged_digest IS DISTINCT FROM p_digest;
    IF FOUND THEN
        DELETE FROM upload_rejections WHERE upload_id = v_upload AND stage = 'promote';
        DELETE FROM upload_warnings WHERE upload_id = v_upload;
    END IF;
    -- From here until the end no dimension row of the workspace can be deleted: see keep_dimension.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_workspace::text, 1));
    UPDATE data_uploads
    SET status = 'staging_complete', bins = p_bins, columns = p_columns, mapping = p_mapping, column_report = p_report,
        read_as = p_read_as, affected_dates = p_dates, staged_digest = p_digest, failures = 0,
        staged_at = weighbridge.now(), rows_read = v_rows, total_rows = v_rows,
        failed_rows = (p_bins ->> 'rejected')::bigint
    WHERE id = v_upload;
    UPDATE attempts SET progressed_at = weighbridge.now() WHERE lease_token = p_token;
END $$;
REVOKE ALL ON FUNCTION weighbridge.finish_staging(uuid, jsonb, text[], jsonb, date[], bytea, jsonb, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.finish_staging(uuid, jsonb, text[], jsonb, date[], bytea, jsonb, jsonb)
    TO weighbridge_parse;
