-- Projects as pages show them, with counts of their files. The counts agree with weighbridge.project_status:
-- if failed content was received again, only the last upload counts.

-- name: projects_listed
-- A page of projects by number. The view of jobs is used only for the few files that have not ended; for the others
-- the number of rows is a column. Using the view for all takes four times as long.
WITH page AS MATERIALIZED (
    SELECT p.* FROM public.projects p
    WHERE p.workspace_id = %(workspace)s AND p.id > %(after)s
    ORDER BY p.id LIMIT %(limit)s
),
jobs AS MATERIALIZED (
    SELECT d.project_id, count(*) FILTER (WHERE d.status IN ('completed', 'partial')) AS succeeded,
           count(*) FILTER (WHERE d.status = 'failed') AS failed,
           coalesce(sum(CASE WHEN d.bins IS NULL THEN d.rows_read ELSE d.total_rows END), 0)::bigint AS rows
    FROM public.data_uploads d
    WHERE d.workspace_id = %(workspace)s AND d.project_id = ANY (ARRAY(SELECT id FROM page))
      AND d.status IN ('completed', 'partial', 'failed')
      AND (d.status <> 'failed' OR NOT (d.preview AND d.error_code IN ('discarded', 'preview_expired')) AND NOT EXISTS (
          SELECT FROM public.data_uploads o JOIN public.csv_processing_jobs j ON j.id = o.id
          WHERE o.workspace_id = d.workspace_id AND o.content_sha256 = d.content_sha256 AND o.project_id = d.project_id
            AND (o.created_at, o.id) > (d.created_at, d.id)))
    GROUP BY d.project_id
),
live AS MATERIALIZED (
    SELECT j.project_id, count(*) FILTER (WHERE j.status = 'queued') AS queued,
           count(*) FILTER (WHERE j.status = 'running') AS running, sum(j.rows_processed)::bigint AS rows
    FROM public.csv_processing_jobs j
    WHERE j.workspace_id = %(workspace)s AND j.project_id = ANY (ARRAY(SELECT id FROM page))
      AND j.upload_status IN ('pending', 'processing', 'staging_complete', 'promoting')
    GROUP BY j.project_id
)
SELECT p.id AS project_id, p.name, p.ungrouped, p.grouped_at, p.groupings,
       EXISTS (SELECT FROM public.project_processing_leases l
               WHERE l.workspace_id = p.workspace_id AND l.project_id = p.id
                 AND l.lease_expires_at >= weighbridge.now()) AS leased,
       coalesce(l.queued, 0) AS queued, coalesce(l.running, 0) AS running,
       coalesce(j.succeeded, 0) AS succeeded, coalesce(j.failed, 0) AS failed,
       coalesce(j.rows, 0) + coalesce(l.rows, 0) AS rows_processed
FROM page p LEFT JOIN jobs j ON j.project_id = p.id LEFT JOIN live l ON l.project_id = p.id
ORDER BY p.id

-- name: project_details
-- One project, with totals of its files.
SELECT p.id AS project_id, p.name, p.ungrouped, p.grouped_at, p.groupings,
       EXISTS (SELECT FROM public.project_processing_leases l
               WHERE l.workspace_id = p.workspace_id AND l.project_id = p.id
                 AND l.lease_expires_at >= weighbridge.now()) AS leased,
       c.*,
       (SELECT r.source_filename FROM public.csv_processing_jobs r
        WHERE r.workspace_id = p.workspace_id AND r.project_id = p.id AND r.status = 'running'
          AND r.upload_status IN ('pending', 'processing', 'staging_complete', 'promoting')
        ORDER BY r.created_at, r.id LIMIT 1) AS current_file
FROM public.projects p
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE j.status = 'queued') AS queued, count(*) FILTER (WHERE j.status = 'running') AS running,
           count(*) FILTER (WHERE j.status = 'succeeded') AS succeeded,
           count(*) FILTER (WHERE j.status = 'failed') AS failed,
           coalesce(sum(j.rows_total), 0)::bigint AS rows_total,
           coalesce(sum(j.rows_processed), 0)::bigint AS rows_processed,
           coalesce(sum(j.inserted), 0)::bigint AS inserted, coalesce(sum(j.duplicate), 0)::bigint AS duplicate,
           coalesce(sum(j.invalid), 0)::bigint AS invalid
    FROM public.csv_processing_jobs j
    WHERE j.workspace_id = p.workspace_id AND j.project_id = p.id AND NOT (j.status = 'failed' AND EXISTS (
        SELECT FROM public.data_uploads o JOIN public.csv_processing_jobs n ON n.id = o.id
        WHERE o.workspace_id = j.workspace_id AND o.content_sha256 = decode(j.idempotency_key, 'hex')
          AND o.project_id = j.project_id AND (o.created_at, o.id) > (j.created_at, j.id)))
) c
WHERE p.workspace_id = %(workspace)s AND p.id = %(project)s

-- name: files_of_project
-- In order of arrival, one page at a time; computed columns are computed for the rows of the page only.
SELECT j.id AS job_id, j.source_filename AS filename, j.status, j.attempts, j.rows_total, j.rows_processed, j.inserted,
       j.duplicate, j.invalid, j.error_code AS error, j.error AS message
FROM (
    SELECT w.id FROM public.csv_processing_jobs w
    WHERE w.workspace_id = %(workspace)s AND w.project_id = %(project)s
      AND (%(state)s::text IS NULL OR w.status = %(state)s)
      AND NOT (w.status = 'failed' AND EXISTS (
          SELECT FROM public.data_uploads o JOIN public.csv_processing_jobs n ON n.id = o.id
          WHERE o.workspace_id = w.workspace_id AND o.content_sha256 = decode(w.idempotency_key, 'hex')
            AND o.project_id = w.project_id AND (o.created_at, o.id) > (w.created_at, w.id)))
    ORDER BY w.created_at, w.id LIMIT %(limit)s OFFSET %(first)s
) page
JOIN public.csv_processing_jobs j ON j.id = page.id
ORDER BY j.created_at, j.id

-- name: copies_of_project
-- Files that were already known, with the name of the original.
SELECT nullif(u.filename, '') AS filename, u.upload_id AS duplicate_of, d.filename AS original, u.times
FROM public.upload_duplicates u JOIN public.data_uploads d ON d.id = u.upload_id
WHERE d.workspace_id = %(workspace)s AND d.project_id = %(project)s
ORDER BY u.last_at, u.upload_id, u.filename LIMIT %(limit)s
