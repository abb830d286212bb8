-- name: missing_keys
-- Expected unique keys that are missing. By columns: an index may have any name.
SELECT wanted.name, wanted.columns
FROM unnest(%(tables)s::text[], %(columns)s::text[]) AS wanted (name, columns)
WHERE NOT EXISTS (
    SELECT FROM pg_index i
    WHERE i.indrelid = to_regclass(wanted.name) AND i.indisunique AND i.indisvalid AND i.indimmediate
      AND i.indpred IS NULL AND i.indexprs IS NULL
      AND (SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_attribute a
           WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[]))
          = (SELECT array_agg(c ORDER BY c) FROM unnest(string_to_array(wanted.columns, ', ')) AS c))

-- name: idle_triggers
-- Guard triggers that are missing or disabled.
SELECT wanted.table_name, wanted.name, t.tgenabled IS NULL
FROM unnest(%(tables)s::text[], %(names)s::text[]) AS wanted (table_name, name)
LEFT JOIN pg_trigger t ON t.tgrelid = to_regclass(wanted.table_name) AND t.tgname = wanted.name
WHERE coalesce(t.tgenabled, 'D') NOT IN ('O', 'A')

-- name: privileged_roles
-- Roles that bypass row-level security or can log in.
SELECT r.rolname::text, concat_ws(', ',
           CASE WHEN r.rolsuper THEN 'is a superuser' END,
           CASE WHEN r.rolbypassrls THEN 'bypasses row-level security' END,
           CASE WHEN r.rolcanlogin THEN 'may log in' END,
           CASE WHEN owns.any THEN 'owns tables' END)
FROM pg_roles r
CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM pg_class c WHERE c.relowner = r.oid AND c.relkind IN ('r', 'p', 'v', 'm')))
    AS owns ("any")
WHERE r.rolname = ANY (%(roles)s) AND (r.rolsuper OR r.rolbypassrls OR r.rolcanlogin OR owns.any)
ORDER BY r.rolname

