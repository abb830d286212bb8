-- name: make_project
SELECT weighbridge.make_project(%s, %s)

-- name: get_projects
SELECT workspace_id, id, key, name, created_at, grouped_at, groupings, failures
FROM public.projects WHERE workspace_id = %(workspace)s AND (%(id)s::bigint IS NULL OR id = %(id)s)
  AND id > %(after)s
ORDER BY id LIMIT %(limit)s

-- name: project_by_key
SELECT workspace_id, id, key, name, created_at, grouped_at, groupings, failures FROM public.projects WHERE key = %s

-- name: project_status
SELECT project_id, name, leased, ungrouped, grouped_at, groupings, files, duplicates
FROM weighbridge.project_status(%s)

-- name: jobs
-- In order of arrival, one page at a time.
SELECT id, project_id, csv_upload_id, status, source_filename, idempotency_key, attempts, error, created_at, started_at,
       finished_at, upload_status, error_code, rows, inserted, duplicate, invalid
FROM public.csv_processing_jobs
WHERE workspace_id = %(workspace)s AND project_id = %(project)s
  AND (%(status)s::text IS NULL OR status = %(status)s)
  AND (%(created_at)s::timestamptz IS NULL OR (created_at, id) > (%(created_at)s, %(id)s))
ORDER BY created_at, id LIMIT %(limit)s

-- name: claim_project
SELECT project_key, lease_token, abandoned
FROM weighbridge.claim_project(%(worker)s, %(pipelines)s, %(lease)s, %(limit)s, %(only)s, %(max_crashes)s, %(skip)s)

-- name: claim_job
SELECT upload_id, lease_token
FROM weighbridge.claim_job(%(token)s, %(worker)s, %(pipelines)s, %(lease)s, %(limit)s)

-- name: may_group
SELECT weighbridge.may_group(%s)

-- name: note_grouped
SELECT weighbridge.note_grouped(%s)

-- name: release_project
SELECT weighbridge.release_project(%(token)s, %(pipelines)s, %(limit)s, %(anyway)s)

-- name: fail_project
SELECT weighbridge.fail_project(%s, %s, %s)

-- name: kick_project
SELECT weighbridge.kick_project(%s)

-- name: lock_project
SELECT weighbridge.lock_project(%s, %s, %s)

-- name: runner
SELECT l.lease_owner, l.lease_expires_at FROM public.project_processing_leases l
WHERE l.workspace_id = %s AND l.project_id = %s AND l.lease_expires_at >= weighbridge.now()

-- name: grouped_since
-- Uploads that have been grouped since, that need no grouping,
SELECT d.id FROM public.data_uploads d
LEFT JOIN public.projects p ON p.workspace_id = d.workspace_id AND p.id = d.project_id
WHERE d.id = ANY (%(uploads)s) AND (
    p.id IS NULL OR NOT p.ungrouped OR p.grouped_at >= d.finished_at
    -- or whose grouping cannot happen soon: the project, or another file of it, is postponed or has no worker here
    OR p.run_after > weighbridge.now()
    OR EXISTS (SELECT FROM public.data_uploads o
               WHERE o.workspace_id = p.workspace_id AND o.project_id = p.id
                 AND o.status IN ('pending', 'processing', 'staging_complete', 'promoting')
                 AND NOT (o.preview AND o.status = 'staging_complete') -- it waits for a person and blocks nothing
                 AND (o.run_after > weighbridge.now() OR o.pipeline <> ALL (%(pipelines)s))))
