-- The tables of every subject, with their constraints, indexes, policies and rights.
--
-- The functions, triggers and views on top of them are in the functions.sql of each subject. postgres/functions.sql is
-- applied before this file: defaults, checks and policies below call weighbridge.now(), workspace(), entity_id() and so on.
--
--   engine    attempts and leases, events, alerts, audit log        access    API keys, signing
--   projects  projects                                              uploads   uploads, rejections, staging, receipts
--   storage   deferred files, usage, quota, resumable uploads       pipelines ads, judgments, keywords
--   delivery  sites, sales, conversions, providers, slots
--
-- Three conventions:
--   * workspace_id leads every unique key of the data tables, so that they can be sharded by it.
--   * Every table that a tenant can read has row-level security. The policy compares workspace_id with (SELECT
--     weighbridge.workspace()); the sub-select is evaluated once per statement, not once per row.
--   * Later migrations add columns at the end, so the order of columns here is also that of an upgraded database.

-- Schemas ---------------------------------------------------------------------------------------------------

CREATE SCHEMA staging; -- staging tables, made from the declarations of pipelines
CREATE SCHEMA ingest; -- import runs and their states
CREATE SCHEMA intake; -- staging tables under the names that the judgments pipeline fixes

GRANT USAGE ON SCHEMA weighbridge TO
    weighbridge_intake, weighbridge_parse, weighbridge_promote, weighbridge_clean, weighbridge_announce,
    weighbridge_tenant, weighbridge_group, weighbridge_deliver;
GRANT USAGE ON SCHEMA public TO
    weighbridge_intake, weighbridge_parse, weighbridge_promote, weighbridge_clean, weighbridge_announce,
    weighbridge_tenant, weighbridge_group, weighbridge_deliver;
GRANT USAGE ON SCHEMA staging TO
    weighbridge_intake, weighbridge_parse, weighbridge_promote, weighbridge_clean, weighbridge_announce;
GRANT USAGE ON SCHEMA intake TO weighbridge_parse, weighbridge_promote, weighbridge_clean;
GRANT USAGE ON SCHEMA ingest TO weighbridge_tenant;

-- Grouping collects ungrouped keywords in a temporary table.
DO $$ BEGIN EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO weighbridge_group', current_database()); END $$;

-- Engine ----------------------------------------------------------------------------------------------------

-- The time shift that tests set; weighbridge.now() adds it.
CREATE TABLE weighbridge.clock (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    shift interval NOT NULL DEFAULT '0'
);
INSERT INTO weighbridge.clock DEFAULT VALUES;
GRANT SELECT ON weighbridge.clock TO PUBLIC;

