-- Projects (S2): files that belong together. One runner at a time works on a project's files, in order of arrival; when
-- none is left it groups, once, and lets go.
--
-- projects                   a project of a workspace; its first file opens it
-- data_uploads.project_id    a file of a project is a job: only the project's runner claims it
-- csv_processing_jobs        those uploads in S2's words
-- project_processing_leases  the attempts at projects in S2's words: who runs one, until when
-- upload_duplicates          files that were here already: shown, never counted
--
-- A run. claim_project opens the attempt; claim_job opens one below it for each file; may_group says when every file has
-- ended; release_project closes the attempt, unless a file came meanwhile. Whoever dies is recovered like everybody else.
--
-- The row of a project stands between files that come and hands that edit its groups: who sends a file holds it FOR KEY
-- SHARE until the job is committed, who edits or releases holds it FOR UPDATE while it looks for jobs. None can slip past.
-- Lock order: attempts, then projects, then data_uploads. An edit holds its project before it looks at attempts, and
-- never waits for one.

DO $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('weighbridge.roles'));
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'weighbridge_group') THEN
        CREATE ROLE weighbridge_group NOLOGIN;
    END IF;
    IF NOT pg_has_role(current_user, 'weighbridge_group', 'MEMBER') THEN
        GRANT weighbridge_group TO CURRENT_USER;
    END IF;
END $$;
GRANT USAGE ON SCHEMA weighbridge, public TO weighbridge_group;

