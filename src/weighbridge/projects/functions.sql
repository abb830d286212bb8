-- Projects: files that belong together, their runner, the edit lock, and the groups of their keywords.
--
-- Tables and views
--   projects                   a project of a workspace; its first file creates it
--   data_uploads.project_id    a file of a project is a job: only the project's runner claims it
--   csv_processing_jobs        those uploads as jobs: queued, running, succeeded, failed
--   project_processing_leases  the attempts at projects: worker and end of lease
--   keywords                   one row per keyword of a project; written by promotion
--   keyword_groups             groups of keywords
--   group_keywords             the group of each keyword
--   token_merges               tokens that count as another
--
-- The life of a run. One runner at a time works on a project's files, in the order in which they were received.
-- claim_project opens its attempt; claim_job opens one below it for each file; when every file has ended (may_group),
-- the runner groups once, in one transaction (projects/groups.sql), and calls note_grouped. release_project closes
-- the attempt, unless another file was received meanwhile. fail_project closes it after an error. recover() closes it
-- when the lease expired.
--
-- The row of a project is the lock between files that are received and edits of its groups. The sender of a file
-- holds it FOR KEY SHARE until the job is committed; an edit (lock_project) and a release hold it FOR UPDATE while
-- they look for jobs. So an edit sees every received file, and a file waits for an edit in progress.
--
-- Lock order: attempts, then projects, then data_uploads. An edit locks its project before it looks at attempts, and
-- never waits for one.

-- Jobs -------------------------------------------------------------------------------------------------------