-- name: excess_rights
-- Privileges of our roles beyond their work. Production: the pipelines' tables; other tables are ours by schema.
WITH tables AS (
    SELECT c.oid, format('%%I.%%I', n.nspname, c.relname) AS name,
           CASE WHEN n.nspname = 'public' AND c.relname = 'keywords' THEN 'keywords' -- grouping reads them too
                WHEN n.nspname = 'public' AND c.relname = 'sales' THEN 'sales' -- programs also send them
                WHEN n.nspname = 'public' AND c.relname = ANY (%(production)s) THEN 'production'
                WHEN n.nspname = 'staging' OR c.relname IN ('staging_id_resolution', 'staging_groups') THEN 'staging'
                WHEN n.nspname = 'intake' OR c.relname = 'staging_rows' THEN 'staged' -- views of it
                WHEN c.relname IN ('upload_rejections', 'upload_warnings') THEN 'records'
                WHEN c.relname = 'upload_fixes' THEN 'fixes'
                WHEN c.relname IN ('keyword_groups', 'group_keywords', 'token_merges') THEN 'groups'
                WHEN c.relname IN ('offline_conversion_queue', 'provider_health_state', 'provider_credentials',
                                   'provider_upload_metrics', 'provider_upload_attempts', 'confirmations') THEN 'deliveries'
                ELSE c.relname END AS kind
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm')
      AND (n.nspname IN ('weighbridge', 'staging', 'ingest', 'intake')
           OR n.nspname = 'public' AND c.relname = ANY (%(production)s || ARRAY[
               'data_uploads', 'upload_rejections', 'upload_warnings', 'staging_id_resolution', 'staging_rows',
               'projects', 'keyword_groups', 'group_keywords', 'token_merges', 'csv_processing_jobs',
               'project_processing_leases', 'upload_duplicates', 'upload_queue', 'storage_usage', 'sites', 'sales',
               'offline_conversion_queue', 'provider_health_state', 'provider_credentials', 'provider_upload_metrics',
               'provider_upload_attempts']))
), allowed (role, kind, rights) AS (VALUES
    ('weighbridge_intake', 'data_uploads', 'IU'), ('weighbridge_intake', 'resumable_uploads', 'SIUD'),
    ('weighbridge_tenant', 'resumable_uploads', 'S'), ('weighbridge_tenant', 'fixes', 'S'),
    ('weighbridge_parse', 'fixes', 'I'), ('weighbridge_promote', 'fixes', 'S'),
    ('weighbridge_parse', 'data_uploads', 'S'), ('weighbridge_parse', 'staging', 'SI'),
    ('weighbridge_parse', 'staged', 'S'), ('weighbridge_parse', 'records', 'I'), ('weighbridge_parse', 'receipts', 'S'),
    ('weighbridge_promote', 'production', 'SIU'), ('weighbridge_promote', 'data_uploads', 'SIU'),
    ('weighbridge_promote', 'staging', 'S'), ('weighbridge_promote', 'staged', 'S'),
    ('weighbridge_promote', 'records', 'SIU'), ('weighbridge_promote', 'receipts', 'SIUD'),
    ('weighbridge_clean', 'staging', 'SD'), ('weighbridge_clean', 'staged', 'S'),
    ('weighbridge_announce', 'audit_log', 'SI'),
    ('weighbridge_group', 'projects', 'S'), ('weighbridge_group', 'keywords', 'S'), ('weighbridge_group', 'groups', 'SIUD'),
    ('weighbridge_tenant', 'production', 'S'), ('weighbridge_tenant', 'data_uploads', 'S'),
    ('weighbridge_tenant', 'records', 'S'), ('weighbridge_tenant', 'import_runs', 'S'),
    ('weighbridge_promote', 'keywords', 'SIU'), ('weighbridge_tenant', 'keywords', 'S'),
    ('weighbridge_tenant', 'projects', 'S'), ('weighbridge_tenant', 'groups', 'S'),
    ('weighbridge_tenant', 'csv_processing_jobs', 'S'), ('weighbridge_tenant', 'upload_duplicates', 'S'),
    ('weighbridge_tenant', 'storage_usage', 'S'),
    ('weighbridge_intake', 'sites', 'SIU'), ('weighbridge_intake', 'sales', 'SIU'),
    ('weighbridge_promote', 'sites', 'S'), ('weighbridge_promote', 'sales', 'SIU'),
    ('weighbridge_deliver', 'sites', 'S'), ('weighbridge_deliver', 'sales', 'S'), ('weighbridge_deliver', 'providers', 'S'),
    ('weighbridge_deliver', 'deliveries', 'S'), ('weighbridge_tenant', 'sites', 'S'), ('weighbridge_tenant', 'sales', 'S'),
    ('everyone', 'clock', 'S'), ('everyone', 'moves', 'S')
), rights (letter, name, by_column) AS (VALUES
    ('S', 'SELECT', true), ('I', 'INSERT', true), ('U', 'UPDATE', true), ('D', 'DELETE', false), ('T', 'TRUNCATE', false)
)
SELECT r.rolname::text, t.name, string_agg(rights.name, ', ' ORDER BY rights.name)
FROM pg_roles r CROSS JOIN tables t CROSS JOIN rights
WHERE r.rolname = ANY (%(roles)s) AND NOT r.rolsuper -- superusers are reported once, above
  AND (has_table_privilege(r.oid, t.oid, rights.name)
       OR rights.by_column AND has_any_column_privilege(r.oid, t.oid, rights.name))
  AND NOT EXISTS (SELECT FROM allowed a WHERE a.role IN (r.rolname, 'everyone') AND a.kind = t.kind
                  AND position(rights.letter IN a.rights) > 0)
GROUP BY r.rolname, t.name
ORDER BY r.rolname, t.name

-- name: missing_login_rights
-- Privileges on import runs that the service's login needs and does not have.
SELECT wanted.name FROM unnest(ARRAY['SELECT', 'UPDATE']) AS wanted (name)
WHERE NOT coalesce(has_table_privilege(to_regclass('ingest.import_runs'), wanted.name), false)