CREATE TABLE public.projects (
    workspace_id uuid NOT NULL,
    id bigint NOT NULL CHECK (id BETWEEN 1 AND 9007199254740991), -- what a JSON number can hold
    key uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE, -- what attempts know it by
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    ungrouped boolean NOT NULL DEFAULT false, -- a job began after the last grouping
    grouped_at timestamptz,
    groupings bigint NOT NULL DEFAULT 0,
    run_after timestamptz NOT NULL DEFAULT '-infinity', -- after a run that failed it is not leased before
    failures int NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX projects_ungrouped ON public.projects (workspace_id, id) WHERE ungrouped;
ALTER TABLE public.projects ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON public.projects USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT SELECT ON public.projects TO weighbridge_tenant, weighbridge_group;

-- Jobs ------------------------------------------------------------------------------------------------------

ALTER TABLE public.data_uploads ADD COLUMN project_id bigint;
ALTER TABLE public.data_uploads ADD COLUMN attempts int NOT NULL DEFAULT 0; -- claims of it, by whomever
-- The check takes FOR KEY SHARE on the project: see above.
ALTER TABLE public.data_uploads ADD FOREIGN KEY (workspace_id, project_id) REFERENCES public.projects (workspace_id, id);

DROP INDEX public.data_uploads_content;
CREATE UNIQUE INDEX data_uploads_content ON public.data_uploads
    (workspace_id, pipeline, client_id, platform, project_id, content_sha256) NULLS NOT DISTINCT
    WHERE status <> 'failed' AND NOT forced;
-- What any worker may claim; jobs are their runner's, and must not stand in the way of the others.
DROP INDEX public.data_uploads_claimable;
CREATE INDEX data_uploads_claimable ON public.data_uploads (workspace_id, created_at, id)
    WHERE status IN ('pending', 'staging_complete') AND project_id IS NULL;
CREATE INDEX data_uploads_jobs ON public.data_uploads (workspace_id, project_id, created_at, id)
    WHERE status IN ('pending', 'processing', 'staging_complete', 'promoting') AND project_id IS NOT NULL;
CREATE INDEX data_uploads_of_project ON public.data_uploads (workspace_id, project_id, created_at, id)
    INCLUDE (status, started_at, finished_at)
    WHERE project_id IS NOT NULL;

CREATE FUNCTION weighbridge.job_status(p_status text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT CASE p_status WHEN 'pending' THEN 'queued' WHEN 'failed' THEN 'failed'
                             WHEN 'completed' THEN 'succeeded' WHEN 'partial' THEN 'succeeded'
                             ELSE 'running' END
    $$;

-- Does anybody work on the upload? A definer: attempts are closed to tenants.
CREATE FUNCTION weighbridge.in_hand(p_upload uuid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        SELECT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = p_upload AND a.closed_at IS NULL)
    $$;

CREATE VIEW public.csv_processing_jobs WITH (security_invoker = true) AS
SELECT d.id,
       d.project_id,
       d.id AS csv_upload_id,
       -- staged, and put off or left by its worker: it waits like one that never began
       CASE WHEN d.status = 'staging_complete' AND NOT weighbridge.in_hand(d.id) THEN 'queued'
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
       -- told twice in the file, or known from another one
       coalesce((d.bins ->> 'duplicate')::bigint, 0) + coalesce(made.known, 0) AS duplicate,
       d.failed_rows AS invalid,
       -- How far it is. What is refused or told twice is through once the file is parsed.
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
WHERE d.project_id IS NOT NULL;
GRANT SELECT ON public.csv_processing_jobs TO weighbridge_tenant;

CREATE TABLE public.upload_duplicates (
    upload_id uuid NOT NULL REFERENCES public.data_uploads ON DELETE CASCADE,
    workspace_id uuid NOT NULL,
    filename text NOT NULL, -- what it was called this time; empty where it had no name
    times int NOT NULL DEFAULT 1,
    last_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (upload_id, filename)
);
COMMENT ON TABLE public.upload_duplicates IS 'Files that were here already: shown, never counted.';
ALTER TABLE public.upload_duplicates ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON public.upload_duplicates USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT SELECT ON public.upload_duplicates TO weighbridge_tenant;

CREATE FUNCTION weighbridge.note_duplicate(p_upload uuid, p_filename text) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        INSERT INTO upload_duplicates AS u (upload_id, workspace_id, filename)
        SELECT d.id, d.workspace_id, coalesce(p_filename, '')
        FROM data_uploads d WHERE d.id = p_upload AND d.workspace_id = weighbridge.workspace()
        ON CONFLICT (upload_id, filename) DO UPDATE SET times = u.times + 1, last_at = excluded.last_at
    $$;

-- Makes a project, or gives it another name. Without an id it gets the next one of its workspace.
CREATE FUNCTION weighbridge.make_project(p_id bigint, p_name text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_id bigint := p_id;
BEGIN
    LOOP
        IF p_id IS NULL THEN
            SELECT coalesce(max(p.id), 0) + 1 INTO v_id FROM projects p WHERE p.workspace_id = weighbridge.workspace();
        END IF;
        INSERT INTO projects (workspace_id, id, name)
        VALUES (weighbridge.workspace(), v_id, coalesce(p_name, format('Project %s', v_id)))
        ON CONFLICT (workspace_id, id) DO NOTHING; -- DO UPDATE would lock it: senders must not wait for each other
        EXIT WHEN FOUND OR p_id IS NOT NULL; -- else another has taken the number meanwhile
    END LOOP;
    IF NOT FOUND AND p_name IS NOT NULL THEN
        UPDATE projects p SET name = p_name WHERE p.workspace_id = weighbridge.workspace() AND p.id = v_id;
    END IF;
    RETURN v_id;
END $$;

-- Intake ----------------------------------------------------------------------------------------------------

DROP FUNCTION weighbridge.known_upload(uuid, text, uuid, text, bytea, text, boolean);
CREATE FUNCTION weighbridge.known_upload(
    p_workspace uuid, p_pipeline text, p_client uuid, p_platform text, p_project bigint, p_sha256 bytea, p_batch text,
    p_forced boolean
) RETURNS SETOF weighbridge.received
    LANGUAGE sql STABLE
    AS $$
        SELECT found.id, true, found.reason
        FROM (
            SELECT d.id, 1 AS rank,
                   CASE WHEN (d.content_sha256, d.pipeline, d.client_id, d.platform, d.project_id)
                             IS DISTINCT FROM (p_sha256, p_pipeline, p_client, p_platform, p_project) THEN 'batch_differs'
                        WHEN d.status = 'failed' THEN 'batch_failed'
                        ELSE 'duplicate_' || ingest.run_status(d.status) END AS reason
            FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.source_batch_id = p_batch
            UNION ALL
            SELECT d.id, 2, 'duplicate_content'
            FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.pipeline = p_pipeline
              AND d.client_id IS NOT DISTINCT FROM p_client AND d.platform IS NOT DISTINCT FROM p_platform
              AND d.project_id IS NOT DISTINCT FROM p_project
              AND d.content_sha256 = p_sha256 AND d.status <> 'failed' AND NOT d.forced AND NOT p_forced
        ) AS found
        ORDER BY found.rank LIMIT 1
    $$;

DROP FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text);
CREATE FUNCTION weighbridge.receive_upload(
    p_workspace uuid, p_client uuid, p_platform text, p_project bigint, p_source text, p_pipeline text, p_filename text,
    p_file_url text, p_file_kind text, p_sha256 bytea, p_size bigint, p_created_by uuid,
    p_force_partial boolean, p_forced boolean, p_batch text, p_traceparent text
) RETURNS weighbridge.received
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_id uuid;
    v_known weighbridge.received;
BEGIN
    IF p_workspace IS DISTINCT FROM weighbridge.workspace() THEN
        RAISE EXCEPTION 'the transaction acts for another workspace' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF p_project IS NOT NULL THEN
        PERFORM make_project(p_project, NULL); -- its first file opens it
    END IF;
    LOOP
        INSERT INTO data_uploads (workspace_id, client_id, platform, project_id, source, pipeline, filename, file_url,
                                  file_kind, content_sha256, byte_size, created_by, force_partial, forced,
                                  source_batch_id, traceparent)
        VALUES (p_workspace, p_client, p_platform, p_project, p_source, p_pipeline, p_filename, p_file_url,
                p_file_kind, p_sha256, p_size, p_created_by, p_force_partial, p_forced, p_batch, p_traceparent)
        ON CONFLICT DO NOTHING
        RETURNING id INTO v_id;
        IF v_id IS NOT NULL THEN
            PERFORM pg_notify('weighbridge_work', '');
            PERFORM pg_notify('weighbridge_live', json_build_object(
                'workspace_id', p_workspace, 'upload_id', v_id, 'status', 'pending')::text);
            RETURN (v_id, false, NULL::text);
        END IF;
        SELECT * INTO v_known
        FROM known_upload(p_workspace, p_pipeline, p_client, p_platform, p_project, p_sha256, p_batch, p_forced);
        IF FOUND THEN
            RETURN v_known;
        END IF;
        -- It failed between the two statements: now the way is free.
    END LOOP;
END $$;

-- Claims ----------------------------------------------------------------------------------------------------

ALTER TABLE weighbridge.attempts ADD COLUMN under uuid; -- the attempt at its project, where it is one at a job
ALTER TABLE weighbridge.attempts ADD COLUMN renewed_at timestamptz;
CREATE INDEX attempts_under ON weighbridge.attempts (under) WHERE under IS NOT NULL;

-- Opens an attempt at an upload whose row the caller has locked, in a free slot of its workspace. NULL: there is none.
CREATE FUNCTION weighbridge.open_attempt(
    p_upload uuid, p_workspace uuid, p_worker text, p_lease interval, p_per_workspace int, p_under uuid
) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_now timestamptz := weighbridge.now();
    v_token uuid;
BEGIN
    FOR v_slot IN 1 .. p_per_workspace LOOP
        -- A lock that is tried, not waited for: a claim that froze before its commit keeps its slot, and holds nobody
        -- else up.
        CONTINUE WHEN EXISTS (
                SELECT FROM attempts a
                WHERE a.queue = 'uploads' AND a.workspace_id = p_workspace AND a.slot = v_slot AND a.closed_at IS NULL)
            OR NOT pg_try_advisory_xact_lock(hashtextextended(format('%s/%s', p_workspace, v_slot), 2));
        INSERT INTO attempts AS a (queue, subject, workspace_id, slot, worker, opened_at, progressed_at, lease_until,
                                   renewed_at, under)
        VALUES ('uploads', p_upload, p_workspace, v_slot, p_worker, v_now, v_now, v_now + p_lease, v_now, p_under)
        ON CONFLICT DO NOTHING
        RETURNING a.lease_token INTO v_token;
        EXIT WHEN v_token IS NOT NULL;
    END LOOP;
    IF v_token IS NOT NULL THEN
        INSERT INTO unbroken (lease_token) VALUES (v_token);
        UPDATE data_uploads d
        SET status = CASE d.status WHEN 'pending' THEN 'processing' ELSE 'promoting' END,
            started_at = coalesce(d.started_at, v_now), attempts = d.attempts + 1
        WHERE d.id = p_upload;
    END IF;
    RETURN v_token;
END $$;

-- Claims the oldest upload of the workspace whose turn it is: workspaces with a free slot, by the age of
-- their oldest waiting upload. Returns no row where nothing may be claimed. Jobs of projects are their runner's.
CREATE OR REPLACE FUNCTION weighbridge.claim_upload(
    p_worker text, p_from text[], p_pipelines text[], p_lease interval, p_per_workspace int
) RETURNS TABLE (upload_id uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_workspace uuid;
    v_upload uuid;
    v_token uuid;
BEGIN
    FOR v_workspace IN
        -- A loose index scan: one probe per workspace with waiting uploads, however many each has, so that a
        -- full workspace at the head holds nobody up.
        WITH RECURSIVE waiting (workspace_id) AS (
            (SELECT d.workspace_id FROM data_uploads d
             WHERE d.status IN ('pending', 'staging_complete') AND d.project_id IS NULL
             ORDER BY d.workspace_id LIMIT 1)
            UNION ALL
            SELECT (SELECT d.workspace_id FROM data_uploads d
                    WHERE d.status IN ('pending', 'staging_complete') AND d.project_id IS NULL
                      AND d.workspace_id > w.workspace_id
                    ORDER BY d.workspace_id LIMIT 1)
            FROM waiting w WHERE w.workspace_id IS NOT NULL
        )
        SELECT w.workspace_id
        FROM waiting w
        CROSS JOIN LATERAL (
            SELECT d.created_at FROM data_uploads d
            WHERE d.workspace_id = w.workspace_id AND d.status IN ('pending', 'staging_complete')
              AND d.project_id IS NULL
              AND d.status = ANY (p_from) AND d.pipeline = ANY (p_pipelines) AND d.run_after <= v_now
              AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = d.id AND a.closed_at IS NULL)
            ORDER BY d.created_at, d.id LIMIT 1
        ) head
        WHERE slots_taken(w.workspace_id) < p_per_workspace
        ORDER BY head.created_at
    LOOP
        -- SKIP LOCKED: a slow claim must not queue the others.
        SELECT d.id INTO v_upload FROM data_uploads d
        WHERE d.workspace_id = v_workspace AND d.status IN ('pending', 'staging_complete') AND d.project_id IS NULL
          AND d.status = ANY (p_from) AND d.pipeline = ANY (p_pipelines) AND d.run_after <= v_now
          -- staged, and its own attempt goes on to promote it
          AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = d.id AND a.closed_at IS NULL)
        ORDER BY d.created_at, d.id LIMIT 1
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_token := open_attempt(v_upload, v_workspace, p_worker, p_lease, p_per_workspace, NULL);
        CONTINUE WHEN v_token IS NULL;
        upload_id := v_upload;
        lease_token := v_token;
        RETURN NEXT;
        RETURN;
    END LOOP;
END $$;

CREATE FUNCTION weighbridge.slots_taken(p_workspace uuid) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
        SELECT count(*) FROM weighbridge.attempts a
        WHERE a.queue = 'uploads' AND a.workspace_id = p_workspace AND a.closed_at IS NULL AND a.slot IS NOT NULL
    $$;

-- A run whose job beats and makes progress makes progress itself.
CREATE OR REPLACE FUNCTION weighbridge.heartbeat(p_tokens uuid[], p_lease interval, p_ceiling interval) RETURNS SETOF uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        UPDATE attempts a
        SET lease_until = least(weighbridge.now() + p_lease, p_ceiling + greatest(
                a.progressed_at, (SELECT max(j.progressed_at) FROM attempts j WHERE j.under = a.lease_token))),
            renewed_at = weighbridge.now()
        WHERE a.lease_token = ANY (p_tokens) AND a.closed_at IS NULL
        RETURNING a.lease_token
    $$;

-- Does anybody work on a job of the project? A runner that lost its lease may still have one in its hands.
CREATE FUNCTION weighbridge.job_in_hand(p_workspace uuid, p_project bigint) RETURNS boolean
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

-- Has the project a job that has not ended?
CREATE FUNCTION weighbridge.has_jobs(p_workspace uuid, p_project bigint) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
        SELECT EXISTS (
            SELECT FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.project_id = p_project
              AND d.status IN ('pending', 'processing', 'staging_complete', 'promoting'))
    $$;

-- Since when it has had a job that can be claimed now; NULL: it has none.
CREATE FUNCTION weighbridge.claimable_since(p_workspace uuid, p_project bigint, p_pipelines text[], p_per_workspace int)
    RETURNS timestamptz
    LANGUAGE sql STABLE
    AS $$
        SELECT d.created_at FROM public.data_uploads d
        WHERE d.workspace_id = p_workspace AND d.project_id = p_project AND d.status IN ('pending', 'staging_complete')
          AND d.pipeline = ANY (p_pipelines) AND d.run_after <= weighbridge.now()
          AND weighbridge.slots_taken(p_workspace) < p_per_workspace
          AND NOT weighbridge.job_in_hand(p_workspace, p_project)
        ORDER BY d.created_at, d.id LIMIT 1
    $$;

-- Leases the project whose turn it is: with a job that can be claimed now, by its age, or with all jobs ended and the
-- grouping still to be done. p_only: this one and no other. Returns no row where there is none.
CREATE FUNCTION weighbridge.claim_project(
    p_worker text, p_pipelines text[], p_lease interval, p_per_workspace int, p_only uuid
) RETURNS TABLE (project_key uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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
        WITH RECURSIVE waiting (workspace_id, project_id) AS ( -- one probe per project with jobs, as in claim_upload
            (SELECT d.workspace_id, d.project_id FROM data_uploads d
             WHERE d.status IN ('pending', 'processing', 'staging_complete', 'promoting') AND d.project_id IS NOT NULL
             ORDER BY d.workspace_id, d.project_id LIMIT 1)
            UNION ALL
            SELECT n.workspace_id, n.project_id FROM waiting w
            CROSS JOIN LATERAL (
                SELECT d.workspace_id, d.project_id FROM data_uploads d
                WHERE d.status IN ('pending', 'processing', 'staging_complete', 'promoting') AND d.project_id IS NOT NULL
                  AND (d.workspace_id, d.project_id) > (w.workspace_id, w.project_id)
                ORDER BY d.workspace_id, d.project_id LIMIT 1) n
        )
        SELECT p.key, p.workspace_id, p.id
        FROM (
            SELECT w.workspace_id, w.project_id, head.created_at AS since
            FROM waiting w
            CROSS JOIN LATERAL ( -- as claimable_since, but that a function call for each project takes its time
                SELECT d.created_at FROM data_uploads d
                WHERE d.workspace_id = w.workspace_id AND d.project_id = w.project_id
                  AND d.status IN ('pending', 'staging_complete')
                  AND d.pipeline = ANY (p_pipelines) AND d.run_after <= v_now
                ORDER BY d.created_at, d.id LIMIT 1
            ) head
            UNION ALL
            SELECT p.workspace_id, p.id, '-infinity' FROM projects p
            WHERE p.ungrouped AND NOT has_jobs(p.workspace_id, p.id)
        ) turn
        JOIN projects p ON p.workspace_id = turn.workspace_id AND p.id = turn.project_id
        WHERE p.run_after <= v_now AND (p_only IS NULL OR p.key = p_only)
          AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'projects' AND a.subject = p.key AND a.closed_at IS NULL)
        ORDER BY turn.since, p.key
    LOOP
        -- The dear questions last, and of few.
        CONTINUE WHEN claimable_since(v_workspace, v_project, p_pipelines, p_per_workspace) IS NULL
                  AND has_jobs(v_workspace, v_project);
        -- Not while somebody edits its groups, nor while another claim of it is under way.
        PERFORM FROM projects p WHERE p.key = v_key FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        INSERT INTO attempts AS a (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until, renewed_at)
        VALUES ('projects', v_key, v_workspace, p_worker, v_now, v_now, v_now + p_lease, v_now)
        ON CONFLICT DO NOTHING
        RETURNING a.lease_token INTO v_token;
        CONTINUE WHEN v_token IS NULL;
        project_key := v_key;
        lease_token := v_token;
        RETURN NEXT;
        RETURN;
    END LOOP;
END $$;

-- The same after what was abandoned has gone back to its queue: the sweep at the start of a run (S2 §4.3).
CREATE FUNCTION weighbridge.take_up_project(
    p_worker text, p_pipelines text[], p_lease interval, p_per_workspace int, p_only uuid, p_max_crashes int
) RETURNS TABLE (project_key uuid, lease_token uuid, abandoned jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
BEGIN
    IF EXISTS (SELECT FROM attempts a WHERE a.closed_at IS NULL AND a.lease_until < weighbridge.now())
       OR EXISTS (SELECT FROM orphans) THEN
        SELECT jsonb_agg(to_jsonb(r)) INTO abandoned FROM recover(p_max_crashes) r;
    END IF;
    SELECT c.project_key, c.lease_token INTO project_key, lease_token
    FROM claim_project(p_worker, p_pipelines, p_lease, p_per_workspace, p_only) c;
    IF project_key IS NOT NULL OR abandoned IS NOT NULL THEN
        RETURN NEXT;
    END IF;
END $$;

-- The fence of a run. Its lease must also not have run out: an edit of the groups may have begun since.
CREATE FUNCTION weighbridge.fence_project(p_token uuid) RETURNS public.projects
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_key uuid := fence(p_token);
    v_project projects;
BEGIN
    IF EXISTS (SELECT FROM attempts a WHERE a.lease_token = p_token AND a.lease_until < weighbridge.now()) THEN
        RAISE EXCEPTION 'lease % has run out', p_token USING ERRCODE = 'WB001';
    END IF;
    SELECT * INTO v_project FROM projects p WHERE p.key = v_key;
    RETURN v_project;
END $$;

-- The next job of a project for its runner, in order of arrival; one that is put off lets the next go first.
CREATE FUNCTION weighbridge.claim_job(
    p_token uuid, p_worker text, p_pipelines text[], p_lease interval, p_per_workspace int
) RETURNS TABLE (upload_id uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_project projects := fence_project(p_token);
    v_upload uuid;
BEGIN
    IF claimable_since(v_project.workspace_id, v_project.id, p_pipelines, p_per_workspace) IS NULL THEN
        RETURN;
    END IF;
    UPDATE projects p SET ungrouped = true WHERE p.key = v_project.key AND NOT p.ungrouped;
    SELECT d.id INTO v_upload FROM data_uploads d
    WHERE d.workspace_id = v_project.workspace_id AND d.project_id = v_project.id
      AND d.status IN ('pending', 'staging_complete') AND d.pipeline = ANY (p_pipelines) AND d.run_after <= weighbridge.now()
    ORDER BY d.created_at, d.id LIMIT 1
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        lease_token := open_attempt(v_upload, v_project.workspace_id, p_worker, p_lease, p_per_workspace, p_token);
        IF lease_token IS NOT NULL THEN
            UPDATE attempts a SET progressed_at = weighbridge.now() WHERE a.lease_token = p_token;
            upload_id := v_upload;
            RETURN NEXT;
        END IF;
    END IF;
END $$;

-- Has every job ended, so that the groups can be made? A job that comes from now on waits for this run or the next.
CREATE FUNCTION weighbridge.may_group(p_token uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_project projects := fence_project(p_token);
BEGIN
    RETURN v_project.ungrouped AND NOT has_jobs(v_project.workspace_id, v_project.id);
END $$;

-- In the transaction that made the groups.
CREATE FUNCTION weighbridge.note_grouped(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_project projects := fence_project(p_token);
BEGIN
    UPDATE projects p
    SET ungrouped = false, grouped_at = weighbridge.now(), groupings = p.groupings + 1, failures = 0,
        run_after = '-infinity'
    WHERE p.key = v_project.key;
    UPDATE attempts a SET progressed_at = weighbridge.now() WHERE a.lease_token = p_token;
END $$;

-- Ends a run, unless there is more that it could do; then the answer is false. p_anyway: the worker is stopping.
CREATE FUNCTION weighbridge.release_project(p_token uuid, p_pipelines text[], p_per_workspace int, p_anyway boolean)
    RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_key uuid := fence(p_token);
    v_project projects;
BEGIN
    -- Whoever is about to commit a job holds the row: wait for it, then look.
    SELECT * INTO v_project FROM projects p WHERE p.key = v_key FOR UPDATE;
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

-- Ends a run that failed; the project is leased again after the delay.
CREATE FUNCTION weighbridge.fail_project(p_token uuid, p_delay interval, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_key uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_error);
    UPDATE projects p SET failures = p.failures + 1, run_after = weighbridge.now() + p_delay WHERE p.key = v_key;
END $$;

CREATE VIEW public.project_processing_leases AS
SELECT p.id AS project_id,
       a.worker AS lease_owner,
       a.lease_until AS lease_expires_at,
       coalesce(a.renewed_at, a.opened_at) AS updated_at,
       p.workspace_id
FROM weighbridge.attempts a JOIN public.projects p ON p.key = a.subject
WHERE a.queue = 'projects' AND a.closed_at IS NULL;
COMMENT ON VIEW public.project_processing_leases IS 'Who runs a project, until when, if nothing more is heard (S2 §3.1).';

-- The lock (S2 §7.1) ----------------------------------------------------------------------------------------

-- Every edit of a project's groups happens in a transaction that called this first. WB004: its files are being
-- processed, and it may not. WB005: there is no such project. What goes through is audited.
CREATE FUNCTION weighbridge.lock_project(p_project bigint, p_actor text, p_action text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_project projects;
    v_lease attempts;
    v_leased boolean;
BEGIN
    SELECT * INTO v_project FROM projects p
    WHERE p.workspace_id = weighbridge.workspace() AND p.id = p_project
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no project %', p_project USING ERRCODE = 'WB005';
    END IF;
    SELECT * INTO v_lease FROM attempts a
    WHERE a.queue = 'projects' AND a.subject = v_project.key AND a.closed_at IS NULL;
    v_leased := FOUND;
    IF v_leased AND v_lease.lease_until < weighbridge.now() THEN
        -- It ran out. If its runner is not in the middle of a transaction, it never gets into one again.
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

-- Status (S2 §7.4, §7.5, §11.0.1) ---------------------------------------------------------------------------

-- What is said of a project, all of it from its job rows and its lease, at one moment. No row: no such project.
-- A failed file that was sent again is the one file that it is, as its last job stands.
-- A definer: attempts, which say who holds a lease, are closed to tenants.
CREATE FUNCTION weighbridge.project_status(p_project bigint) RETURNS TABLE (
        project_id bigint, name text, leased boolean, ungrouped boolean, grouped_at timestamptz, groupings bigint,
        files jsonb, duplicates jsonb)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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
                         FROM csv_processing_jobs j WHERE j.workspace_id = p.workspace_id AND j.project_id = p.id) j
                   WHERE j.age = 1 OR j.status <> 'failed'), '[]'),
               coalesce((
                   SELECT jsonb_agg(jsonb_build_object(
                       'filename', nullif(u.filename, ''), 'duplicate_of', u.upload_id, 'times', u.times
                   ) ORDER BY u.last_at, u.upload_id, u.filename)
                   FROM upload_duplicates u JOIN data_uploads d ON d.id = u.upload_id
                   WHERE d.workspace_id = p.workspace_id AND d.project_id = p.id), '[]')
        FROM projects p WHERE p.workspace_id = weighbridge.workspace() AND p.id = p_project
    $$;

-- Wakes whoever can run the project; harmless at any time, from anywhere (S2 §4.1). The answer: is there such a project?
CREATE FUNCTION weighbridge.kick_project(p_project bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    PERFORM pg_notify('weighbridge_work', '');
    RETURN EXISTS (SELECT FROM projects p WHERE p.workspace_id = weighbridge.workspace() AND p.id = p_project);
END $$;

-- Elsewhere -------------------------------------------------------------------------------------------------

-- As before; a job that is opened again is one that comes: its project must not be edited meanwhile.
CREATE OR REPLACE FUNCTION weighbridge.retry_upload(p_upload uuid, p_force_partial boolean, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Uploads that nobody has in hand: in two, as there are two partial indexes.
CREATE FUNCTION weighbridge.waiting_uploads(p_workspace uuid) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
        SELECT (SELECT count(*) FROM public.data_uploads d WHERE d.status IN ('pending', 'staging_complete')
                AND d.project_id IS NULL AND (p_workspace IS NULL OR d.workspace_id = p_workspace))
             + (SELECT count(*) FROM public.data_uploads d WHERE d.status IN ('pending', 'staging_complete')
                AND d.project_id IS NOT NULL AND (p_workspace IS NULL OR d.workspace_id = p_workspace))
    $$;

CREATE OR REPLACE FUNCTION weighbridge.watch_queues(p_dead_letters int, p_backlog int) RETURNS TABLE (dead_letters bigint, backlog bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    SELECT count(*) INTO dead_letters FROM data_uploads WHERE status = 'failed' AND (dismissed_at IS NULL OR dismissed_at < finished_at);
    SELECT waiting_uploads(NULL)
         + (SELECT count(*) FROM attempts a JOIN data_uploads d ON d.id = a.subject AND d.status IN ('processing', 'promoting')
            WHERE a.queue = 'uploads' AND a.closed_at IS NULL) INTO backlog;
    IF dead_letters > p_dead_letters THEN
        PERFORM raise_alert('dead_letters', '', 'WARNING',
            format('Ingest dead-letter queue has %s messages', dead_letters));
    ELSE
        PERFORM withdraw_alert('dead_letters', '',
            format('Ingest dead-letter queue is back to %s messages', dead_letters));
    END IF;
    IF backlog > p_backlog THEN
        PERFORM raise_alert('backlog', '', 'WARNING', format('Ingest backlog at %s pending jobs', backlog));
    ELSE
        PERFORM withdraw_alert('backlog', '', format('Ingest backlog is back to %s pending jobs', backlog));
    END IF;
    RETURN NEXT;
END $$;

CREATE OR REPLACE FUNCTION weighbridge.workspace_figures() RETURNS TABLE (
        backlog_count bigint, failed_24h bigint, stale_runs bigint, avg_processing_seconds double precision,
        last_failed_batch text, last_failed_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        WITH mine AS MATERIALIZED (SELECT workspace() AS id),
        failed AS (
            SELECT batch_name(d) AS batch, d.finished_at
            FROM data_uploads d WHERE d.workspace_id = (SELECT id FROM mine) AND d.status = 'failed'
            ORDER BY d.finished_at DESC LIMIT 1
        )
        SELECT waiting_uploads((SELECT id FROM mine))
               + (SELECT count(*) FROM data_uploads d WHERE d.workspace_id = (SELECT id FROM mine)
                  AND d.status IN ('processing', 'promoting')),
               (SELECT count(*) FROM data_uploads d WHERE d.workspace_id = (SELECT id FROM mine)
                AND d.status = 'failed' AND d.finished_at > weighbridge.now() - INTERVAL '24h'),
               (SELECT count(*) FROM ingest.v_stale_runs s JOIN data_uploads d ON d.id = s.id
                WHERE d.workspace_id = (SELECT id FROM mine)),
               (SELECT avg(EXTRACT(EPOCH FROM d.finished_at - d.started_at))::double precision FROM data_uploads d
                WHERE d.workspace_id = (SELECT id FROM mine) AND d.status IN ('completed', 'partial')),
               (SELECT f.batch FROM failed f),
               (SELECT f.finished_at FROM failed f)
    $$;

-- An edit may take its time; whoever waits for the row of its project gives up after a while, and may try again.
ALTER FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, bigint, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text)
    SET lock_timeout = '5s';
ALTER FUNCTION weighbridge.retry_upload(uuid, boolean, text) SET lock_timeout = '5s';
ALTER FUNCTION weighbridge.lock_project(bigint, text, text) SET lock_timeout = '5s';

-- Who may do what -------------------------------------------------------------------------------------------

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA weighbridge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.now(), weighbridge.workspace(), weighbridge.natural_key_hash(text[]),
    weighbridge.entity_id(text[]), weighbridge.job_status(text) TO PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.receive_upload(
    uuid, uuid, text, bigint, text, text, text, text, text, bytea, bigint, uuid, boolean, boolean, text, text),
    weighbridge.note_duplicate(uuid, text), weighbridge.make_project(bigint, text) TO weighbridge_intake;
GRANT EXECUTE ON FUNCTION weighbridge.known_upload(uuid, text, uuid, text, bigint, bytea, text, boolean),
    weighbridge.project_status(bigint), weighbridge.kick_project(bigint), weighbridge.in_hand(uuid)
    TO weighbridge_tenant;
GRANT EXECUTE ON FUNCTION weighbridge.lock_project(bigint, text, text), weighbridge.may_group(uuid), weighbridge.note_grouped(uuid)
    TO weighbridge_group;