-- The status of an upload as the status of a job.
CREATE OR REPLACE FUNCTION weighbridge.job_status(p_status text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT CASE p_status WHEN 'pending' THEN 'queued' WHEN 'failed' THEN 'failed'
                             WHEN 'completed' THEN 'succeeded' WHEN 'partial' THEN 'succeeded'
                             ELSE 'running' END
    $$;
GRANT EXECUTE ON FUNCTION weighbridge.job_status(text) TO PUBLIC;

-- Uploads of projects as jobs. A preview is a job only while it is parsed: not on hold, and not after it was discarded.
CREATE OR REPLACE VIEW public.csv_processing_jobs WITH (security_invoker = true) AS
SELECT d.id,
       d.project_id,
       d.id AS csv_upload_id,
       -- staged and postponed, or abandoned by its worker: it is queued
       CASE WHEN d.status = 'staging_complete' AND NOT weighbridge.has_live_attempt(d.id) THEN 'queued'
            ELSE weighbridge.job_status(d.status) END AS status,
       d.filename AS source_filename,
       encode(d.content_sha256, 'hex') AS idempotency_key,
       d.attempts,
       d.error_text AS error,
       d.created_at,
       d.started_at,
       d.finished_at,
       d.workspace_id,
       d.status AS upload_status,
       d.error_code,
       d.total_rows AS rows,
       coalesce(made.inserted, 0) AS inserted,
       -- repeated in the file, or loaded from another file
       coalesce((d.bins ->> 'duplicate')::bigint, 0) + coalesce(made.known, 0) AS duplicate,
       d.failed_rows AS invalid,
       -- Progress. Rejected and repeated rows are processed once the file is parsed.
       CASE WHEN d.bins IS NULL THEN d.rows_read ELSE d.total_rows END AS rows_total,
       CASE WHEN d.status IN ('completed', 'partial', 'failed') THEN
                CASE WHEN d.bins IS NULL THEN d.rows_read ELSE d.total_rows END
            WHEN d.bins IS NULL THEN 0
            ELSE least(d.total_rows, d.total_rows - (d.bins ->> 'accepted')::bigint + coalesce(made.through, 0)) END
           AS rows_processed
FROM public.data_uploads d
LEFT JOIN LATERAL (
    SELECT sum((e.value ->> 'inserted')::bigint)::bigint AS inserted,
           sum((e.value ->> 'updated')::bigint + (e.value ->> 'unchanged')::bigint)::bigint AS known,
           sum((e.value ->> 'inserted')::bigint + (e.value ->> 'updated')::bigint + (e.value ->> 'unchanged')::bigint
               + (e.value ->> 'failed')::bigint)::bigint AS through
    FROM jsonb_each(d.promoted) e
) made ON true
WHERE d.project_id IS NOT NULL
  AND NOT (d.preview AND (d.status = 'staging_complete'
                          OR d.status = 'failed' AND d.error_code IN ('discarded', 'preview_expired')));
GRANT SELECT ON public.csv_processing_jobs TO weighbridge_tenant;

-- Creates a project, or renames it. Without an id it gets the next one of its workspace.
CREATE OR REPLACE FUNCTION weighbridge.make_project(p_id bigint, p_name text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_id bigint := p_id;
BEGIN
    LOOP
        IF p_id IS NULL THEN
            SELECT coalesce(max(p.id), 0) + 1 INTO v_id FROM public.projects p WHERE p.workspace_id = weighbridge.workspace();
        END IF;
        INSERT INTO public.projects (workspace_id, id, name)
        VALUES (weighbridge.workspace(), v_id, coalesce(p_name, format('Project %s', v_id)))
        ON CONFLICT (workspace_id, id) DO NOTHING; -- DO UPDATE would lock it: senders must not wait for each other
        EXIT WHEN FOUND OR p_id IS NOT NULL; -- else another request has taken the number meanwhile
    END LOOP;
    IF NOT FOUND AND p_name IS NOT NULL THEN
        UPDATE public.projects p SET name = p_name WHERE p.workspace_id = weighbridge.workspace() AND p.id = v_id;
    END IF;
    RETURN v_id;
END $$;
REVOKE ALL ON FUNCTION weighbridge.make_project(bigint, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.make_project(bigint, text) TO weighbridge_intake;

-- Whether a live attempt at a job of the project exists. A runner that lost its lease may still hold one.
CREATE OR REPLACE FUNCTION weighbridge.has_running_job(p_workspace uuid, p_project bigint) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
        SELECT EXISTS (
            SELECT FROM ( -- from the attempts: a workspace has a few, a project may have thousands of jobs
                SELECT a.subject FROM weighbridge.attempts a
                WHERE a.queue = 'uploads' AND a.workspace_id = p_workspace AND a.closed_at IS NULL AND a.slot IS NOT NULL
                OFFSET 0) a
            CROSS JOIN LATERAL (SELECT d.project_id FROM public.data_uploads d WHERE d.id = a.subject OFFSET 0) d
            WHERE d.project_id = p_project)
    $$;
REVOKE ALL ON FUNCTION weighbridge.has_running_job(uuid, bigint) FROM PUBLIC;

-- Whether the project has a job that has not ended. A preview on hold does not count.
CREATE OR REPLACE FUNCTION weighbridge.has_jobs(p_workspace uuid, p_project bigint) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
        SELECT EXISTS (
            SELECT FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.project_id = p_project
              AND d.status IN ('pending', 'processing', 'staging_complete', 'promoting')
              AND NOT (d.preview AND d.status = 'staging_complete'))
    $$;
REVOKE ALL ON FUNCTION weighbridge.has_jobs(uuid, bigint) FROM PUBLIC;

-- The time since which the project has a job that can be claimed now; NULL: it has none.
CREATE OR REPLACE FUNCTION weighbridge.claimable_since(p_workspace uuid, p_project bigint, p_pipelines text[], p_per_workspace int)
    RETURNS timestamptz
    LANGUAGE sql STABLE
    AS $$
        SELECT d.created_at FROM public.data_uploads d
        WHERE d.workspace_id = p_workspace AND d.project_id = p_project AND d.status IN ('pending', 'staging_complete')
          AND d.pipeline = ANY (p_pipelines) AND d.run_after <= weighbridge.now()
          AND (d.status = 'pending' OR weighbridge.waits_for(d) IS NULL)
          AND weighbridge.slots_in_use(p_workspace) < p_per_workspace
          AND NOT weighbridge.has_running_job(p_workspace, p_project)
        ORDER BY d.created_at, d.id LIMIT 1
    $$;
REVOKE ALL ON FUNCTION weighbridge.claimable_since(uuid, bigint, text[], int) FROM PUBLIC;

-- Run --------------------------------------------------------------------------------------------------------

-- Leases the next project: one with a job that can be claimed now, or one whose jobs have all ended and that is not grouped
-- yet. The workspaces take turns as in claim_waiting_upload; within one, by the age of the job. p_only: only this project.
-- p_skip: not of these workspaces. No row: there is none.
CREATE OR REPLACE FUNCTION weighbridge.claim_waiting_project(
    p_worker text, p_pipelines text[], p_lease interval, p_per_workspace int, p_only uuid, p_skip uuid[] DEFAULT '{}'
) RETURNS TABLE (project_key uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    -- Other joins would read all projects, or all attempts.
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_key uuid;
    v_workspace uuid;
    v_project bigint;
    v_token uuid;
BEGIN
    FOR v_key, v_workspace, v_project IN
        WITH RECURSIVE waiting (workspace_id, project_id) AS ( -- one probe per project with jobs, as in claim_waiting_upload
            (SELECT d.workspace_id, d.project_id FROM public.data_uploads d
             WHERE d.status IN ('pending', 'processing', 'staging_complete', 'promoting') AND d.project_id IS NOT NULL
             ORDER BY d.workspace_id, d.project_id LIMIT 1)
            UNION ALL
            SELECT n.workspace_id, n.project_id FROM waiting w
            CROSS JOIN LATERAL (
                SELECT d.workspace_id, d.project_id FROM public.data_uploads d
                WHERE d.status IN ('pending', 'processing', 'staging_complete', 'promoting') AND d.project_id IS NOT NULL
                  AND (d.workspace_id, d.project_id) > (w.workspace_id, w.project_id)
                ORDER BY d.workspace_id, d.project_id LIMIT 1) n
        )
        SELECT p.key, p.workspace_id, p.id
        FROM (
            SELECT w.workspace_id, w.project_id, head.created_at AS since
            FROM waiting w
            CROSS JOIN LATERAL ( -- as claimable_since, without a function call for each project
                SELECT d.created_at FROM public.data_uploads d
                WHERE d.workspace_id = w.workspace_id AND d.project_id = w.project_id
                  AND d.status IN ('pending', 'staging_complete')
                  AND d.pipeline = ANY (p_pipelines) AND d.run_after <= v_now
                ORDER BY d.created_at, d.id LIMIT 1
            ) head
            UNION ALL
            SELECT p.workspace_id, p.id, '-infinity' FROM public.projects p
            WHERE p.ungrouped AND NOT has_jobs(p.workspace_id, p.id)
        ) turn
        CROSS JOIN LATERAL (
            SELECT * FROM public.projects o WHERE o.workspace_id = turn.workspace_id AND o.id = turn.project_id OFFSET 0) p
        LEFT JOIN running_work() r ON r.workspace_id = p.workspace_id
        WHERE p.run_after <= v_now AND (p_only IS NULL OR p.key = p_only) AND p.workspace_id <> ALL (p_skip)
          AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'projects' AND a.subject = p.key AND a.closed_at IS NULL)
        ORDER BY coalesce(r.attempts, 0), served_at(p.workspace_id), turn.since, p.key
    LOOP
        -- The expensive checks last, for few projects.
        CONTINUE WHEN claimable_since(v_workspace, v_project, p_pipelines, p_per_workspace) IS NULL
                  AND has_jobs(v_workspace, v_project);
        -- Not while its groups are edited, nor while another worker claims it.
        PERFORM FROM public.projects p WHERE p.key = v_key FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        SELECT o.lease_token INTO v_token
        FROM open_attempts('projects', ARRAY[v_key], ARRAY[v_workspace], p_worker, p_lease) o;
        CONTINUE WHEN v_token IS NULL;
        PERFORM note_turn(v_workspace);
        project_key := v_key;
        lease_token := v_token;
        RETURN NEXT;
        RETURN;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION weighbridge.claim_waiting_project(text, text[], interval, int, uuid, uuid[]) FROM PUBLIC;

-- The next project for a runner. Abandoned work returns to its queue first, as in claim_upload.
CREATE OR REPLACE FUNCTION weighbridge.claim_project(
    p_worker text, p_pipelines text[], p_lease interval, p_per_workspace int, p_only uuid, p_max_crashes int,
    p_skip uuid[] DEFAULT '{}'
) RETURNS TABLE (project_key uuid, lease_token uuid, abandoned jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
#variable_conflict use_column
BEGIN
    abandoned := recover_abandoned(p_max_crashes);
    SELECT c.project_key, c.lease_token INTO project_key, lease_token
    FROM claim_waiting_project(p_worker, p_pipelines, p_lease, p_per_workspace, p_only, p_skip) c;
    IF project_key IS NOT NULL OR abandoned IS NOT NULL THEN
        RETURN NEXT;
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.claim_project(text, text[], interval, int, uuid, int, uuid[]) FROM PUBLIC;

-- The fence of a run. Its lease must also not have expired: an edit of the groups may have begun since.
CREATE OR REPLACE FUNCTION weighbridge.fence_project(p_token uuid) RETURNS public.projects
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_key uuid := fence(p_token);
    v_project public.projects;
BEGIN
    IF EXISTS (SELECT FROM attempts a WHERE a.lease_token = p_token AND a.lease_until < weighbridge.now()) THEN
        RAISE EXCEPTION 'lease % has expired', p_token USING ERRCODE = 'WB001';
    END IF;
    SELECT * INTO v_project FROM public.projects p WHERE p.key = v_key;
    RETURN v_project;
END $$;
REVOKE ALL ON FUNCTION weighbridge.fence_project(uuid) FROM PUBLIC;

-- The next job of a project for its runner, in the order received; postponed jobs are skipped. A preview does not
-- change keywords, so nothing has to be grouped after it.
CREATE OR REPLACE FUNCTION weighbridge.claim_job(p_token uuid, p_worker text, p_pipelines text[], p_lease interval, p_per_workspace int)
    RETURNS TABLE (upload_id uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_project public.projects := fence_project(p_token);
    v_upload uuid;
    v_preview boolean;
    v_ordered boolean;
BEGIN
    IF claimable_since(v_project.workspace_id, v_project.id, p_pipelines, p_per_workspace) IS NULL THEN
        RETURN;
    END IF;
    SELECT d.id, d.preview, d.lane IS NOT NULL AND d.status = 'staging_complete' INTO v_upload, v_preview, v_ordered
    FROM public.data_uploads d
    WHERE d.workspace_id = v_project.workspace_id AND d.project_id = v_project.id
      AND d.status IN ('pending', 'staging_complete') AND d.pipeline = ANY (p_pipelines) AND d.run_after <= weighbridge.now()
      AND (d.status = 'pending' OR waits_for(d) IS NULL)
    ORDER BY d.created_at, d.id LIMIT 1
    FOR UPDATE SKIP LOCKED;
    IF FOUND AND (NOT v_ordered OR may_promote_now(v_upload)) THEN
        IF NOT v_preview THEN
            UPDATE public.projects p SET ungrouped = true WHERE p.key = v_project.key AND NOT p.ungrouped;
        END IF;
        lease_token := open_attempt(v_upload, v_project.workspace_id, p_worker, p_lease, p_per_workspace, p_token);
        IF lease_token IS NOT NULL THEN
            PERFORM note_progress(p_token);
            upload_id := v_upload;
            RETURN NEXT;
        END IF;
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.claim_job(uuid, text, text[], interval, int) FROM PUBLIC;

-- Whether every job has ended, so that the groups can be made. A job received from now on waits for this run or the next.
CREATE OR REPLACE FUNCTION weighbridge.may_group(p_token uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_project public.projects := fence_project(p_token);
BEGIN
    RETURN v_project.ungrouped AND NOT has_jobs(v_project.workspace_id, v_project.id);
END $$;
REVOKE ALL ON FUNCTION weighbridge.may_group(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.may_group(uuid) TO weighbridge_group;

-- Called in the transaction that creates the groups.
CREATE OR REPLACE FUNCTION weighbridge.note_grouped(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_project public.projects := fence_project(p_token);
BEGIN
    UPDATE public.projects p
    SET ungrouped = false, grouped_at = weighbridge.now(), groupings = p.groupings + 1, failures = 0,
        run_after = '-infinity'
    WHERE p.key = v_project.key;
    PERFORM note_progress(p_token);
END $$;
REVOKE ALL ON FUNCTION weighbridge.note_grouped(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.note_grouped(uuid) TO weighbridge_group;

-- Ends a run and returns true; false if there is more to do. p_anyway: end it in any case, as the worker is stopping.
CREATE OR REPLACE FUNCTION weighbridge.release_project(p_token uuid, p_pipelines text[], p_per_workspace int, p_anyway boolean)
    RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_key uuid := fence(p_token);
    v_project public.projects;
BEGIN
    -- A transaction that is about to commit a job holds the row: wait for it, then look for jobs.
    SELECT * INTO v_project FROM public.projects p WHERE p.key = v_key FOR UPDATE;
    IF NOT p_anyway AND (
        claimable_since(v_project.workspace_id, v_project.id, p_pipelines, p_per_workspace) IS NOT NULL
        OR v_project.ungrouped AND NOT has_jobs(v_project.workspace_id, v_project.id)
    ) THEN
        RETURN false;
    END IF;
    PERFORM close_attempt(p_token, 'done', NULL);
    PERFORM pg_notify('weighbridge_work', '');
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION weighbridge.release_project(uuid, text[], int, boolean) FROM PUBLIC;

-- Ends a run that failed; the project is leased again after the delay.
CREATE OR REPLACE FUNCTION weighbridge.fail_project(p_token uuid, p_delay interval, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_key uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_error);
    UPDATE public.projects p SET failures = p.failures + 1, run_after = weighbridge.now() + p_delay WHERE p.key = v_key;
END $$;
REVOKE ALL ON FUNCTION weighbridge.fail_project(uuid, interval, text) FROM PUBLIC;

-- The worker that runs a project, and the end of its lease.
CREATE OR REPLACE VIEW public.project_processing_leases AS
SELECT p.id AS project_id,
       a.worker AS lease_owner,
       a.lease_until AS lease_expires_at,
       coalesce(a.renewed_at, a.opened_at) AS updated_at,
       p.workspace_id
FROM weighbridge.attempts a JOIN public.projects p ON p.key = a.subject
WHERE a.queue = 'projects' AND a.closed_at IS NULL;
COMMENT ON VIEW public.project_processing_leases IS 'The worker that runs a project, and the end of its lease.';

-- Edit lock --------------------------------------------------------------------------------------------------

-- Every edit of a project's groups happens in a transaction that called this first; it is written to the audit log. WB004: the
-- project is being processed. WB005: there is no such project.
CREATE OR REPLACE FUNCTION weighbridge.lock_project(p_project bigint, p_actor text, p_action text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET lock_timeout = '5s'
    AS $$
DECLARE
    v_project public.projects;
    v_lease attempts;
    v_leased boolean;
BEGIN
    SELECT * INTO v_project FROM public.projects p
    WHERE p.workspace_id = weighbridge.workspace() AND p.id = p_project
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no project %', p_project USING ERRCODE = 'WB005';
    END IF;
    SELECT * INTO v_lease FROM attempts a
    WHERE a.queue = 'projects' AND a.subject = v_project.key AND a.closed_at IS NULL;
    v_leased := FOUND;
    IF v_leased AND v_lease.lease_until < weighbridge.now() THEN
        -- The lease has expired. Unless its runner is in a fenced transaction now, closing the attempt prevents all
        -- further ones.
        PERFORM FROM attempts a WHERE a.lease_token = v_lease.lease_token AND a.closed_at IS NULL FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            PERFORM close_attempt(v_lease.lease_token, 'expired', NULL);
            v_leased := false;
        END IF;
    END IF;
    IF v_leased OR has_jobs(v_project.workspace_id, v_project.id) THEN
        RAISE EXCEPTION 'project % is being processed', p_project USING ERRCODE = 'WB004';
    END IF;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_project.workspace_id, p_actor, p_action, v_project.key, jsonb_build_object('project_id', p_project));
END $$;
REVOKE ALL ON FUNCTION weighbridge.lock_project(bigint, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.lock_project(bigint, text, text) TO weighbridge_group;

-- Status -----------------------------------------------------------------------------------------------------

-- Status of a project from its jobs and its lease, at one moment. No row: no such project. A failed file that was sent again is
-- shown once, with its last job. SECURITY DEFINER: tenants cannot read attempts.
CREATE OR REPLACE FUNCTION weighbridge.project_status(p_project bigint) RETURNS TABLE (
        project_id bigint, name text, leased boolean, ungrouped boolean, grouped_at timestamptz, groupings bigint,
        files jsonb, duplicates jsonb)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        SELECT p.id, p.name,
               EXISTS (SELECT FROM attempts a WHERE a.queue = 'projects' AND a.subject = p.key AND a.closed_at IS NULL
                       AND a.lease_until >= weighbridge.now()),
               p.ungrouped, p.grouped_at, p.groupings,
               coalesce((
                   SELECT jsonb_agg(jsonb_build_object(
                       'job_id', j.id, 'filename', j.source_filename, 'status', j.status, 'attempts', j.attempts,
                       'rows_total', j.rows_total, 'rows_processed', j.rows_processed, 'inserted', j.inserted,
                       'duplicate', j.duplicate, 'invalid', j.invalid, 'error', j.error_code, 'message', j.error
                   ) ORDER BY j.created_at, j.id)
                   FROM (SELECT j.*, row_number() OVER (PARTITION BY j.idempotency_key
                                                        ORDER BY j.created_at DESC, j.id DESC) AS age
                         FROM public.csv_processing_jobs j WHERE j.workspace_id = p.workspace_id AND j.project_id = p.id) j
                   WHERE j.age = 1 OR j.status <> 'failed'), '[]'),
               coalesce((
                   SELECT jsonb_agg(jsonb_build_object(
                       'filename', nullif(u.filename, ''), 'duplicate_of', u.upload_id, 'times', u.times
                   ) ORDER BY u.last_at, u.upload_id, u.filename)
                   FROM public.upload_duplicates u JOIN public.data_uploads d ON d.id = u.upload_id
                   WHERE d.workspace_id = p.workspace_id AND d.project_id = p.id), '[]')
        FROM public.projects p WHERE p.workspace_id = weighbridge.workspace() AND p.id = p_project
    $$;
REVOKE ALL ON FUNCTION weighbridge.project_status(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.project_status(bigint) TO weighbridge_tenant;

-- Wakes a worker that can run the project; harmless at any time. Returns whether there is such a project.
CREATE OR REPLACE FUNCTION weighbridge.kick_project(p_project bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    PERFORM pg_notify('weighbridge_work', '');
    RETURN EXISTS (SELECT FROM public.projects p WHERE p.workspace_id = weighbridge.workspace() AND p.id = p_project);
END $$;
REVOKE ALL ON FUNCTION weighbridge.kick_project(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.kick_project(bigint) TO weighbridge_tenant;

-- Keywords ---------------------------------------------------------------------------------------------------

-- The signature that decides the group of a keyword: its tokens with merges (token → token) applied, distinct and sorted.
CREATE OR REPLACE FUNCTION weighbridge.signature(p_tokens text, p_merges jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT string_agg(DISTINCT coalesce(p_merges ->> t.token, t.token) COLLATE "C", ' '
                          ORDER BY coalesce(p_merges ->> t.token, t.token) COLLATE "C")
        FROM unnest(string_to_array(p_tokens, ' ')) AS t (token)
    $$;
REVOKE ALL ON FUNCTION weighbridge.signature(text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.signature(text, jsonb) TO weighbridge_group;

-- A changed volume may give a group another parent; a confirmed group keeps its parent.
CREATE OR REPLACE FUNCTION weighbridge.note_volumes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    UPDATE public.keyword_groups g SET stale = true
    FROM new_rows a
    JOIN old_rows b USING (workspace_id, project_id, keyword_normalized)
    JOIN public.group_keywords m USING (workspace_id, project_id, keyword_normalized)
    WHERE a.volume IS DISTINCT FROM b.volume
      AND g.workspace_id = m.workspace_id AND g.project_id = m.project_id AND g.id = m.group_id
      AND NOT g.confirmed AND NOT g.stale;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION weighbridge.note_volumes() FROM PUBLIC;
CREATE OR REPLACE TRIGGER note_volumes AFTER UPDATE ON public.keywords
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.note_volumes();

-- A deleted keyword is removed from its group, for every kind of deletion.
CREATE OR REPLACE FUNCTION weighbridge.ungroup_deleted_keywords() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    WITH removed AS (
        DELETE FROM public.group_keywords m USING old_rows b
        WHERE m.workspace_id = b.workspace_id AND m.project_id = b.project_id AND m.keyword_normalized = b.keyword_normalized
        RETURNING m.*
    )
    UPDATE public.keyword_groups g SET stale = true FROM removed l
    WHERE g.workspace_id = l.workspace_id AND g.project_id = l.project_id AND g.id = l.group_id AND NOT g.stale;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION weighbridge.ungroup_deleted_keywords() FROM PUBLIC;
CREATE OR REPLACE TRIGGER ungroup_deleted_keywords AFTER DELETE ON public.keywords
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.ungroup_deleted_keywords();