-- name: tenant_tables
-- Tables and views with a workspace that tenants may read, and what exposes them to other workspaces.
WITH policies AS (
    SELECT p.polrelid, coalesce(pg_get_expr(p.polqual, p.polrelid), '') LIKE '%workspace()%' AS by_workspace
    FROM pg_policy p JOIN pg_roles tenant ON tenant.rolname = 'weighbridge_tenant'
    WHERE p.polpermissive AND p.polcmd IN ('r', '*') AND p.polroles && ARRAY[0::oid, tenant.oid]
)
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname),
       CASE WHEN c.relkind = 'v' THEN
                CASE WHEN NOT EXISTS (SELECT FROM pg_options_to_table(c.reloptions) o
                                      WHERE o.option_name = 'security_invoker' AND o.option_value::boolean)
                     THEN 'owners_view' END
            WHEN NOT c.relrowsecurity THEN 'open'
            WHEN NOT EXISTS (SELECT FROM policies p WHERE p.polrelid = c.oid) THEN 'no_policy'
            WHEN EXISTS (SELECT FROM policies p WHERE p.polrelid = c.oid AND NOT p.by_workspace)
            THEN 'wide_policy' END
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema')
JOIN pg_roles tenant ON tenant.rolname = 'weighbridge_tenant'
WHERE c.relkind IN ('r', 'p', 'v')
  AND (has_table_privilege(tenant.oid, c.oid, 'SELECT') OR has_any_column_privilege(tenant.oid, c.oid, 'SELECT'))
  AND EXISTS (SELECT FROM pg_attribute a
              WHERE a.attrelid = c.oid AND a.attname = 'workspace_id' AND NOT a.attisdropped)
ORDER BY 1

-- name: growing_tables
-- Tables that grow with use: estimated rows, size and, unless it takes long to find, the oldest record.
WITH oldest (name, at) AS (
    SELECT t.name, CASE WHEN pg_relation_size(t.name::regclass) < 256 * 1024 * 1024 THEN CASE t.name
        WHEN 'public.data_uploads' THEN (SELECT min(created_at) FROM public.data_uploads)
        WHEN 'weighbridge.attempts' THEN (SELECT min(opened_at) FROM weighbridge.attempts)
        WHEN 'weighbridge.events' THEN (SELECT min(created_at) FROM weighbridge.events)
        WHEN 'weighbridge.audit_log' THEN (SELECT min(at) FROM weighbridge.audit_log)
        WHEN 'public.upload_duplicates' THEN (SELECT min(last_at) FROM public.upload_duplicates)
        WHEN 'public.sales' THEN (SELECT min(created_at) FROM public.sales)
        WHEN 'public.offline_conversion_queue' THEN (SELECT min(created_at) FROM public.offline_conversion_queue)
        WHEN 'public.provider_upload_attempts' THEN (SELECT min(created_at) FROM public.provider_upload_attempts)
        WHEN 'weighbridge.confirmations' THEN (SELECT min(created_at) FROM weighbridge.confirmations)
    END END
    FROM unnest(ARRAY['public.data_uploads', 'weighbridge.attempts', 'weighbridge.events', 'weighbridge.event_deliveries',
                      'weighbridge.audit_log', 'public.upload_rejections', 'public.upload_warnings',
                      'public.upload_duplicates', 'public.sales', 'public.offline_conversion_queue',
                      'public.provider_upload_attempts', 'weighbridge.confirmations']) AS t (name)
)
SELECT split_part(o.name, '.', 2), greatest(c.reltuples, s.n_live_tup, 0)::bigint, pg_total_relation_size(c.oid),
       (extract(epoch FROM weighbridge.now() - o.at) / 86400)::int
FROM oldest o JOIN pg_class c ON c.oid = o.name::regclass LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
ORDER BY pg_total_relation_size(c.oid) DESC, 1

-- name: days_since_retention
-- Days since old records were last looked for; NULL: never, as in a new installation.
SELECT (extract(epoch FROM weighbridge.now() - ran_at) / 86400)::int FROM weighbridge.retention_run

-- name: database_time
SELECT clock_timestamp()

-- name: clock_shift
SELECT EXTRACT(EPOCH FROM shift)::double precision FROM weighbridge.clock
