-- No statistics on workspace_id: the planner then expects of every workspace, known or new, a two-hundredth of the table.
-- With statistics it expects no row of a workspace that they do not list. Every index that begins with workspace_id then
-- seems to be as good as the right one, and a lookup by id reads all rows of the workspace.
DO $$
DECLARE
    v_table record;
BEGIN
    FOR v_table IN
        SELECT n.nspname, c.relname
        FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE a.attname = 'workspace_id' AND NOT a.attisdropped
          AND (n.nspname IN ('weighbridge', 'staging')
               OR n.nspname = 'public' AND c.relname = ANY (ARRAY[
                   'projects', 'data_uploads', 'upload_rejections', 'upload_warnings', 'upload_duplicates',
                   'staging_id_resolution', 'upload_queue', 'storage_usage', 'campaigns', 'ad_sets', 'ads',
                   'daily_metrics', 'plaintiffs', 'judgments', 'keywords', 'keyword_groups', 'group_keywords',
                   'token_merges', 'sites', 'sales', 'offline_conversion_queue', 'provider_health_state',
                   'provider_credentials', 'provider_upload_metrics', 'provider_upload_attempts']))
    LOOP
        EXECUTE format('ALTER TABLE %I.%I ALTER workspace_id SET STATISTICS 0', v_table.nspname, v_table.relname);
        IF current_setting('server_version_num')::int >= 180000 THEN -- older servers keep what was collected
            EXECUTE format('SELECT pg_clear_attribute_stats(%L, %L, %L, false)', v_table.nspname, v_table.relname, 'workspace_id');
        END IF;
    END LOOP;
END $$;

-- The uploads whose stored file may be old enough to be removed, and those whose removal has begun and not ended. The
-- expression keeps the planner from using the first one where only finished_at is compared: others are shorter.
CREATE INDEX data_uploads_stored ON public.data_uploads ((finished_at AT TIME ZONE 'UTC'))
    WHERE storage_status = 'stored' AND status IN ('completed', 'partial', 'failed');
CREATE INDEX data_uploads_being_removed ON public.data_uploads (id)
    WHERE storage_status = 'removed' AND blob_removed_at IS NULL;