-- A lease per attempt, for every queue: uploads, projects, storage, deliveries, outbox.
CREATE TABLE weighbridge.attempts (
    lease_token uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    queue text NOT NULL,
    subject uuid NOT NULL, -- the upload, project, deferred file, batch of conversions or event delivery
    workspace_id uuid NOT NULL,
    slot int, -- which of the workspace's concurrent slots it holds, where the queue limits them
    worker text NOT NULL,
    opened_at timestamptz NOT NULL,
    progressed_at timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    closed_at timestamptz,
    outcome text CHECK (outcome IN ('done', 'failed', 'released', 'expired')),
    error text,
    under uuid, -- the attempt at its project, where this is an attempt at a job
    renewed_at timestamptz,
    CHECK ((closed_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 70);
COMMENT ON TABLE weighbridge.attempts IS 'Attempts: the worker, its subject and its lease. A lease_token is never reused.';

-- One live attempt per subject, and one per slot: no race can exceed these limits.
CREATE UNIQUE INDEX attempts_live ON weighbridge.attempts (queue, subject) WHERE closed_at IS NULL;
CREATE UNIQUE INDEX attempts_slots ON weighbridge.attempts (queue, workspace_id, slot)
    WHERE closed_at IS NULL AND slot IS NOT NULL;
CREATE INDEX attempts_expiring ON weighbridge.attempts (lease_until) WHERE closed_at IS NULL;
CREATE INDEX attempts_history ON weighbridge.attempts (subject, opened_at);
CREATE INDEX attempts_under ON weighbridge.attempts (under) WHERE under IS NOT NULL;

-- Attempts at uploads since whose start the server has not crashed. Unlogged, so a crash empties it. Batches commit
-- without waiting for the disk, and a crash may undo some of them while their worker still runs; such an attempt must
-- start again from the state in the tables.
CREATE UNLOGGED TABLE weighbridge.unbroken (lease_token uuid PRIMARY KEY);

-- The outbox: each event is announced once to each consumer.
CREATE TABLE weighbridge.events (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    upload_id uuid,
    type text NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    alert_id uuid -- the alert that it opens or closes
);
CREATE UNIQUE INDEX events_once ON weighbridge.events (upload_id, type) WHERE type = 'IngestionCompleteEvent';
-- Once a month for each quota, however many files are refused.
CREATE UNIQUE INDEX events_quota ON weighbridge.events
    (workspace_id, (payload ->> 'user_id'), (payload ->> 'billing_month'), (payload ->> 'span')) NULLS NOT DISTINCT
    WHERE type = 'quota.storage.exceeded';
CREATE INDEX events_upload ON weighbridge.events (upload_id);
CREATE INDEX events_alert ON weighbridge.events (alert_id) WHERE alert_id IS NOT NULL;

CREATE TABLE weighbridge.event_deliveries (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    event_id uuid NOT NULL REFERENCES weighbridge.events ON DELETE CASCADE,
    workspace_id uuid NOT NULL,
    consumer text NOT NULL,
    run_after timestamptz NOT NULL DEFAULT '-infinity',
    failures int NOT NULL DEFAULT 0,
    last_error text,
    delivered_at timestamptz,
    gave_up_at timestamptz,
    heard text[] NOT NULL DEFAULT '{}', -- addresses that have received it, where the consumer has several
    UNIQUE (event_id, consumer)
);
CREATE INDEX event_deliveries_waiting ON weighbridge.event_deliveries (run_after)
    WHERE delivered_at IS NULL AND gave_up_at IS NULL;

-- One row per condition and episode; opening and closing it each add an event.
CREATE TABLE weighbridge.alerts (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    condition text NOT NULL, -- ingest_failure, stale_takeover, dead_letters, backlog, …
    subject text NOT NULL DEFAULT '', -- the upload or group, where the condition is about one
    severity text NOT NULL CHECK (severity IN ('ERROR', 'WARNING')),
    message text NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    closed_at timestamptz
);
CREATE UNIQUE INDEX alerts_open ON weighbridge.alerts (condition, subject) WHERE closed_at IS NULL;

-- Actions of operators, and announced events.
CREATE TABLE weighbridge.audit_log (
    id bigserial PRIMARY KEY,
    workspace_id uuid,
    at timestamptz NOT NULL DEFAULT weighbridge.now(),
    actor text NOT NULL,
    action text NOT NULL,
    subject uuid,
    detail jsonb NOT NULL DEFAULT '{}'
);
CREATE UNIQUE INDEX audit_log_event ON weighbridge.audit_log ((detail ->> 'event_id')) WHERE detail ? 'event_id';
CREATE INDEX audit_log_subject ON weighbridge.audit_log (subject);
GRANT SELECT, INSERT ON weighbridge.audit_log TO weighbridge_announce;
GRANT USAGE ON SEQUENCE weighbridge.audit_log_id_seq TO weighbridge_announce;

-- Access ----------------------------------------------------------------------------------------------------

CREATE TABLE weighbridge.api_keys (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    key_hash bytea NOT NULL UNIQUE CHECK (length(key_hash) = 32),
    scopes text[] NOT NULL CHECK (scopes <@ ARRAY['upload', 'read', 'operate', 'admin'] AND cardinality(scopes) > 0),
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz
);

-- A browser holds signed tokens instead of a key: a session of the console, or a token that may only upload. All processes
-- sign with this secret, made once from Postgres's own strong randomness. Only the owner may read it. Replacing the row
-- ends every session and token when the API is restarted.
CREATE TABLE weighbridge.signing (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret bytea NOT NULL DEFAULT sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea)
        CHECK (length(secret) = 32)
);
INSERT INTO weighbridge.signing DEFAULT VALUES;
REVOKE ALL ON weighbridge.signing FROM PUBLIC;

-- Projects --------------------------------------------------------------------------------------------------

CREATE TABLE public.projects (
    workspace_id uuid NOT NULL,
    id bigint NOT NULL CHECK (id BETWEEN 1 AND 9007199254740991), -- a JSON number holds no larger integer
    key uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE, -- its subject in weighbridge.attempts
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    ungrouped boolean NOT NULL DEFAULT false, -- a job began after the last grouping
    grouped_at timestamptz,
    groupings bigint NOT NULL DEFAULT 0,
    run_after timestamptz NOT NULL DEFAULT '-infinity', -- after a failed run it is not leased before this time
    failures int NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX projects_ungrouped ON public.projects (workspace_id, id) WHERE ungrouped;
ALTER TABLE public.projects ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON public.projects USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT SELECT ON public.projects TO weighbridge_tenant, weighbridge_group;

-- Uploads ---------------------------------------------------------------------------------------------------

CREATE TABLE public.data_uploads (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    client_id uuid,
    platform text,
    source text NOT NULL CHECK (source IN ('manual', 'api', 'webhook')),
    pipeline text NOT NULL,
    filename text,
    file_url text,
    file_kind text NOT NULL DEFAULT 'csv' CHECK (file_kind IN ('csv', 'json')),
    content_sha256 bytea NOT NULL CHECK (length(content_sha256) = 32),
    byte_size bigint NOT NULL CHECK (byte_size > 0),
    status text NOT NULL DEFAULT 'pending' CHECK (status IN (
        'pending', 'processing', 'staging_complete', 'promoting', 'completed', 'partial', 'failed')),
    row_count bigint,
    error_code text,
    error_text text,
    created_by uuid,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    -- options of the request
    force_partial boolean NOT NULL DEFAULT false,
    forced boolean NOT NULL DEFAULT false, -- sent again on purpose: a second upload of the same content
    -- times and counts of attempts
    run_after timestamptz NOT NULL DEFAULT '-infinity', -- not claimed before this time
    started_at timestamptz,
    staged_at timestamptz,
    finished_at timestamptz,
    failures int NOT NULL DEFAULT 0, -- transient failures since the last success of a step
    crashes int NOT NULL DEFAULT 0, -- expired leases
    -- progress
    rows_read bigint NOT NULL DEFAULT 0,
    staged jsonb NOT NULL DEFAULT '{}', -- entity → last seq staged
    staged_digest bytea, -- of everything that was staged: the watermark counts in it
    watermark_entity text NOT NULL DEFAULT '',
    watermark_seq bigint NOT NULL DEFAULT 0,
    promoted jsonb NOT NULL DEFAULT '{}', -- entity → {inserted, updated, unchanged, failed}
    -- results
    bins jsonb,
    total_rows bigint NOT NULL DEFAULT 0,
    promoted_rows bigint NOT NULL DEFAULT 0,
    failed_rows bigint NOT NULL DEFAULT 0,
    warnings bigint NOT NULL DEFAULT 0,
    affected_dates date[] NOT NULL DEFAULT '{}',
    columns text[] NOT NULL DEFAULT '{}', -- the file's own header, for the rejects file
    mapping jsonb NOT NULL DEFAULT '{}', -- field → the header cell it was read from
    event_emitted boolean NOT NULL DEFAULT false,
    staging_digest bytea, -- of the rows that `staged` counts
    -- The sender's name for its batch. It names one upload, whatever its result.
    source_batch_id text CHECK (length(source_batch_id) BETWEEN 1 AND 200),
    traceparent text, -- W3C trace context of the request; workers continue its trace
    dismissed_at timestamptz, -- an operator has dismissed it: no dead letter
    project_id bigint, -- a file of a project is a job: only the project's runner claims it
    attempts int NOT NULL DEFAULT 0, -- how often it was claimed
    storage_status text NOT NULL DEFAULT 'stored'
        CHECK (storage_status IN ('stored', 'pending_retry', 'retry_failed', 'removed')),
    blob_removed_at timestamptz, -- storage_status is 'removed', and the removal is done
    preview boolean NOT NULL DEFAULT false, -- stops at staging_complete until a person promotes or discards it
    preview_counts jsonb, -- entity → {inserted, updated, unchanged}, as found at previewed_at
    previewed_at timestamptz,
    states jsonb NOT NULL DEFAULT '[]', -- [status, when, why] of each move, the last hundred
    -- options that override detection: encoding, delimiter, decimal, date_order, sum_breakdowns
    reading jsonb NOT NULL DEFAULT '{}',
    column_report jsonb NOT NULL DEFAULT '{}', -- each column of the file and its use; expected fields that are missing
    released_batch_id text, -- the batch name that a failed upload had before release_batch
    read_as jsonb NOT NULL DEFAULT '{}', -- decimal, date_order, preamble: how to read the rows of its rejects file
    CONSTRAINT data_uploads_batch UNIQUE (workspace_id, source_batch_id),
    -- The check takes FOR KEY SHARE on the project: see the lock order in projects/functions.sql.
    FOREIGN KEY (workspace_id, project_id) REFERENCES public.projects (workspace_id, id),
    -- An upload whose file is not stored cannot be claimed: every claim compares run_after.
    CONSTRAINT claimed_when_stored
        CHECK (storage_status = 'stored' OR status IN ('completed', 'partial', 'failed') OR run_after = 'infinity'),
    CONSTRAINT preview_is_not_promoted CHECK (NOT preview OR status NOT IN ('promoting', 'completed', 'partial')),
    CONSTRAINT preview_is_held CHECK (NOT (preview AND status = 'staging_complete') OR run_after = 'infinity')
) WITH (fillfactor = 70);
COMMENT ON TABLE public.data_uploads IS 'One row per received file. status is the only source of truth for its state.';

-- The same content, read with the same options, is the same upload, unless the first one failed or `force` is set.
CREATE UNIQUE INDEX data_uploads_content ON public.data_uploads
    (workspace_id, pipeline, client_id, platform, project_id, content_sha256, reading) NULLS NOT DISTINCT
    WHERE status <> 'failed' AND NOT forced;
-- Exactly the rows that any worker may claim, by workspace: finished uploads and jobs of projects cost the claim nothing.
CREATE INDEX data_uploads_claimable ON public.data_uploads (workspace_id, created_at, id)
    WHERE status IN ('pending', 'staging_complete') AND project_id IS NULL;
CREATE INDEX data_uploads_jobs ON public.data_uploads (workspace_id, project_id, created_at, id)
    WHERE status IN ('pending', 'processing', 'staging_complete', 'promoting') AND project_id IS NOT NULL;
-- INCLUDE: counting jobs reads nothing else.
CREATE INDEX data_uploads_of_project ON public.data_uploads (workspace_id, project_id, created_at, id)
    INCLUDE (status, started_at, finished_at, preview) WHERE project_id IS NOT NULL;
CREATE INDEX data_uploads_recent ON public.data_uploads (workspace_id, created_at DESC, id);
CREATE INDEX data_uploads_staged ON public.data_uploads (staged_at) WHERE staged_at IS NOT NULL;
CREATE INDEX data_uploads_half_staged ON public.data_uploads (finished_at)
    WHERE staged_at IS NULL AND staged <> '{}' AND status IN ('completed', 'partial', 'failed');
CREATE INDEX data_uploads_under_way ON public.data_uploads (started_at) WHERE status IN ('processing', 'promoting');
-- Finished uploads only. Waiting ones are found by their turn, and an index by state would mislead the planner of a claim.
CREATE INDEX data_uploads_ended ON public.data_uploads (workspace_id, status, finished_at) INCLUDE (started_at)
    WHERE status IN ('completed', 'partial', 'failed');
-- Dead letters: failed uploads that no operator has looked at.
CREATE INDEX data_uploads_dead ON public.data_uploads (finished_at)
    WHERE status = 'failed' AND (dismissed_at IS NULL OR dismissed_at < finished_at);
CREATE INDEX data_uploads_held ON public.data_uploads (workspace_id, staged_at) WHERE preview AND status = 'staging_complete';
CREATE INDEX data_uploads_set_aside ON public.data_uploads (workspace_id, finished_at) INCLUDE (project_id)
    WHERE preview AND status = 'failed' AND error_code IN ('discarded', 'preview_expired');
-- Which uploads name a blob: those with its content.
CREATE INDEX data_uploads_blob ON public.data_uploads (workspace_id, content_sha256);

ALTER TABLE public.data_uploads ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON public.data_uploads USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT INSERT, UPDATE ON public.data_uploads TO weighbridge_intake;
GRANT SELECT ON public.data_uploads TO weighbridge_parse;
GRANT SELECT, INSERT, UPDATE ON public.data_uploads TO weighbridge_promote;
GRANT SELECT ON public.data_uploads TO weighbridge_tenant;

-- The state machine: the guard trigger on data_uploads reads it. `operator`: only by an explicit verb.
CREATE TABLE weighbridge.moves (
    verb text NOT NULL,
    from_status text NOT NULL,
    to_status text NOT NULL,
    operator boolean NOT NULL DEFAULT false,
    PRIMARY KEY (from_status, to_status, verb)
);
INSERT INTO weighbridge.moves (verb, from_status, to_status, operator) VALUES
    ('claim', 'pending', 'processing', false),
    ('stage', 'processing', 'staging_complete', false),
    ('promote', 'staging_complete', 'promoting', false),
    ('complete', 'promoting', 'completed', false),
    ('complete_partially', 'promoting', 'partial', false),
    ('release_parse', 'processing', 'pending', false),
    ('release_promotion', 'promoting', 'staging_complete', false),
    ('restage', 'staging_complete', 'pending', false),
    ('restage', 'promoting', 'pending', false),
    ('fail', 'pending', 'failed', false),
    ('fail', 'processing', 'failed', false),
    ('fail', 'staging_complete', 'failed', false),
    ('fail', 'promoting', 'failed', false),
    ('retry', 'failed', 'pending', true),
    ('retry', 'partial', 'pending', true);
GRANT SELECT ON weighbridge.moves TO PUBLIC;

-- The answer of receive_upload. reason: why a file that was sent again is not loaded again. duplicate_content,
-- duplicate_ and the state of its batch, batch_failed (an operator may retry it), or batch_differs (the name is taken by
-- other content or for another client).
CREATE TYPE weighbridge.received AS (upload_id uuid, duplicate boolean, reason text);

-- The states of an import run.
CREATE TYPE ingest.import_run_status AS ENUM ('pending', 'processing', 'completed', 'failed');

-- Every rejected row, with its raw cells.
CREATE TABLE public.upload_rejections (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    row_index int NOT NULL,
    line int NOT NULL,
    stage text NOT NULL CHECK (stage IN ('parse', 'promote')),
    column_name text,
    code text NOT NULL,
    message text NOT NULL,
    raw text[],
    more text[],
    fixed_by uuid, -- the upload that loaded the fixed record
    fixed_at timestamptz,
    PRIMARY KEY (upload_id, row_index, stage)
);
CREATE INDEX upload_rejections_fixed ON public.upload_rejections (fixed_by) WHERE fixed_by IS NOT NULL;
ALTER TABLE public.upload_rejections ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON public.upload_rejections USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT INSERT ON public.upload_rejections TO weighbridge_parse;
GRANT SELECT, INSERT, UPDATE ON public.upload_rejections TO weighbridge_promote;
GRANT SELECT ON public.upload_rejections TO weighbridge_tenant;

-- Warnings about loaded rows: for example, a reference that was not found is NULL.
CREATE TABLE public.upload_warnings (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    row_index int NOT NULL,
    line int NOT NULL,
    code text NOT NULL,
    message text NOT NULL,
    PRIMARY KEY (upload_id, row_index, code)
);
ALTER TABLE public.upload_warnings ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON public.upload_warnings USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT INSERT ON public.upload_warnings TO weighbridge_parse;
GRANT SELECT, INSERT, UPDATE ON public.upload_warnings TO weighbridge_promote;
GRANT SELECT ON public.upload_warnings TO weighbridge_tenant;

CREATE TABLE public.upload_duplicates (
    upload_id uuid NOT NULL REFERENCES public.data_uploads ON DELETE CASCADE,
    workspace_id uuid NOT NULL,
    filename text NOT NULL, -- its name this time; empty where it had none
    times int NOT NULL DEFAULT 1,
    last_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (upload_id, filename)
);
COMMENT ON TABLE public.upload_duplicates IS 'Files that were received again. They are shown, and not counted.';
ALTER TABLE public.upload_duplicates ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON public.upload_duplicates USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT SELECT ON public.upload_duplicates TO weighbridge_tenant;

-- Which record of a fixed rejects file stands for which rejected record of an earlier upload. The rejects file of a fixed
-- file links to the fixed file, so the links form chains: a record that is loaded at last fixes every record of its chain.
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
GRANT SELECT ON weighbridge.upload_fixes TO weighbridge_promote; -- compares a fixed record with what was loaded before

-- natural key → production id, for the dimensions of an upload; facts take their ids from here.
CREATE UNLOGGED TABLE public.staging_id_resolution (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    entity_type text NOT NULL,
    natural_key_hash bytea NOT NULL,
    production_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (upload_id, entity_type, production_id)
);
GRANT SELECT, INSERT ON public.staging_id_resolution TO weighbridge_parse;
GRANT SELECT ON public.staging_id_resolution TO weighbridge_promote;
GRANT SELECT, DELETE ON public.staging_id_resolution TO weighbridge_clean;

-- The declaration that the staging tables were made for; a changed declaration makes them again.
CREATE TABLE weighbridge.pipelines (
    name text PRIMARY KEY,
    fingerprint text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now()
);

-- What was last applied to a group of production rows (for ads: a day of a client's platform). Where the rows of a group
-- have the digest of the receipt, writing them again would change nothing: parsing does not stage them, and promotion counts
-- them as unchanged if the receipt is still valid then. A receipt is valid only when complete: one upload applied the whole
-- group, and no other writer changed it meanwhile (mixed).
CREATE TABLE weighbridge.receipts (
    workspace_id uuid NOT NULL,
    target text NOT NULL,
    scope text NOT NULL, -- client and platform
    group_key text NOT NULL,
    upload_id uuid NOT NULL,
    digest bytea,
    complete boolean NOT NULL DEFAULT false,
    mixed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (workspace_id, target, scope, group_key)
);
COMMENT ON COLUMN weighbridge.receipts.target IS 'The production table.';
GRANT SELECT, INSERT, UPDATE, DELETE ON weighbridge.receipts TO weighbridge_promote;
GRANT SELECT ON weighbridge.receipts TO weighbridge_parse;

-- The groups of an upload's rows: consecutive in seq, as rows are numbered in key order.
CREATE UNLOGGED TABLE weighbridge.staging_groups (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    group_key text NOT NULL,
    first_seq int NOT NULL,
    last_seq int NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (upload_id, first_seq)
);
GRANT INSERT ON weighbridge.staging_groups TO weighbridge_parse;
GRANT SELECT ON weighbridge.staging_groups TO weighbridge_promote;
GRANT SELECT, DELETE ON weighbridge.staging_groups TO weighbridge_clean;

-- Storage ---------------------------------------------------------------------------------------------------

-- The identity of this database. Deferred files are in a folder of this name: two databases on one machine must not take
-- each other's files for orphans.
CREATE TABLE weighbridge.identity (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO weighbridge.identity DEFAULT VALUES;

CREATE TABLE public.upload_queue (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    temp_file_path text NOT NULL,
    bucket text NOT NULL,
    object_path text NOT NULL,
    content_hash text NOT NULL CHECK (content_hash ~ '^[0-9a-f]{64}$'),
    byte_size bigint NOT NULL CHECK (byte_size > 0),
    retry_count int NOT NULL DEFAULT 0,
    max_retries int NOT NULL DEFAULT 5,
    next_retry_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    error_message text,
    metadata jsonb NOT NULL DEFAULT '{}',
    user_id uuid NOT NULL,
    payload_submission_id uuid UNIQUE REFERENCES public.data_uploads ON DELETE SET NULL, -- its upload
    workspace_id uuid NOT NULL,
    spool_id uuid NOT NULL, -- the folder of temp_file_path: only the machine that has it can read the file
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    tried_at timestamptz
);
COMMENT ON TABLE public.upload_queue IS
    'Files that wait for the store. retry_count = max_retries: an operator must act.';
CREATE INDEX idx_upload_queue_next_retry ON public.upload_queue (spool_id, next_retry_at)
    WHERE retry_count < max_retries;
CREATE INDEX idx_upload_queue_user ON public.upload_queue (workspace_id, user_id);
ALTER TABLE public.upload_queue ENABLE ROW LEVEL SECURITY; -- and no policy: only the service, through its functions

CREATE TABLE public.storage_usage (
    workspace_id uuid NOT NULL,
    user_id uuid NOT NULL,
    total_bytes bigint NOT NULL DEFAULT 0 CHECK (total_bytes >= 0),
    total_sources integer NOT NULL DEFAULT 0 CHECK (total_sources >= 0),
    last_calculated timestamptz NOT NULL DEFAULT weighbridge.now(),
    interpretation_count_month integer NOT NULL DEFAULT 0,
    interpretation_limit_month integer NOT NULL DEFAULT 100 CHECK (interpretation_limit_month >= 0),
    billing_month text NOT NULL DEFAULT weighbridge.billing_month(), -- to which the month's counters belong
    month_bytes bigint NOT NULL DEFAULT 0, -- stored in that month, whether still stored or not
    PRIMARY KEY (workspace_id, user_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE public.storage_usage IS 'Bytes stored and files read again, per user. Only functions change the counters.';
ALTER TABLE public.storage_usage ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON public.storage_usage USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT SELECT ON public.storage_usage TO weighbridge_tenant;

-- The counters are the sum of these: one row per blob, however many uploads name it.
CREATE TABLE weighbridge.counted_blobs (
    workspace_id uuid NOT NULL,
    blob_key text NOT NULL,
    user_id uuid NOT NULL, -- who uploaded it first
    bytes bigint NOT NULL,
    counted_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (workspace_id, blob_key) -- counted once
);

-- Limits of one workspace or user, where they differ from the settings.
CREATE TABLE weighbridge.storage_limits (
    workspace_id uuid NOT NULL,
    user_id uuid, -- NULL: the workspace as a whole
    month_bytes bigint CHECK (month_bytes >= -1), -- NULL: as in the settings; -1: no limit
    total_bytes bigint CHECK (total_bytes >= -1),
    UNIQUE NULLS NOT DISTINCT (workspace_id, user_id)
);

-- Bytes reserved for files that are being received.
CREATE TABLE weighbridge.storage_reservations (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    user_id uuid NOT NULL,
    bytes bigint NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX storage_reservations_expiring ON weighbridge.storage_reservations (until);

-- Resumable uploads (tus 1.0): files that arrive in parts. The bytes are on the machine that received the first of them
-- (spool_id), in a file named like the row. `received` is written after the bytes are on disk. A complete row is ended once by
-- intake: with an upload, in the transaction that records it, or with a refusal. Expired rows are deleted, except one that is
-- complete and waits for intake.
CREATE TABLE weighbridge.resumable_uploads (
    id uuid PRIMARY KEY, -- also the id of its storage reservation
    workspace_id uuid NOT NULL,
    spool_id uuid NOT NULL,
    request jsonb NOT NULL, -- the sender's description of the file, checked when the upload began
    metadata text NOT NULL, -- the same as received: HEAD returns it
    length bigint NOT NULL CHECK (length > 0),
    received bigint NOT NULL DEFAULT 0 CHECK (received BETWEEN 0 AND length),
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    expires_at timestamptz NOT NULL,
    -- how it ended
    upload_id uuid,
    duplicate boolean NOT NULL DEFAULT false,
    refusal_status int,
    refusal_code text,
    refusal_text text,
    CONSTRAINT whole_when_recorded CHECK (upload_id IS NULL OR received = length),
    CONSTRAINT ends_once CHECK (upload_id IS NULL OR refusal_code IS NULL),
    CONSTRAINT refused_with_a_sentence CHECK (num_nulls(refusal_status, refusal_code, refusal_text) IN (0, 3))
);
CREATE INDEX resumable_whole ON weighbridge.resumable_uploads (spool_id)
    WHERE received = length AND upload_id IS NULL AND refusal_code IS NULL;
CREATE INDEX resumable_expires ON weighbridge.resumable_uploads (expires_at);
CREATE INDEX resumable_of_spool ON weighbridge.resumable_uploads (spool_id);
ALTER TABLE weighbridge.resumable_uploads ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON weighbridge.resumable_uploads USING (workspace_id = (SELECT weighbridge.workspace()));
GRANT SELECT ON weighbridge.resumable_uploads TO weighbridge_tenant;
GRANT SELECT, INSERT, DELETE,
    UPDATE (spool_id, received, expires_at, upload_id, duplicate, refusal_status, refusal_code, refusal_text)
    ON weighbridge.resumable_uploads TO weighbridge_intake;

-- Pipelines: ads --------------------------------------------------------------------------------------------

-- The id of a dimension row is derived from its natural key's hash; a constraint holds every writer to that, so a fact's ids
-- need no look-up. Every row names the upload and line that wrote it last.
CREATE TABLE public.campaigns (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    name text,
    status text,
    objective text,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id),
    CONSTRAINT campaigns_id_from_key CHECK (id = weighbridge.entity_id(
        'campaign', workspace_id::text, coalesce(client_id::text, ''), platform, external_id))
);

CREATE TABLE public.ad_sets (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    campaign_id uuid,
    name text,
    status text,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id),
    FOREIGN KEY (workspace_id, campaign_id) REFERENCES public.campaigns (workspace_id, id),
    CONSTRAINT ad_sets_id_from_key CHECK (id = weighbridge.entity_id(
        'ad_set', workspace_id::text, coalesce(client_id::text, ''), platform, external_id))
);

CREATE TABLE public.ads (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    campaign_id uuid,
    ad_set_id uuid,
    name text,
    status text,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id),
    FOREIGN KEY (workspace_id, campaign_id) REFERENCES public.campaigns (workspace_id, id),
    FOREIGN KEY (workspace_id, ad_set_id) REFERENCES public.ad_sets (workspace_id, id),
    CONSTRAINT ads_id_from_key CHECK (id = weighbridge.entity_id(
        'ad', workspace_id::text, coalesce(client_id::text, ''), platform, external_id))
);

-- No foreign keys: three of them triple the cost of an insert (docs/decisions.md). The trigger keep_dimension protects the
-- dimension rows instead. The natural key is the only index.
CREATE TABLE public.daily_metrics (
    workspace_id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    metric_date date NOT NULL,
    campaign_id uuid,
    ad_set_id uuid,
    ad_id uuid,
    impressions bigint CHECK (impressions >= 0),
    clicks bigint CHECK (clicks >= 0),
    spend numeric(18,6),
    currency text,
    conversions numeric(18,6),
    conversion_value numeric(18,6),
    reach bigint CHECK (reach >= 0),
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT daily_metrics_key UNIQUE NULLS NOT DISTINCT
        (workspace_id, client_id, platform, metric_date, campaign_id, ad_set_id, ad_id)
);

-- Pipelines: judgments --------------------------------------------------------------------------------------

CREATE TABLE public.plaintiffs (
    workspace_id uuid NOT NULL DEFAULT weighbridge.workspace(),
    id uuid NOT NULL,
    dedupe_key text COLLATE "C" NOT NULL,
    name text,
    email text,
    phone text,
    upload_id uuid,
    line int,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, dedupe_key),
    CONSTRAINT plaintiffs_id_from_key CHECK (
        id = weighbridge.entity_id('plaintiff', workspace_id::text, dedupe_key))
);

CREATE TABLE public.judgments (
    workspace_id uuid NOT NULL DEFAULT weighbridge.workspace(),
    case_number text COLLATE "C" NOT NULL,
    plaintiff_id uuid,
    plaintiff_name text,
    defendant_name text,
    judgment_amount numeric(18,6) CHECK (judgment_amount >= 0),
    filing_date date,
    court text,
    county text,
    source_file text,
    upload_id uuid,
    line int,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    UNIQUE (workspace_id, case_number),
    FOREIGN KEY (workspace_id, plaintiff_id) REFERENCES public.plaintiffs (workspace_id, id)
);
CREATE INDEX judgments_plaintiff ON public.judgments (workspace_id, plaintiff_id);

-- Rights on the production tables of ads and judgments.
DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['campaigns', 'ad_sets', 'ads', 'daily_metrics', 'plaintiffs', 'judgments'] LOOP
        EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY workspace ON public.%I USING (workspace_id = (SELECT weighbridge.workspace()))', t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE ON public.%I TO weighbridge_promote', t);
        EXECUTE format('GRANT SELECT ON public.%I TO weighbridge_tenant', t);
    END LOOP;
END $$;

-- Pipelines: keywords ---------------------------------------------------------------------------------------

-- Grouping (projects/groups.sql) gives each ungrouped keyword the group of its signature: its tokens, with merges applied,
-- distinct and sorted. A confirmed group never changes: later keywords with its signature get a second group. So the groups
-- depend on the keywords alone, not on the order in which they were received.

-- One row per keyword of a project, as in the files. Only promotion writes it.
CREATE TABLE public.keywords (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    keyword_normalized text COLLATE "C" NOT NULL CHECK (keyword_normalized <> ''),
    keyword text COLLATE "C",
    tokens text COLLATE "C" NOT NULL CHECK (tokens <> ''), -- joined by a space
    volume bigint CHECK (volume >= 0),
    difficulty numeric(18,6),
    cpc numeric(18,6),
    clicks bigint,
    impressions bigint,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, project_id, keyword_normalized)
);

-- Keywords with the same canonical tokens, or grouped by hand.
CREATE TABLE public.keyword_groups (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    signature text COLLATE "C", -- NULL: made by hand
    name text COLLATE "C" CHECK (length(name) BETWEEN 1 AND 200), -- given by hand; else its parent's keyword
    parent text COLLATE "C", -- keyword_normalized with the highest volume, then the shortest, then the first by alphabet
    confirmed boolean NOT NULL DEFAULT false,
    stale boolean NOT NULL DEFAULT false, -- its keywords changed: the parent has to be found again
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (workspace_id, project_id, id)
) WITH (fillfactor = 80); -- `stale` changes without an update of any index
CREATE UNIQUE INDEX keyword_groups_signature ON public.keyword_groups (workspace_id, project_id, signature)
    WHERE NOT confirmed;
CREATE INDEX keyword_groups_parent ON public.keyword_groups (workspace_id, project_id, parent, id);

-- The group of each keyword; a keyword without a row is ungrouped. No foreign keys: checking them doubles the time that
-- grouping a million keywords takes. A test compares both sides after every kind of edit.
CREATE TABLE public.group_keywords (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    keyword_normalized text COLLATE "C" NOT NULL,
    group_id uuid NOT NULL,
    by_hand boolean NOT NULL DEFAULT false, -- moved by a person: automatic grouping does not move it
    PRIMARY KEY (workspace_id, project_id, keyword_normalized)
);
CREATE INDEX group_keywords_group ON public.group_keywords (workspace_id, project_id, group_id);

-- Tokens that count as another: sneaker → shoe.
CREATE TABLE public.token_merges (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    token text COLLATE "C" NOT NULL,
    into_token text COLLATE "C" NOT NULL CHECK (into_token <> token), -- never one that is merged itself
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (workspace_id, project_id, token)
);

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['keywords', 'keyword_groups', 'group_keywords', 'token_merges'] LOOP
        EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY workspace ON public.%I USING (workspace_id = (SELECT weighbridge.workspace()))', t);
        EXECUTE format('GRANT SELECT ON public.%I TO weighbridge_tenant', t);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE ON public.keywords TO weighbridge_promote;
GRANT SELECT ON public.keywords TO weighbridge_group;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.keyword_groups, public.group_keywords, public.token_merges TO weighbridge_group;

-- Delivery --------------------------------------------------------------------------------------------------

-- What the database has to know of each provider.
CREATE TABLE weighbridge.providers (
    provider_key text PRIMARY KEY,
    clicks text[] NOT NULL, -- the click ids that it accepts, best first
    click_window interval, -- older clicks are refused; NULL: any age
    from_event boolean NOT NULL DEFAULT false, -- the window counts from the event, not from the click
    paused_until timestamptz, -- its rate limit for all sites together was exceeded
    -- When its click ids or window changed: rows queued before, and in the hour after it, are compared with their sale again.
    changed_at timestamptz
);
INSERT INTO weighbridge.providers (provider_key, clicks, click_window, from_event) VALUES
    ('google_ads', '{gclid,gbraid,wbraid}', '90 days', false),
    ('google_datamanager', '{gclid,gbraid,wbraid}', '90 days', false),
    ('meta_capi', '{fbclid}', '7 days', true),
    ('tiktok_events', '{ttclid}', '28 days', true),
    ('webhook', '{gclid,gbraid,wbraid,fbclid,ttclid}', NULL, true);
GRANT SELECT ON weighbridge.providers TO weighbridge_deliver;

-- Owners of conversions, and the providers that receive them.
CREATE TABLE public.sites (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL DEFAULT weighbridge.workspace(),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    providers text[] NOT NULL DEFAULT '{google_datamanager}',
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    UNIQUE (workspace_id, name),
    UNIQUE (workspace_id, id)
);

-- A confirmed sale with a click id makes its queue rows in the same transaction.
CREATE TABLE public.sales (
    workspace_id uuid NOT NULL DEFAULT weighbridge.workspace(),
    id uuid NOT NULL DEFAULT weighbridge.new_id(),
    site_id uuid NOT NULL,
    client_id uuid NOT NULL, -- the site again, under the name that uploads of the pipeline conversions use
    order_id text COLLATE "C" NOT NULL CHECK (length(order_id) BETWEEN 1 AND 200),
    conversation_id uuid,
    status text NOT NULL DEFAULT 'CONFIRMED' CHECK (status IN ('DRAFT', 'CONFIRMED', 'CANCELED')),
    occurred_at timestamptz NOT NULL,
    clicked_at timestamptz CHECK (clicked_at <= occurred_at),
    value numeric(18,6) CHECK (value >= 0),
    currency text CHECK (currency ~ '^[A-Z]{3}$'),
    gclid text CHECK (length(gclid) BETWEEN 1 AND 512),
    wbraid text CHECK (length(wbraid) BETWEEN 1 AND 512),
    gbraid text CHECK (length(gbraid) BETWEEN 1 AND 512),
    fbclid text CHECK (length(fbclid) BETWEEN 1 AND 512),
    ttclid text CHECK (length(ttclid) BETWEEN 1 AND 512),
    -- SHA-256 of an e-mail address and of a phone number, never the values themselves
    user_data jsonb NOT NULL DEFAULT '{}' CONSTRAINT sales_only_digests CHECK (weighbridge.only_digests(user_data)),
    upload_id uuid,
    line int,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (workspace_id, id),
    UNIQUE (workspace_id, client_id, order_id),
    FOREIGN KEY (workspace_id, site_id) REFERENCES public.sites (workspace_id, id),
    CHECK (client_id = site_id),
    CHECK (value IS NULL OR currency IS NOT NULL)
);
CREATE INDEX sales_recent ON public.sales (workspace_id, created_at DESC, id);

-- One row per sale and provider.
CREATE TABLE public.offline_conversion_queue (
    sale_id uuid NOT NULL,
    provider_key text NOT NULL,
    workspace_id uuid NOT NULL,
    site_id uuid NOT NULL,
    status text NOT NULL DEFAULT 'QUEUED' CHECK (status IN ('QUEUED', 'RETRY', 'PROCESSING', 'COMPLETED', 'FAILED')),
    -- the data that is sent, as it was when the sale last changed
    order_id text COLLATE "C" NOT NULL,
    click_type text NOT NULL,
    click_id text NOT NULL,
    occurred_at timestamptz NOT NULL,
    clicked_at timestamptz,
    value numeric(18,6),
    currency text,
    user_data jsonb NOT NULL DEFAULT '{}',
    expires_at timestamptz, -- refused from then on; NULL: never
    -- times and counts of attempts
    next_retry_at timestamptz,
    due_at timestamptz NOT NULL GENERATED ALWAYS AS (coalesce(next_retry_at, TIMESTAMPTZ 'epoch')) STORED, -- NULLS FIRST
    claimed_at timestamptz,
    batch_id uuid, -- of the last call that it was part of
    attempt_count int NOT NULL DEFAULT 0, -- calls that it was claimed for
    retry_count int NOT NULL DEFAULT 0, -- transient failures that count towards the limit
    crashes int NOT NULL DEFAULT 0, -- calls that were never settled
    -- the proof of delivery, or the error
    last_error text,
    uploaded_at timestamptz,
    provider_request_id text,
    provider_error_code text,
    provider_error_category text CHECK (provider_error_category IN ('VALIDATION', 'AUTH', 'TRANSIENT', 'RATE_LIMIT')),
    code_times int NOT NULL DEFAULT 0, -- how often in a row it was this code
    duplicate boolean NOT NULL DEFAULT false, -- the provider had it already: an earlier call was accepted
    confirmation text CHECK (confirmation IN ('AWAITED', 'CONFIRMED', 'PARTIAL', 'REFUSED', 'UNKNOWN')),
    confirmed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    fresh boolean NOT NULL DEFAULT true,
    PRIMARY KEY (sale_id, provider_key),
    CHECK ((status = 'COMPLETED') = (uploaded_at IS NOT NULL)),
    CHECK (status <> 'PROCESSING' OR claimed_at IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);
COMMENT ON TABLE public.offline_conversion_queue IS
    'One row per sale and provider. status is the only source of truth for its state.';
COMMENT ON COLUMN public.offline_conversion_queue.fresh IS
    'True: the row has the current data of its sale. False: the claim reads the sale again.';

-- Exactly the rows that may be claimed, in the order of the claim: reading the head of a group costs the same however long
-- the group is, and postponed rows are not read.
CREATE INDEX offline_conversion_queue_due ON public.offline_conversion_queue
    (site_id, provider_key, due_at, created_at, sale_id) WHERE status IN ('QUEUED', 'RETRY');
CREATE INDEX idx_offline_conversion_queue_eligible_scan ON public.offline_conversion_queue
    (site_id, provider_key, status, next_retry_at) WHERE status IN ('QUEUED', 'RETRY');
CREATE INDEX idx_offline_conversion_queue_processing_claimed_at ON public.offline_conversion_queue (claimed_at)
    WHERE status = 'PROCESSING';
CREATE INDEX idx_offline_conversion_queue_uploaded_at ON public.offline_conversion_queue
    (site_id, provider_key, uploaded_at) WHERE uploaded_at IS NOT NULL;
CREATE INDEX offline_conversion_queue_expiring ON public.offline_conversion_queue (expires_at)
    WHERE status IN ('QUEUED', 'RETRY') AND expires_at IS NOT NULL;
CREATE INDEX offline_conversion_queue_failed ON public.offline_conversion_queue (site_id, provider_key, updated_at)
    WHERE status = 'FAILED';
CREATE INDEX offline_conversion_queue_awaited ON public.offline_conversion_queue (provider_request_id)
    WHERE confirmation = 'AWAITED';

-- The circuit breaker of a group: a site and a provider.
CREATE TABLE public.provider_health_state (
    site_id uuid NOT NULL REFERENCES public.sites (id),
    provider_key text NOT NULL,
    workspace_id uuid NOT NULL,
    state text NOT NULL DEFAULT 'CLOSED' CHECK (state IN ('CLOSED', 'OPEN', 'HALF_OPEN')),
    failure_count int NOT NULL DEFAULT 0,
    next_probe_at timestamptz,
    probe_limit int NOT NULL DEFAULT 5 CHECK (probe_limit > 0),
    probe_until timestamptz, -- until then one worker probes
    opened_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (site_id, provider_key),
    CHECK (state = 'CLOSED' OR next_probe_at IS NOT NULL)
);

-- Sealed by the vault: the database never sees the values.
CREATE TABLE public.provider_credentials (
    site_id uuid NOT NULL REFERENCES public.sites (id),
    provider_key text NOT NULL REFERENCES weighbridge.providers (provider_key),
    workspace_id uuid NOT NULL,
    version int NOT NULL CHECK (version > 0),
    key_id text NOT NULL, -- of the vault key that sealed it
    nonce bytea NOT NULL CHECK (length(nonce) = 12),
    ciphertext bytea NOT NULL,
    refused_at timestamptz, -- the provider did not accept them: they are not used any more
    refused_code text,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (site_id, provider_key)
);
CREATE SEQUENCE weighbridge.credential_versions AS int;
GRANT USAGE ON SEQUENCE weighbridge.credential_versions TO weighbridge_deliver;

-- Counters per group.
CREATE TABLE public.provider_upload_metrics (
    site_id uuid NOT NULL REFERENCES public.sites (id),
    provider_key text NOT NULL,
    workspace_id uuid NOT NULL,
    attempts_total bigint NOT NULL DEFAULT 0,
    completed_total bigint NOT NULL DEFAULT 0,
    failed_total bigint NOT NULL DEFAULT 0,
    retry_total bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (site_id, provider_key)
) WITH (fillfactor = 70);

-- The ledger: STARTED before and FINISHED after every call.
CREATE TABLE public.provider_upload_attempts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id uuid NOT NULL,
    site_id uuid NOT NULL,
    provider_key text NOT NULL,
    batch_id uuid NOT NULL,
    phase text NOT NULL CHECK (phase IN ('STARTED', 'FINISHED')),
    claimed_count int,
    completed_count int,
    failed_count int,
    retry_count int,
    duration_ms int,
    provider_request_id text,
    error_code text,
    error_category text,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    CHECK ((phase = 'STARTED') = (claimed_count IS NOT NULL)),
    CHECK ((phase = 'FINISHED') = (completed_count IS NOT NULL AND failed_count IS NOT NULL AND retry_count IS NOT NULL))
);
CREATE INDEX provider_upload_attempts_recent ON public.provider_upload_attempts (site_id, provider_key, created_at DESC);
CREATE UNIQUE INDEX provider_upload_attempts_batch ON public.provider_upload_attempts (batch_id, phase);

-- Accepted requests whose result the provider reports later.
CREATE TABLE weighbridge.confirmations (
    site_id uuid NOT NULL,
    provider_key text NOT NULL,
    request_id text NOT NULL,
    workspace_id uuid NOT NULL,
    rows int NOT NULL,
    due_at timestamptz NOT NULL,
    tries int NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'AWAITED' CHECK (state IN ('AWAITED', 'CONFIRMED', 'PARTIAL', 'REFUSED', 'UNKNOWN')),
    reasons jsonb NOT NULL DEFAULT '{}', -- the provider's code → number of rows
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (site_id, provider_key, request_id)
);
CREATE INDEX confirmations_due ON weighbridge.confirmations (due_at) WHERE state = 'AWAITED';

-- Slots: the calls to a provider that are in flight, per site and per provider, where there is no Redis. Unlogged: no write
-- waits for the disk. A crash of the server empties the table while calls may be in flight, so the limit may be exceeded
-- for as long as these last. Whether a row is sent twice does not depend on it.
CREATE UNLOGGED TABLE weighbridge.slots (
    key text NOT NULL,
    slot int NOT NULL CHECK (slot > 0),
    token uuid NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (key, slot),
    UNIQUE (token, key)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
COMMENT ON TABLE weighbridge.slots IS
    'Calls to providers that are in flight, by site and provider; empty where Redis counts them.';
ALTER TABLE weighbridge.slots ENABLE ROW LEVEL SECURITY; -- and no policy: only acquire_slots and release_slots

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['sites', 'sales'] LOOP
        EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY workspace ON public.%I USING (workspace_id = (SELECT weighbridge.workspace()))', t);
        EXECUTE format('GRANT SELECT ON public.%I TO weighbridge_tenant, weighbridge_intake, weighbridge_promote', t);
    END LOOP;
    -- Readable only by the service, and only one workspace's rows where it acts for one.
    FOREACH t IN ARRAY ARRAY['public.offline_conversion_queue', 'public.provider_health_state',
                             'public.provider_credentials', 'public.provider_upload_metrics',
                             'public.provider_upload_attempts', 'public.sites', 'public.sales',
                             'weighbridge.confirmations'] LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY service ON %s TO weighbridge_deliver'
                       ' USING ((SELECT weighbridge.workspace()) IS NULL OR workspace_id = (SELECT weighbridge.workspace()))', t);
        EXECUTE format('GRANT SELECT ON %s TO weighbridge_deliver', t);
    END LOOP;
END $$;
GRANT INSERT, UPDATE ON public.sites, public.sales TO weighbridge_intake;
GRANT INSERT, UPDATE ON public.sales TO weighbridge_promote;
