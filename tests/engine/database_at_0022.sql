-- The schema that the 22 migrations before 0001_initial made, as pg_dump prints it, with their rows in the ledger.

CREATE SCHEMA ingest;

CREATE SCHEMA intake;

CREATE SCHEMA staging;

CREATE SCHEMA weighbridge;

CREATE SCHEMA weighbridge_migrations;

CREATE TYPE ingest.import_run_status AS ENUM (
    'pending',
    'processing',
    'completed',
    'failed'
);

CREATE TYPE weighbridge.received AS (
	upload_id uuid,
	duplicate boolean,
	reason text
);

CREATE FUNCTION ingest.guard_import_runs() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'Import runs are not inserted or deleted by hand' USING ERRCODE = 'WB002',
        HINT = 'Hand over a file to begin one; weighbridge uploads dismiss takes a failed one off the dead letters.';
END $$;

CREATE FUNCTION ingest.guard_status_transition() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    IF to_jsonb(NEW) - 'status' IS DISTINCT FROM to_jsonb(OLD) - 'status' THEN
        RAISE EXCEPTION 'Only the status of an import run can be changed' USING ERRCODE = 'WB002';
    END IF;
    IF OLD.status IN ('completed', 'failed') AND NEW.status IS DISTINCT FROM OLD.status THEN
        RAISE EXCEPTION 'Cannot transition from terminal status: %', OLD.status USING ERRCODE = 'WB002',
            HINT = 'weighbridge uploads retry opens a failed run again.';
    ELSIF OLD.status = 'pending' AND NEW.status <> 'pending'
       OR OLD.status = 'processing' AND NEW.status NOT IN ('processing', 'pending', 'failed') THEN
        RAISE EXCEPTION 'Invalid transition: % -> %', OLD.status, NEW.status USING ERRCODE = 'WB002',
            HINT = 'Only a worker claims and completes runs.';
    ELSIF OLD.status = 'processing' AND NEW.status <> 'processing' THEN
        -- A takeover holds both until it commits: only then is its attempt to be seen.
        PERFORM FROM attempts a WHERE a.queue = 'uploads' AND a.subject = OLD.id AND a.closed_at IS NULL FOR UPDATE;
        PERFORM FROM data_uploads d WHERE d.id = OLD.id FOR UPDATE;
        IF EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = OLD.id
                   AND a.closed_at IS NULL AND a.lease_until >= weighbridge.now()) THEN
            RAISE EXCEPTION 'Invalid transition: a worker is at %', OLD.source_batch_id USING ERRCODE = 'WB002',
                HINT = 'Its lease is alive. Stop the worker first; the run then goes back by itself.';
        END IF;
        PERFORM abandon(OLD.id, NEW.status = 'failed');
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION ingest.run_status(p_status text) RETURNS ingest.import_run_status
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT CASE p_status WHEN 'pending' THEN 'pending' WHEN 'failed' THEN 'failed'
                             WHEN 'completed' THEN 'completed' WHEN 'partial' THEN 'completed'
                             ELSE 'processing' END::ingest.import_run_status
    $$;

CREATE FUNCTION weighbridge.now() RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT clock_timestamp() + shift FROM weighbridge.clock $$;

CREATE TABLE public.offline_conversion_queue (
    sale_id uuid NOT NULL,
    provider_key text NOT NULL,
    workspace_id uuid NOT NULL,
    site_id uuid NOT NULL,
    status text DEFAULT 'QUEUED'::text NOT NULL,
    order_id text NOT NULL COLLATE pg_catalog."C",
    click_type text NOT NULL,
    click_id text NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    clicked_at timestamp with time zone,
    value numeric(18,6),
    currency text,
    user_data jsonb DEFAULT '{}'::jsonb NOT NULL,
    expires_at timestamp with time zone,
    next_retry_at timestamp with time zone,
    due_at timestamp with time zone GENERATED ALWAYS AS (COALESCE(next_retry_at, '1970-01-01 00:00:00+00'::timestamp with time zone)) STORED NOT NULL,
    claimed_at timestamp with time zone,
    batch_id uuid,
    attempt_count integer DEFAULT 0 NOT NULL,
    retry_count integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    last_error text,
    uploaded_at timestamp with time zone,
    provider_request_id text,
    provider_error_code text,
    provider_error_category text,
    code_times integer DEFAULT 0 NOT NULL,
    duplicate boolean DEFAULT false NOT NULL,
    confirmation text,
    confirmed_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    updated_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    fresh boolean DEFAULT true NOT NULL,
    CONSTRAINT offline_conversion_queue_check CHECK (((status = 'COMPLETED'::text) = (uploaded_at IS NOT NULL))),
    CONSTRAINT offline_conversion_queue_check1 CHECK (((status <> 'PROCESSING'::text) OR (claimed_at IS NOT NULL))),
    CONSTRAINT offline_conversion_queue_confirmation_check CHECK ((confirmation = ANY (ARRAY['AWAITED'::text, 'CONFIRMED'::text, 'PARTIAL'::text, 'REFUSED'::text, 'UNKNOWN'::text]))),
    CONSTRAINT offline_conversion_queue_provider_error_category_check CHECK ((provider_error_category = ANY (ARRAY['VALIDATION'::text, 'AUTH'::text, 'TRANSIENT'::text, 'RATE_LIMIT'::text]))),
    CONSTRAINT offline_conversion_queue_status_check CHECK ((status = ANY (ARRAY['QUEUED'::text, 'RETRY'::text, 'PROCESSING'::text, 'COMPLETED'::text, 'FAILED'::text])))
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.02', autovacuum_analyze_scale_factor='0.05');

COMMENT ON TABLE public.offline_conversion_queue IS 'One row per sale and provider. Its status is the only truth about it.';

COMMENT ON COLUMN public.offline_conversion_queue.fresh IS 'It says what its sale says. False: the claim reads the sale again.';

CREATE FUNCTION public.claim_offline_conversion_jobs_v2(p_site_id uuid, p_provider_key text, p_limit integer DEFAULT 50) RETURNS SETOF public.offline_conversion_queue
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_batch uuid := gen_random_uuid();
    v_claimed timestamptz;
BEGIN
    SELECT max(c.claimed_at) INTO v_claimed FROM claim_conversions(
        NULL, NULL, ARRAY[v_batch], ARRAY[p_site_id], ARRAY[p_provider_key], ARRAY[p_limit]) c;
    RETURN QUERY
    SELECT q.* FROM offline_conversion_queue q
    WHERE q.claimed_at = v_claimed AND q.status = 'PROCESSING' AND q.batch_id = v_batch
    ORDER BY q.due_at, q.created_at, q.sale_id;
END $$;

CREATE FUNCTION public.increment_provider_upload_metrics(p_site_id uuid, p_provider_key text, p_attempts integer, p_completed integer, p_failed integer, p_retry integer) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        INSERT INTO provider_upload_metrics AS m (site_id, provider_key, workspace_id, attempts_total, completed_total,
                                                  failed_total, retry_total)
        SELECT s.id, p_provider_key, s.workspace_id, p_attempts, p_completed, p_failed, p_retry
        FROM sites s WHERE s.id = p_site_id
        ON CONFLICT (site_id, provider_key) DO UPDATE
        SET attempts_total = m.attempts_total + excluded.attempts_total,
            completed_total = m.completed_total + excluded.completed_total,
            failed_total = m.failed_total + excluded.failed_total,
            retry_total = m.retry_total + excluded.retry_total, updated_at = weighbridge.now()
    $$;

CREATE FUNCTION public.list_offline_conversion_groups(p_limit_groups integer DEFAULT 50) RETURNS TABLE(site_id uuid, provider_key text, queued_count bigint, min_next_retry_at timestamp with time zone, min_created_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        SELECT g.site_id, g.provider_key, g.queued_count, g.min_next_retry_at, g.min_created_at
        FROM weighbridge.delivery_groups(NULL) g
        ORDER BY g.min_next_retry_at ASC NULLS FIRST, g.min_created_at ASC, g.site_id, g.provider_key
        LIMIT p_limit_groups
    $$;

CREATE FUNCTION public.record_provider_outcome(p_site_id uuid, p_provider_key text, p_success boolean, p_transient boolean DEFAULT false) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_now timestamptz := weighbridge.now();
    v_probe timestamptz := v_now + INTERVAL '5 minutes' + random() * INTERVAL '60 seconds';
    v_before provider_health_state;
    v_state text;
    v_group text := p_site_id || '/' || p_provider_key;
BEGIN
    INSERT INTO provider_health_state (site_id, provider_key, workspace_id)
    SELECT s.id, p_provider_key, s.workspace_id FROM sites s WHERE s.id = p_site_id
    ON CONFLICT DO NOTHING;
    SELECT * INTO v_before FROM provider_health_state h
    WHERE h.site_id = p_site_id AND h.provider_key = p_provider_key FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL; -- no such site
    END IF;
    v_state := v_before.state;
    IF p_success THEN
        v_state := 'CLOSED';
    ELSIF p_transient AND (v_before.state = 'HALF_OPEN' OR v_before.failure_count + 1 >= 5) THEN
        v_state := 'OPEN';
    END IF;
    -- A validation failure says nothing about the provider's health; only the turn of the prober is over.
    IF p_success OR p_transient OR v_before.probe_until IS NOT NULL THEN
        UPDATE provider_health_state h
        SET state = v_state, probe_until = NULL, updated_at = v_now,
            failure_count = CASE WHEN p_success THEN 0 WHEN p_transient THEN h.failure_count + 1 ELSE h.failure_count END,
            next_probe_at = CASE WHEN p_success THEN NULL
                                 -- Calls that were under way when it opened do not put the probe off.
                                 WHEN p_transient AND v_state = 'OPEN' AND h.state <> 'OPEN' THEN v_probe
                                 ELSE h.next_probe_at END,
            opened_at = CASE WHEN p_success THEN NULL ELSE coalesce(h.opened_at, CASE WHEN v_state = 'OPEN' THEN v_now END) END
        WHERE h.site_id = p_site_id AND h.provider_key = p_provider_key
          AND (p_transient OR (h.state, h.failure_count, h.probe_until) IS DISTINCT FROM (v_state, 0, NULL::timestamptz));
    END IF;
    IF v_state = 'OPEN' AND v_before.state = 'CLOSED' THEN
        PERFORM raise_alert('circuit_open', v_group, 'WARNING',
            format('[DELIVERY] %s of site %s does not answer as it should: nothing is sent until a probe goes through',
                   p_provider_key, p_site_id));
    ELSIF v_state = 'CLOSED' AND v_before.state <> 'CLOSED' THEN
        PERFORM withdraw_alert('circuit_open', v_group, format('[DELIVERY] %s of site %s answers again', p_provider_key, p_site_id));
    END IF;
    RETURN v_state;
END $$;

CREATE FUNCTION public.recover_stuck_offline_conversion_jobs(p_min_age_minutes integer DEFAULT 15) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_before timestamptz := weighbridge.now() - make_interval(mins => p_min_age_minutes);
    v_taken uuid[];
    v_rows tid[];
    v_count int;
BEGIN
    -- Attempts first, in the order of locks. A call that is being settled right now is not stuck.
    SELECT array_agg(l.lease_token) INTO v_taken FROM (
        SELECT a.lease_token FROM attempts a
        WHERE a.queue = 'deliveries' AND a.closed_at IS NULL AND a.lease_token IN (
            SELECT q.batch_id FROM offline_conversion_queue q
            WHERE q.status = 'PROCESSING' AND coalesce(q.claimed_at, q.updated_at) < v_before)
        ORDER BY a.lease_token FOR UPDATE SKIP LOCKED) l;
    SELECT array_agg(s.tid) INTO v_rows FROM (
        SELECT q.ctid AS tid FROM offline_conversion_queue q
        WHERE q.status = 'PROCESSING' AND coalesce(q.claimed_at, q.updated_at) < v_before
          AND (q.batch_id = ANY (v_taken) OR NOT EXISTS (
                   SELECT FROM attempts a WHERE a.lease_token = q.batch_id AND a.closed_at IS NULL))
        ORDER BY q.sale_id FOR UPDATE SKIP LOCKED) s;
    UPDATE attempts a SET closed_at = weighbridge.now(), outcome = 'expired' WHERE a.lease_token = ANY (v_taken);
    v_count := coalesce(rescue_deliveries(v_rows, 2147483646), 0);
    PERFORM close_ledger(v_taken);
    RETURN v_count;
END $$;

CREATE FUNCTION weighbridge.abandon(p_upload uuid, p_fail boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    WITH closed AS (
        UPDATE attempts SET closed_at = weighbridge.now(), outcome = 'expired'
        WHERE queue = 'uploads' AND subject = p_upload AND closed_at IS NULL AND lease_until < weighbridge.now()
        RETURNING lease_token
    )
    DELETE FROM unbroken u USING closed WHERE u.lease_token = closed.lease_token;
    UPDATE data_uploads
    SET status = CASE WHEN p_fail THEN 'failed' ELSE 'pending' END,
        staged = CASE WHEN status = 'processing' THEN staged ELSE '{}' END,
        staged_at = CASE WHEN status = 'processing' THEN staged_at END,
        crashes = crashes + 1,
        error_code = CASE WHEN p_fail THEN 'given_up' END,
        error_text = CASE WHEN p_fail THEN 'An operator gave it up.' END,
        finished_at = CASE WHEN p_fail THEN weighbridge.now() END
    WHERE id = p_upload;
    PERFORM pg_notify('weighbridge_work', '');
END $$;

CREATE FUNCTION weighbridge.acquire_slots(p_site_keys text[], p_global_keys text[], p_tokens uuid[], p_per_site integer, p_per_provider integer, p_ttl interval) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET lock_timeout TO '3s'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    v_keys text[] := p_site_keys || CASE WHEN p_per_provider > 0 THEN p_global_keys END;
    v_now timestamptz;
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '2s', true);
    PERFORM pg_advisory_xact_lock(k.hash)
    FROM (SELECT DISTINCT hashtextextended(u.key, 6) AS hash FROM unnest(v_keys) u (key) ORDER BY hash) k;
    v_now := weighbridge.now(); -- after the wait
    DELETE FROM slots s
    WHERE (s.key, s.slot) IN (SELECT o.key, o.slot FROM slots o
                              WHERE o.key = ANY (v_keys) AND o.until <= v_now
                              FOR UPDATE SKIP LOCKED);
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT w.token, w.site_key, CASE WHEN p_per_provider > 0 THEN w.global_key END AS global_key, w.place,
               row_number() OVER (PARTITION BY w.site_key ORDER BY w.place) AS turn
        FROM unnest(p_tokens, p_site_keys, p_global_keys) WITH ORDINALITY AS w (token, site_key, global_key, place)
    ), asked AS (
        SELECT w.site_key AS key, p_per_site AS most, count(*) AS times FROM wanted w GROUP BY w.site_key
        UNION ALL
        SELECT w.global_key, p_per_provider, count(*) FROM wanted w WHERE w.global_key IS NOT NULL GROUP BY w.global_key
    ), held AS (
        SELECT s.key, array_agg(s.slot) AS slots FROM slots s WHERE s.key = ANY (v_keys) GROUP BY s.key
    ), free AS MATERIALIZED (
        SELECT a.key, n.slot, n.turn
        FROM asked a
        LEFT JOIN held h USING (key)
        CROSS JOIN LATERAL (
            -- Among so many numbers there are as many free ones as can be given.
            SELECT i AS slot, row_number() OVER () AS turn
            FROM generate_series(1, least(a.most, coalesce(cardinality(h.slots), 0) + a.times)::int) i
            WHERE h.slots IS NULL OR i <> ALL (h.slots)
        ) n
        -- A limit that was lowered since: slots beyond it count until they are given back.
        WHERE n.turn <= a.most - coalesce(cardinality(h.slots), 0)
    ), at_site AS MATERIALIZED (
        -- One that gets no slot of its provider may stand before another of its site; that other gets none either.
        SELECT w.token, w.site_key, w.global_key, f.slot,
               row_number() OVER (PARTITION BY w.global_key ORDER BY w.place) AS turn
        FROM wanted w JOIN free f ON f.key = w.site_key AND f.turn = w.turn
    ), granted AS MATERIALIZED (
        SELECT a.token, a.site_key, a.slot AS site_slot, a.global_key, f.slot AS global_slot
        FROM at_site a LEFT JOIN free f ON f.key = a.global_key AND f.turn = a.turn
        WHERE a.global_key IS NULL OR f.slot IS NOT NULL
    ), taken AS (
        INSERT INTO slots (key, slot, token, until)
        SELECT g.site_key, g.site_slot, g.token, v_now + p_ttl FROM granted g
        UNION ALL
        SELECT g.global_key, g.global_slot, g.token, v_now + p_ttl FROM granted g WHERE g.global_key IS NOT NULL
    )
    SELECT g.token FROM granted g;
END $$;

CREATE FUNCTION weighbridge.acting_workspace() RETURNS uuid
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    IF weighbridge.workspace() IS NULL THEN
        RAISE EXCEPTION 'the transaction acts for no workspace' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN weighbridge.workspace();
END $$;

CREATE FUNCTION weighbridge.advance_promotion(p_token uuid, p_entity text, p_seq bigint, p_promoted jsonb, p_promoted_rows bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE data_uploads
    SET watermark_entity = p_entity, watermark_seq = p_seq, promoted = p_promoted, promoted_rows = p_promoted_rows,
        failures = 0
    WHERE id = v_upload;
    UPDATE attempts SET progressed_at = weighbridge.now() WHERE lease_token = p_token;
END $$;

CREATE FUNCTION weighbridge.alert_on_status() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_failed boolean := NEW.status = 'failed' AND NOT (NEW.preview AND NEW.error_code IN ('discarded', 'preview_expired'));
BEGIN
    IF v_failed THEN
        PERFORM raise_alert('ingest_failure', NEW.id::text, 'ERROR',
            format('[INGEST FAILURE] %s: %s', batch_name(NEW), coalesce(NEW.error_code, 'unknown')));
    ELSE
        PERFORM withdraw_alert('ingest_failure', NEW.id::text, format('[INGEST RECOVERED] %s: %s', batch_name(NEW),
            CASE NEW.status WHEN 'failed' THEN NEW.error_code ELSE NEW.status END));
    END IF;
    PERFORM end_takeovers(NEW, CASE WHEN NEW.status <> 'failed' THEN NEW.status END);
    RETURN NULL;
END $$;

CREATE TABLE weighbridge.alerts (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    condition text NOT NULL,
    subject text DEFAULT ''::text NOT NULL,
    severity text NOT NULL,
    message text NOT NULL,
    opened_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    closed_at timestamp with time zone,
    CONSTRAINT alerts_severity_check CHECK ((severity = ANY (ARRAY['ERROR'::text, 'WARNING'::text])))
);

CREATE FUNCTION weighbridge.announce_alert(p_type text, p_alert weighbridge.alerts, p_message text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_nobody uuid := '00000000-0000-0000-0000-000000000000'; -- alerts are the operators', not a workspace's
    v_event uuid;
BEGIN
    INSERT INTO events (workspace_id, type, alert_id, payload)
    VALUES (v_nobody, p_type, p_alert.id, jsonb_build_object(
        'condition', p_alert.condition, 'severity', p_alert.severity, 'message', p_message, 'alert_id', p_alert.id))
    RETURNING id INTO v_event;
    INSERT INTO event_deliveries (event_id, workspace_id, consumer) VALUES (v_event, v_nobody, 'alerts');
    PERFORM pg_notify('weighbridge_work', '');
END $$;

CREATE FUNCTION weighbridge.append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% is a ledger: rows are added to it, never changed', TG_TABLE_NAME USING ERRCODE = 'WB002';
END $$;

CREATE TABLE public.data_uploads (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    workspace_id uuid NOT NULL,
    client_id uuid,
    platform text,
    source text NOT NULL,
    pipeline text NOT NULL,
    filename text,
    file_url text,
    file_kind text DEFAULT 'csv'::text NOT NULL,
    content_sha256 bytea NOT NULL,
    byte_size bigint NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    row_count bigint,
    error_code text,
    error_text text,
    created_by uuid,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    force_partial boolean DEFAULT false NOT NULL,
    forced boolean DEFAULT false NOT NULL,
    run_after timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    staged_at timestamp with time zone,
    finished_at timestamp with time zone,
    failures integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    rows_read bigint DEFAULT 0 NOT NULL,
    staged jsonb DEFAULT '{}'::jsonb NOT NULL,
    staged_digest bytea,
    watermark_entity text DEFAULT ''::text NOT NULL,
    watermark_seq bigint DEFAULT 0 NOT NULL,
    promoted jsonb DEFAULT '{}'::jsonb NOT NULL,
    bins jsonb,
    total_rows bigint DEFAULT 0 NOT NULL,
    promoted_rows bigint DEFAULT 0 NOT NULL,
    failed_rows bigint DEFAULT 0 NOT NULL,
    warnings bigint DEFAULT 0 NOT NULL,
    affected_dates date[] DEFAULT '{}'::date[] NOT NULL,
    columns text[] DEFAULT '{}'::text[] NOT NULL,
    mapping jsonb DEFAULT '{}'::jsonb NOT NULL,
    event_emitted boolean DEFAULT false NOT NULL,
    staging_digest bytea,
    source_batch_id text,
    traceparent text,
    dismissed_at timestamp with time zone,
    project_id bigint,
    attempts integer DEFAULT 0 NOT NULL,
    storage_status text DEFAULT 'stored'::text NOT NULL,
    blob_removed_at timestamp with time zone,
    preview boolean DEFAULT false NOT NULL,
    preview_counts jsonb,
    previewed_at timestamp with time zone,
    states jsonb DEFAULT '[]'::jsonb NOT NULL,
    reading jsonb DEFAULT '{}'::jsonb NOT NULL,
    column_report jsonb DEFAULT '{}'::jsonb NOT NULL,
    released_batch_id text,
    read_as jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT claimed_when_stored CHECK (((storage_status = 'stored'::text) OR (status = ANY (ARRAY['completed'::text, 'partial'::text, 'failed'::text])) OR (run_after = 'infinity'::timestamp with time zone))),
    CONSTRAINT data_uploads_byte_size_check CHECK ((byte_size > 0)),
    CONSTRAINT data_uploads_content_sha256_check CHECK ((length(content_sha256) = 32)),
    CONSTRAINT data_uploads_file_kind_check CHECK ((file_kind = ANY (ARRAY['csv'::text, 'json'::text]))),
    CONSTRAINT data_uploads_source_batch_id_check CHECK (((length(source_batch_id) >= 1) AND (length(source_batch_id) <= 200))),
    CONSTRAINT data_uploads_source_check CHECK ((source = ANY (ARRAY['manual'::text, 'api'::text, 'webhook'::text]))),
    CONSTRAINT data_uploads_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'processing'::text, 'staging_complete'::text, 'promoting'::text, 'completed'::text, 'partial'::text, 'failed'::text]))),
    CONSTRAINT data_uploads_storage_status_check CHECK ((storage_status = ANY (ARRAY['stored'::text, 'pending_retry'::text, 'retry_failed'::text, 'removed'::text]))),
    CONSTRAINT preview_is_held CHECK (((NOT (preview AND (status = 'staging_complete'::text))) OR (run_after = 'infinity'::timestamp with time zone))),
    CONSTRAINT preview_is_not_promoted CHECK (((NOT preview) OR (status <> ALL (ARRAY['promoting'::text, 'completed'::text, 'partial'::text]))))
)
WITH (fillfactor='70');

COMMENT ON TABLE public.data_uploads IS 'One row per file handed over. Its status is the only truth about it.';

CREATE FUNCTION weighbridge.batch_name(p_upload public.data_uploads) RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT coalesce(p_upload.source_batch_id, p_upload.id::text) $$;

CREATE FUNCTION weighbridge.begin_probe(p_site uuid, p_provider text, p_for interval) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        UPDATE provider_health_state h
        SET state = 'HALF_OPEN', probe_until = weighbridge.now() + p_for, updated_at = weighbridge.now()
        WHERE h.site_id = p_site AND h.provider_key = p_provider AND h.state <> 'CLOSED'
          AND h.next_probe_at <= weighbridge.now() AND (h.probe_until IS NULL OR h.probe_until < weighbridge.now())
        RETURNING h.probe_limit
    $$;

CREATE FUNCTION weighbridge.begin_promotion(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE data_uploads SET status = 'promoting' WHERE id = v_upload AND status IN ('staging_complete', 'promoting');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'upload % is not staged', v_upload USING ERRCODE = 'WB001';
    END IF;
END $$;

CREATE FUNCTION weighbridge.begin_staging(p_token uuid, p_digest bytea) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    IF EXISTS (SELECT FROM data_uploads WHERE id = v_upload AND staging_digest = p_digest AND staged <> '{}') THEN
        RETURN true;
    END IF;
    PERFORM reset_staging(p_token);
    UPDATE data_uploads SET staging_digest = p_digest WHERE id = v_upload;
    RETURN false;
END $$;

CREATE FUNCTION weighbridge.billing_month() RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT to_char(weighbridge.now() AT TIME ZONE 'UTC', 'YYYY-MM') $$;

CREATE FUNCTION weighbridge.blob_key(p_file_url text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN right(p_file_url, 76) LIKE '/____/__/__/%' THEN right(p_file_url, 75) ELSE p_file_url END $$;

CREATE FUNCTION weighbridge.canceled() RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT 'SALE_CANCELED: The sale is not confirmed any more.' $$;

CREATE FUNCTION weighbridge.change_reading(p_upload uuid, p_reading jsonb, p_actor text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_before data_uploads;
BEGIN
    SELECT * INTO v_before FROM data_uploads WHERE id = p_upload AND status = 'pending' FOR UPDATE;
    IF NOT FOUND OR v_before.reading = p_reading THEN
        RETURN;
    END IF;
    UPDATE data_uploads SET reading = p_reading WHERE id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_before.workspace_id, p_actor, 'upload.reading', p_upload,
            jsonb_build_object('reading', p_reading, 'reading_before', v_before.reading));
END $$;

CREATE FUNCTION weighbridge.check_site() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_unknown text;
BEGIN
    SELECT string_agg(p, ', ') INTO v_unknown
    FROM unnest(NEW.providers) p WHERE NOT EXISTS (SELECT FROM providers k WHERE k.provider_key = p);
    IF v_unknown IS NOT NULL THEN
        RAISE EXCEPTION 'site %: there is no provider %', NEW.name, v_unknown USING ERRCODE = 'check_violation',
            HINT = 'The providers there are stand in weighbridge.providers.';
    END IF;
    NEW.providers := ARRAY(SELECT DISTINCT p FROM unnest(NEW.providers) p ORDER BY p);
    RETURN NEW;
END $$;

CREATE FUNCTION weighbridge.claim_confirmations(p_limit integer) RETURNS TABLE(site_id uuid, provider_key text, request_id text, rows integer, tries integer)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        WITH head AS MATERIALIZED (
            SELECT c.site_id, c.provider_key, c.request_id FROM confirmations c
            WHERE c.state = 'AWAITED' AND c.due_at <= (SELECT weighbridge.now())
            ORDER BY c.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
        UPDATE confirmations c SET due_at = weighbridge.now() + INTERVAL '10 minutes', tries = c.tries + 1
        FROM head h WHERE (c.site_id, c.provider_key, c.request_id) = (h.site_id, h.provider_key, h.request_id)
        RETURNING c.site_id, c.provider_key, c.request_id, c.rows, c.tries
    $$;

CREATE FUNCTION weighbridge.claim_conversions(p_worker text, p_lease interval, p_batches uuid[], p_sites uuid[], p_providers text[], p_limits integer[]) RETURNS TABLE(place bigint, live boolean, sale_id uuid, order_id text, click_type text, click_id text, occurred_at timestamp with time zone, value numeric, currency text, user_data jsonb, clicked_at timestamp with time zone, tries integer, code text, code_times integer, claimed_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET jit TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_tids tid[]; -- where the rows lie, in the order of the claim
    v_places bigint[]; -- and which of the wishes each is for
    v_doubtful boolean[]; -- and whether it may say something else than its sale
    v_refused bigint[]; -- the wishes of those that are not sent
BEGIN
    SELECT array_agg(e.tid), array_agg(w.place), array_agg(NOT e.fresh OR (e.expires_at <= v_now) IS TRUE)
    INTO v_tids, v_places, v_doubtful
    FROM unnest(p_sites, p_providers, p_limits) WITH ORDINALITY AS w (site_id, provider_key, wanted, place)
    -- What came in the way since the run was planned: a breaker that opened, credentials that were refused, a pause.
    LEFT JOIN provider_health_state b ON b.site_id = w.site_id AND b.provider_key = w.provider_key
    LEFT JOIN provider_credentials c ON c.site_id = w.site_id AND c.provider_key = w.provider_key
    LEFT JOIN providers k ON k.provider_key = w.provider_key
    CROSS JOIN LATERAL (
        -- SKIP LOCKED: a slow claim must not queue the others.
        SELECT q.ctid AS tid, q.expires_at,
               q.fresh AND q.provider_error_code IS NULL
               AND (q.created_at > k.changed_at + INTERVAL '1 hour') IS NOT FALSE AS fresh
        FROM offline_conversion_queue q
        WHERE q.site_id = w.site_id AND q.provider_key = w.provider_key AND q.status IN ('QUEUED', 'RETRY')
          AND q.due_at <= v_now
        ORDER BY q.due_at, q.created_at, q.sale_id LIMIT w.wanted
        FOR UPDATE SKIP LOCKED) e
    WHERE p_worker IS NULL
       OR (b.state IS DISTINCT FROM 'OPEN' AND c.refused_at IS NULL AND (k.paused_until <= v_now) IS NOT FALSE);

    IF true = ANY (v_doubtful) THEN
        -- What is sent is what the sale says now: it may have changed, or been canceled, while the row was in other hands.
        WITH looked AS MATERIALIZED (
            SELECT h.tid, h.place, h.turn, r.refusal, s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data,
                   d.click_type, d.click_id, d.expires_at,
                   r.refusal IS NOT NULL
                   OR (q.click_type, q.click_id, q.occurred_at, q.clicked_at, q.value, q.currency, q.user_data, q.expires_at)
                      IS DISTINCT FROM (d.click_type, d.click_id, s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data,
                                        d.expires_at) AS changed
            FROM unnest(v_tids, v_places, v_doubtful) WITH ORDINALITY AS h (tid, place, doubtful, turn)
            JOIN offline_conversion_queue q ON q.ctid = h.tid
            LEFT JOIN sales s ON s.workspace_id = q.workspace_id AND s.id = q.sale_id
            LEFT JOIN LATERAL deliverable(s, q.provider_key) d ON true
            CROSS JOIN LATERAL (
                SELECT CASE WHEN (s.status = 'CONFIRMED' AND d.click_id IS NOT NULL) IS NOT TRUE THEN 'SALE_CANCELED'
                            WHEN d.expires_at <= v_now THEN 'EXPIRED' END AS refusal) r
            WHERE h.doubtful
        ),
        mended AS (
            UPDATE offline_conversion_queue q
            SET status = CASE WHEN l.refusal IS NULL THEN q.status ELSE 'FAILED' END, updated_at = v_now, fresh = false,
                last_error = CASE l.refusal WHEN 'EXPIRED' THEN expired(q.provider_key) WHEN 'SALE_CANCELED' THEN canceled()
                                            ELSE q.last_error END,
                provider_error_code = coalesce(l.refusal, q.provider_error_code),
                provider_error_category = CASE WHEN l.refusal IS NULL THEN q.provider_error_category ELSE 'VALIDATION' END,
                click_type = coalesce(l.click_type, q.click_type), click_id = coalesce(l.click_id, q.click_id),
                occurred_at = coalesce(l.occurred_at, q.occurred_at), clicked_at = l.clicked_at, value = l.value,
                currency = l.currency, user_data = coalesce(l.user_data, '{}'), expires_at = l.expires_at
            FROM looked l WHERE q.ctid = l.tid AND l.changed
            RETURNING q.ctid AS tid, l.place, l.turn, l.refusal
        ),
        heads AS (
            SELECT h.tid, h.place, h.turn, NULL AS refusal
            FROM unnest(v_tids, v_places, v_doubtful) WITH ORDINALITY AS h (tid, place, doubtful, turn) WHERE NOT h.doubtful
            UNION ALL
            SELECT l.tid, l.place, l.turn, NULL FROM looked l WHERE NOT l.changed
            UNION ALL
            SELECT m.tid, m.place, m.turn, m.refusal FROM mended m
        )
        SELECT array_agg(h.tid ORDER BY h.turn) FILTER (WHERE h.refusal IS NULL),
               array_agg(h.place ORDER BY h.turn) FILTER (WHERE h.refusal IS NULL),
               array_agg(h.place) FILTER (WHERE h.refusal IS NOT NULL)
        INTO v_tids, v_places, v_refused FROM heads h;
        IF p_worker IS NOT NULL THEN
            INSERT INTO provider_upload_metrics AS m (site_id, provider_key, workspace_id, failed_total)
            SELECT t.id, p_providers[r.place], t.workspace_id, count(*)
            FROM unnest(v_refused) AS r (place) JOIN sites t ON t.id = p_sites[r.place]
            GROUP BY 1, 2, 3 ORDER BY 1, 2
            ON CONFLICT (site_id, provider_key) DO UPDATE
            SET failed_total = m.failed_total + excluded.failed_total, updated_at = v_now;
        END IF;
        RETURN QUERY SELECT r.place, false, NULL::uuid, NULL, NULL, NULL, NULL::timestamptz, NULL::numeric, NULL, NULL::jsonb,
                            NULL::timestamptz, NULL::int, NULL, NULL::int, v_now
                     FROM unnest(v_refused) AS r (place);
    END IF;

    IF p_worker IS NOT NULL THEN
        WITH counted AS MATERIALIZED (
            SELECT p_batches[h.place] AS batch_id, t.workspace_id, t.id AS site_id, p_providers[h.place] AS provider_key, h.live
            FROM (SELECT u.place, count(*) AS live FROM unnest(v_places) AS u (place) GROUP BY u.place) h
            JOIN sites t ON t.id = p_sites[h.place]
        ),
        opened AS (
            INSERT INTO attempts (lease_token, queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)
            SELECT n.batch_id, 'deliveries', n.batch_id, n.workspace_id, p_worker, v_now, v_now, v_now + p_lease FROM counted n
        )
        INSERT INTO provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, claimed_count)
        SELECT n.workspace_id, n.site_id, n.provider_key, n.batch_id, 'STARTED', n.live FROM counted n;
    END IF;

    RETURN QUERY
    -- By where they lie: they are locked, and cannot have moved.
    UPDATE offline_conversion_queue q
    SET status = 'PROCESSING', updated_at = v_now, fresh = false, batch_id = p_batches[h.place],
        claimed_at = v_now + (h.place - 1) * INTERVAL '1 microsecond', attempt_count = q.attempt_count + 1,
        -- As it is. Were it not named here, Postgres would read the rule of due_at anew for each row, to see that it need not.
        next_retry_at = q.next_retry_at
    FROM unnest(v_tids, v_places) WITH ORDINALITY AS h (tid, place, turn)
    WHERE q.ctid = h.tid
    RETURNING h.place, true, q.sale_id, q.order_id, q.click_type, q.click_id, q.occurred_at, q.value, q.currency,
        nullif(q.user_data, '{}'), q.clicked_at, q.attempt_count - 1, q.provider_error_code, q.code_times,
        CASE h.turn WHEN 1 THEN v_now END;
END $$;

CREATE FUNCTION weighbridge.claim_deliveries(p_worker text, p_consumers text[], p_lease interval, p_limit integer) RETURNS TABLE(lease_token uuid, delivery_id uuid, event_id uuid, consumer text, failures integer, type text, payload jsonb, workspace_id uuid, heard text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
BEGIN
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT d.* FROM event_deliveries d
        WHERE d.delivered_at IS NULL AND d.gave_up_at IS NULL AND d.run_after <= v_now
          AND d.consumer = ANY (p_consumers)
          AND NOT EXISTS (SELECT FROM attempts a
                          WHERE a.queue = 'outbox' AND a.subject = d.id AND a.closed_at IS NULL)
          AND NOT EXISTS (SELECT FROM events mine
                          JOIN events earlier ON earlier.alert_id = mine.alert_id AND earlier.type = 'Alert'
                          JOIN event_deliveries e ON e.event_id = earlier.id AND e.consumer = d.consumer
                          WHERE mine.id = d.event_id AND mine.type = 'AlertRecovered'
                            AND e.delivered_at IS NULL AND e.gave_up_at IS NULL)
        ORDER BY d.run_after LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ), opened AS (
        INSERT INTO attempts AS a (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)
        SELECT 'outbox', d.id, d.workspace_id, p_worker, v_now, v_now, v_now + p_lease FROM due d
        ON CONFLICT DO NOTHING
        RETURNING a.lease_token, a.subject
    )
    SELECT o.lease_token, d.id, d.event_id, d.consumer, d.failures, e.type, e.payload, d.workspace_id, d.heard
    FROM opened o JOIN due d ON d.id = o.subject JOIN events e ON e.id = d.event_id;
END $$;

CREATE FUNCTION weighbridge.claim_job(p_token uuid, p_worker text, p_pipelines text[], p_lease interval, p_per_workspace integer) RETURNS TABLE(upload_id uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    v_project projects := fence_project(p_token);
    v_upload uuid;
    v_preview boolean;
BEGIN
    IF claimable_since(v_project.workspace_id, v_project.id, p_pipelines, p_per_workspace) IS NULL THEN
        RETURN;
    END IF;
    SELECT d.id, d.preview INTO v_upload, v_preview FROM data_uploads d
    WHERE d.workspace_id = v_project.workspace_id AND d.project_id = v_project.id
      AND d.status IN ('pending', 'staging_complete') AND d.pipeline = ANY (p_pipelines) AND d.run_after <= weighbridge.now()
    ORDER BY d.created_at, d.id LIMIT 1
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        IF NOT v_preview THEN
            UPDATE projects p SET ungrouped = true WHERE p.key = v_project.key AND NOT p.ungrouped;
        END IF;
        lease_token := open_attempt(v_upload, v_project.workspace_id, p_worker, p_lease, p_per_workspace, p_token);
        IF lease_token IS NOT NULL THEN
            UPDATE attempts a SET progressed_at = weighbridge.now() WHERE a.lease_token = p_token;
            upload_id := v_upload;
            RETURN NEXT;
        END IF;
    END IF;
END $$;

CREATE FUNCTION weighbridge.claim_project(p_worker text, p_pipelines text[], p_lease interval, p_per_workspace integer, p_only uuid) RETURNS TABLE(project_key uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.claim_replays(p_worker text, p_spool uuid, p_lease interval, p_limit integer, p_early boolean) RETURNS TABLE(lease_token uuid, queue_id uuid, workspace_id uuid, upload_id uuid, user_id uuid, object_path text, content_hash text, byte_size bigint, retry_count integer, max_retries integer, early boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
BEGIN
    RETURN QUERY
    WITH due AS MATERIALIZED (
        SELECT q.* FROM upload_queue q
        WHERE q.spool_id = p_spool AND q.retry_count < q.max_retries
          AND (q.next_retry_at <= v_now OR p_early AND q.tried_at < v_now - INTERVAL '1 minute')
          AND NOT EXISTS (SELECT FROM attempts a
                          WHERE a.queue = 'storage' AND a.subject = q.id AND a.closed_at IS NULL)
        ORDER BY q.next_retry_at, q.id LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ), opened AS (
        INSERT INTO attempts AS a (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)
        SELECT 'storage', d.id, d.workspace_id, p_worker, v_now, v_now, v_now + p_lease FROM due d
        ON CONFLICT DO NOTHING
        RETURNING a.lease_token, a.subject
    )
    SELECT o.lease_token, d.id, d.workspace_id, d.payload_submission_id, d.user_id, d.object_path, d.content_hash,
           d.byte_size, d.retry_count, d.max_retries, d.next_retry_at > v_now
    FROM opened o JOIN due d ON d.id = o.subject;
END $$;

CREATE FUNCTION weighbridge.claim_upload(p_worker text, p_from text[], p_pipelines text[], p_lease interval, p_per_workspace integer) RETURNS TABLE(upload_id uuid, lease_token uuid)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.claimable_since(p_workspace uuid, p_project bigint, p_pipelines text[], p_per_workspace integer) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$
        SELECT d.created_at FROM public.data_uploads d
        WHERE d.workspace_id = p_workspace AND d.project_id = p_project AND d.status IN ('pending', 'staging_complete')
          AND d.pipeline = ANY (p_pipelines) AND d.run_after <= weighbridge.now()
          AND weighbridge.slots_taken(p_workspace) < p_per_workspace
          AND NOT weighbridge.job_in_hand(p_workspace, p_project)
        ORDER BY d.created_at, d.id LIMIT 1
    $$;

CREATE FUNCTION weighbridge.close_attempt(p_token uuid, p_outcome text, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    UPDATE attempts SET closed_at = weighbridge.now(), outcome = p_outcome, error = p_error
    WHERE lease_token = p_token AND closed_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease % is lost', p_token USING ERRCODE = 'WB001';
    END IF;
    DELETE FROM unbroken WHERE lease_token = p_token;
END $$;

CREATE FUNCTION weighbridge.close_ledger(p_batches uuid[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        INSERT INTO provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, completed_count,
                                              failed_count, retry_count, error_code, error_category)
        SELECT l.workspace_id, l.site_id, l.provider_key, l.batch_id, 'FINISHED', 0, 0, 0, 'UNKNOWN_OUTCOME', 'TRANSIENT'
        FROM provider_upload_attempts l WHERE l.batch_id = ANY (p_batches) AND l.phase = 'STARTED'
        ON CONFLICT DO NOTHING
    $$;

CREATE FUNCTION weighbridge.count_blob(p_user uuid, p_bytes bigint, p_file_url text, p_grant uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_new boolean;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_workspace::text, 4));
    DELETE FROM storage_reservations r WHERE r.workspace_id = v_workspace AND r.id = p_grant;
    INSERT INTO counted_blobs (workspace_id, blob_key, user_id, bytes)
    VALUES (v_workspace, blob_key(p_file_url), p_user, p_bytes)
    ON CONFLICT DO NOTHING;
    v_new := FOUND;
    IF v_new THEN
        PERFORM increment_storage_usage(p_user, p_bytes);
    END IF;
    RETURN v_new;
END $$;

CREATE FUNCTION weighbridge.count_warnings() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    NEW.warnings := (SELECT count(*) FROM upload_warnings w WHERE w.upload_id = NEW.id);
    RETURN NEW;
END $$;

CREATE FUNCTION weighbridge.defer_upload(p_upload uuid, p_queue uuid, p_spool uuid, p_path text, p_bucket text, p_object text, p_user uuid, p_max_retries integer, p_delay interval, p_error text, p_consumers text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload data_uploads;
BEGIN
    SELECT * INTO STRICT v_upload FROM data_uploads d
    WHERE d.id = p_upload AND d.workspace_id = weighbridge.workspace() AND d.storage_status = 'pending_retry';
    INSERT INTO upload_queue (id, temp_file_path, bucket, object_path, content_hash, byte_size, max_retries,
                              next_retry_at, error_message, metadata, user_id, payload_submission_id, workspace_id, spool_id,
                              tried_at)
    VALUES (p_queue, p_path, p_bucket, p_object, encode(v_upload.content_sha256, 'hex'), v_upload.byte_size, p_max_retries,
            weighbridge.now() + p_delay, p_error,
            jsonb_strip_nulls(jsonb_build_object(
                'pipeline', v_upload.pipeline, 'platform', v_upload.platform, 'client_id', v_upload.client_id,
                'project_id', v_upload.project_id, 'source', v_upload.source, 'file_kind', v_upload.file_kind,
                'source_batch_id', v_upload.source_batch_id)),
            p_user, p_upload, v_upload.workspace_id, p_spool, weighbridge.now());
    PERFORM emit(v_upload.workspace_id, p_upload, 'storage.upload.enqueued', jsonb_build_object(
        'upload_id', p_upload, 'workspace_id', v_upload.workspace_id, 'queue_id', p_queue, 'bucket', p_bucket,
        'object_path', p_object, 'byte_size', v_upload.byte_size), p_consumers);
END $$;

CREATE FUNCTION weighbridge.new_id() RETURNS uuid
    LANGUAGE sql PARALLEL SAFE
    AS $$
        SELECT encode(overlay(uuid_send(gen_random_uuid()) PLACING
                              substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1), 'hex')::uuid
    $$;

CREATE FUNCTION weighbridge.only_digests(p_people jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
        SELECT jsonb_typeof(p_people) = 'object' AND (SELECT coalesce(bool_and(value ~ '^[0-9a-f]{64}$'), true)
                                                      FROM jsonb_each_text(p_people))
    $_$;

CREATE FUNCTION weighbridge.workspace() RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('weighbridge.workspace_id', true), '')::uuid $$;

CREATE TABLE public.sales (
    workspace_id uuid DEFAULT weighbridge.workspace() NOT NULL,
    id uuid DEFAULT weighbridge.new_id() NOT NULL,
    site_id uuid NOT NULL,
    client_id uuid NOT NULL,
    order_id text NOT NULL COLLATE pg_catalog."C",
    conversation_id uuid,
    status text DEFAULT 'CONFIRMED'::text NOT NULL,
    occurred_at timestamp with time zone NOT NULL,
    clicked_at timestamp with time zone,
    value numeric(18,6),
    currency text,
    gclid text,
    wbraid text,
    gbraid text,
    fbclid text,
    ttclid text,
    user_data jsonb DEFAULT '{}'::jsonb NOT NULL,
    upload_id uuid,
    line integer,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    updated_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    CONSTRAINT sales_check CHECK ((clicked_at <= occurred_at)),
    CONSTRAINT sales_check1 CHECK ((client_id = site_id)),
    CONSTRAINT sales_check2 CHECK (((value IS NULL) OR (currency IS NOT NULL))),
    CONSTRAINT sales_currency_check CHECK ((currency ~ '^[A-Z]{3}$'::text)),
    CONSTRAINT sales_fbclid_check CHECK (((length(fbclid) >= 1) AND (length(fbclid) <= 512))),
    CONSTRAINT sales_gbraid_check CHECK (((length(gbraid) >= 1) AND (length(gbraid) <= 512))),
    CONSTRAINT sales_gclid_check CHECK (((length(gclid) >= 1) AND (length(gclid) <= 512))),
    CONSTRAINT sales_only_digests CHECK (weighbridge.only_digests(user_data)),
    CONSTRAINT sales_order_id_check CHECK (((length(order_id) >= 1) AND (length(order_id) <= 200))),
    CONSTRAINT sales_status_check CHECK ((status = ANY (ARRAY['DRAFT'::text, 'CONFIRMED'::text, 'CANCELED'::text]))),
    CONSTRAINT sales_ttclid_check CHECK (((length(ttclid) >= 1) AND (length(ttclid) <= 512))),
    CONSTRAINT sales_value_check CHECK ((value >= (0)::numeric)),
    CONSTRAINT sales_wbraid_check CHECK (((length(wbraid) >= 1) AND (length(wbraid) <= 512)))
);

CREATE FUNCTION weighbridge.deliverable(p_sale public.sales, p_provider text) RETURNS TABLE(click_type text, click_id text, expires_at timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
        SELECT i.click_type, i.click_id,
               k.click_window + CASE WHEN k.from_event THEN p_sale.occurred_at
                                     ELSE coalesce(p_sale.clicked_at, p_sale.occurred_at) END
        FROM weighbridge.providers k
        JOIN (VALUES ('gclid', p_sale.gclid), ('wbraid', p_sale.wbraid), ('gbraid', p_sale.gbraid),
                     ('fbclid', p_sale.fbclid), ('ttclid', p_sale.ttclid)) AS i (click_type, click_id)
          ON i.click_type = ANY (k.clicks) AND i.click_id IS NOT NULL
        WHERE k.provider_key = p_provider
        ORDER BY array_position(k.clicks, i.click_type) LIMIT 1
    $$;

CREATE FUNCTION weighbridge.delivery_groups(p_most integer) RETURNS TABLE(site_id uuid, provider_key text, queued_count bigint, min_next_retry_at timestamp with time zone, min_created_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        -- A loose index scan: one probe per group, however many rows each has.
        WITH RECURSIVE present (site_id, provider_key) AS (
            (SELECT q.site_id, q.provider_key FROM offline_conversion_queue q
             WHERE q.status IN ('QUEUED', 'RETRY') ORDER BY q.site_id, q.provider_key LIMIT 1)
            UNION ALL
            SELECT n.site_id, n.provider_key
            FROM present p CROSS JOIN LATERAL (
                SELECT q.site_id, q.provider_key FROM offline_conversion_queue q
                WHERE q.status IN ('QUEUED', 'RETRY') AND (q.site_id, q.provider_key) > (p.site_id, p.provider_key)
                ORDER BY q.site_id, q.provider_key LIMIT 1) n
        )
        SELECT p.site_id, p.provider_key, h.queued, h.min_next_retry_at, h.min_created_at
        FROM present p
        CROSS JOIN LATERAL (
            SELECT count(*) AS queued, min(e.next_retry_at) AS min_next_retry_at, min(e.created_at) AS min_created_at
            FROM (SELECT nullif(q.due_at, TIMESTAMPTZ 'epoch') AS next_retry_at, q.created_at FROM offline_conversion_queue q
                  WHERE q.site_id = p.site_id AND q.provider_key = p.provider_key AND q.status IN ('QUEUED', 'RETRY')
                    AND q.due_at <= (SELECT weighbridge.now())
                  ORDER BY q.due_at, q.created_at, q.sale_id LIMIT p_most) e
        ) h
        WHERE h.queued > 0
    $$;

CREATE FUNCTION weighbridge.discard_preview(p_upload uuid, p_code text, p_text text, p_actor text, p_age interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_row data_uploads;
    v_now timestamptz := weighbridge.now();
BEGIN
    IF NOT lock_held(p_upload) THEN
        RETURN false;
    END IF;
    SELECT * INTO v_row FROM data_uploads WHERE id = p_upload;
    IF v_row.staged_at > v_now - p_age THEN
        RETURN false;
    END IF;
    UPDATE data_uploads
    SET status = 'failed', error_code = p_code, error_text = p_text, finished_at = v_now,
        dismissed_at = v_now, -- no dead letter
        source_batch_id = CASE WHEN p_code <> 'discarded' THEN source_batch_id END,
        preview_counts = NULL, previewed_at = NULL
    WHERE id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_row.workspace_id, p_actor, 'upload.discard', p_upload, jsonb_strip_nulls(jsonb_build_object(
        'error_code', p_code, 'source_batch_id', v_row.source_batch_id)));
    RETURN true;
END $$;

CREATE FUNCTION weighbridge.dismiss_upload(p_upload uuid, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_before data_uploads;
BEGIN
    SELECT * INTO v_before FROM data_uploads WHERE id = p_upload FOR UPDATE;
    IF v_before.status = 'failed' AND coalesce(v_before.dismissed_at, '-infinity') < v_before.finished_at THEN
        UPDATE data_uploads SET dismissed_at = weighbridge.now() WHERE id = p_upload;
        PERFORM withdraw_alert('ingest_failure', p_upload::text, format('[INGEST FAILURE DISMISSED] %s', batch_name(v_before)));
        INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
        VALUES (v_before.workspace_id, p_actor, 'upload.dismiss', p_upload,
                jsonb_build_object('error_code', v_before.error_code));
    END IF;
    RETURN v_before.status;
END $$;

CREATE FUNCTION weighbridge.drop_replay(p_queue uuid, p_actor text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_queue upload_queue;
BEGIN
    DELETE FROM upload_queue q WHERE q.id = p_queue RETURNING * INTO v_queue;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM give_up_unstored(v_queue.payload_submission_id, 'STORAGE_DROPPED',
        'The file could not be stored, and an operator gave it up. Upload it again.');
    PERFORM dismiss_upload(v_queue.payload_submission_id, p_actor);
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_queue.workspace_id, p_actor, 'storage.drop', v_queue.payload_submission_id,
            jsonb_build_object('queue_id', p_queue, 'byte_size', v_queue.byte_size, 'metadata', v_queue.metadata));
    RETURN true;
END $$;

CREATE FUNCTION weighbridge.emit(p_workspace uuid, p_upload uuid, p_type text, p_payload jsonb, p_consumers text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_event uuid;
BEGIN
    INSERT INTO events (workspace_id, upload_id, type, payload) VALUES (p_workspace, p_upload, p_type, p_payload)
    ON CONFLICT DO NOTHING
    RETURNING id INTO v_event;
    IF v_event IS NOT NULL THEN
        INSERT INTO event_deliveries (event_id, workspace_id, consumer)
        SELECT v_event, p_workspace, c FROM unnest(p_consumers) c;
        PERFORM pg_notify('weighbridge_work', '');
    END IF;
END $$;

CREATE FUNCTION weighbridge.end_takeovers(p_upload public.data_uploads, p_word text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_takeover alerts;
BEGIN
    SELECT * INTO v_takeover FROM alerts
    WHERE condition = 'stale_takeover' AND subject LIKE p_upload.id || '/%' AND closed_at IS NULL
    ORDER BY opened_at DESC LIMIT 1;
    UPDATE alerts SET closed_at = weighbridge.now()
    WHERE condition = 'stale_takeover' AND subject LIKE p_upload.id || '/%' AND closed_at IS NULL;
    IF FOUND AND p_word IS NOT NULL THEN
        PERFORM announce_alert('AlertRecovered', v_takeover,
            format('[STALE TAKEOVER RECOVERED] %s: %s', batch_name(p_upload), p_word));
    END IF;
END $$;

CREATE FUNCTION weighbridge.enqueue_conversions(p_workspace uuid, p_site uuid, p_provider text, p_since timestamp with time zone, p_actor text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_count bigint;
BEGIN
    INSERT INTO offline_conversion_queue (workspace_id, site_id, provider_key, sale_id, order_id, click_type, click_id,
                                          occurred_at, clicked_at, value, currency, user_data, expires_at, fresh)
    SELECT s.workspace_id, s.site_id, p.provider_key, s.id, s.order_id, d.click_type, d.click_id,
           s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data, d.expires_at, false
    FROM sales s
    JOIN sites t ON t.workspace_id = s.workspace_id AND t.id = s.site_id
    CROSS JOIN LATERAL unnest(t.providers) AS p (provider_key)
    CROSS JOIN LATERAL deliverable(s, p.provider_key) d
    WHERE s.workspace_id = p_workspace AND s.client_id = p_site AND s.status = 'CONFIRMED'
      AND (p_provider IS NULL OR p.provider_key = p_provider) AND (p_since IS NULL OR s.occurred_at >= p_since)
      AND (d.expires_at > weighbridge.now()) IS NOT FALSE
    ORDER BY s.created_at, s.order_id
    ON CONFLICT (sale_id, provider_key) DO NOTHING;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count > 0 THEN
        INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
        VALUES (p_workspace, p_actor, 'conversions.enqueue', p_site, jsonb_strip_nulls(jsonb_build_object(
            'rows', v_count, 'provider_key', p_provider, 'since', p_since)));
        PERFORM pg_notify('weighbridge_deliver', '');
    END IF;
    RETURN v_count;
END $$;

CREATE FUNCTION weighbridge.enter(p_token uuid) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_subject uuid := fence(p_token);
BEGIN
    IF NOT EXISTS (SELECT FROM unbroken u WHERE u.lease_token = p_token)
       AND EXISTS (SELECT FROM attempts a WHERE a.lease_token = p_token AND a.queue = 'uploads') THEN
        RAISE EXCEPTION 'the server crashed during lease %', p_token USING ERRCODE = 'WB003',
            HINT = 'Commits that did not wait for the disk may be undone. Begin again from what the tables say.';
    END IF;
    RETURN v_subject;
END $$;

CREATE FUNCTION weighbridge.entity_id(VARIADIC parts text[]) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT encode(set_byte(set_byte(h, 6, (get_byte(h, 6) & 15) | 128), 8, (get_byte(h, 8) & 63) | 128), 'hex')::uuid
        FROM (SELECT substring(weighbridge.natural_key_hash(VARIADIC parts) FROM 1 FOR 16)) AS cut (h)
    $$;

CREATE TABLE public.upload_queue (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    temp_file_path text NOT NULL,
    bucket text NOT NULL,
    object_path text NOT NULL,
    content_hash text NOT NULL,
    byte_size bigint NOT NULL,
    retry_count integer DEFAULT 0 NOT NULL,
    max_retries integer DEFAULT 5 NOT NULL,
    next_retry_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    error_message text,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    user_id uuid NOT NULL,
    payload_submission_id uuid,
    workspace_id uuid NOT NULL,
    spool_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    tried_at timestamp with time zone,
    CONSTRAINT upload_queue_byte_size_check CHECK ((byte_size > 0)),
    CONSTRAINT upload_queue_content_hash_check CHECK ((content_hash ~ '^[0-9a-f]{64}$'::text))
);

COMMENT ON TABLE public.upload_queue IS 'Files that the store could not take. retry_count = max_retries: an operator''s.';

CREATE FUNCTION weighbridge.exhaust_replay(p_queue public.upload_queue, p_error text, p_consumers text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    UPDATE upload_queue q SET retry_count = q.max_retries WHERE q.id = p_queue.id;
    PERFORM fail_unstored(p_queue.payload_submission_id, 'STORAGE_RETRY_FAILED', format(
        'The file could not be stored and was tried again %s times. It is kept: an operator can try it once more, with weighbridge storage retry %s.',
        p_queue.max_retries, p_queue.id));
    PERFORM emit(p_queue.workspace_id, p_queue.payload_submission_id, 'storage.upload.retry_failed', jsonb_build_object(
        'upload_id', p_queue.payload_submission_id, 'workspace_id', p_queue.workspace_id, 'queue_id', p_queue.id,
        'bucket', p_queue.bucket, 'object_path', p_queue.object_path, 'byte_size', p_queue.byte_size,
        'retry_count', p_queue.max_retries, 'error_message', p_error), p_consumers);
END $$;

CREATE FUNCTION weighbridge.expire_staging(p_upload uuid, p_age interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    UPDATE data_uploads SET staged_at = NULL, staged = '{}'
    WHERE id = p_upload AND status IN ('completed', 'partial', 'failed')
      AND (staged_at IS NOT NULL OR staged <> '{}') AND coalesce(staged_at, finished_at) < weighbridge.now() - p_age;
    RETURN FOUND;
END $$;

CREATE FUNCTION weighbridge.expired(p_provider text) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        SELECT format('EXPIRED: %s takes no %s older than %s days.', k.provider_key,
                      CASE WHEN k.from_event THEN 'event' ELSE 'click' END, extract(day FROM k.click_window))
        FROM providers k WHERE k.provider_key = p_provider
    $$;

CREATE FUNCTION weighbridge.fail_delivery(p_token uuid, p_delay interval, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_delivery uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_error);
    UPDATE event_deliveries
    SET failures = failures + 1, last_error = p_error,
        run_after = weighbridge.now() + coalesce(p_delay, '0'),
        gave_up_at = CASE WHEN p_delay IS NULL THEN weighbridge.now() END
    WHERE id = v_delivery;
END $$;

CREATE FUNCTION weighbridge.fail_project(p_token uuid, p_delay interval, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_key uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_error);
    UPDATE projects p SET failures = p.failures + 1, run_after = weighbridge.now() + p_delay WHERE p.key = v_key;
END $$;

CREATE FUNCTION weighbridge.fail_replay(p_token uuid, p_delay interval, p_error text, p_counts boolean, p_consumers text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_id uuid := fence(p_token);
    v_queue upload_queue;
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_error);
    UPDATE upload_queue q
    SET retry_count = q.retry_count + p_counts::int,
        next_retry_at = CASE WHEN p_counts THEN weighbridge.now() + coalesce(p_delay, '0') ELSE q.next_retry_at END,
        error_message = p_error, tried_at = weighbridge.now()
    WHERE q.id = v_id
    RETURNING * INTO v_queue;
    IF FOUND AND p_counts AND p_delay IS NULL THEN
        PERFORM exhaust_replay(v_queue, p_error, p_consumers);
    END IF;
END $$;

CREATE FUNCTION weighbridge.fail_unstored(p_upload uuid, p_code text, p_text text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        UPDATE data_uploads d
        SET status = 'failed', storage_status = 'retry_failed', error_code = p_code, error_text = p_text,
            finished_at = weighbridge.now()
        WHERE d.id = p_upload AND d.status = 'pending' AND d.storage_status = 'pending_retry'
    $$;

CREATE FUNCTION weighbridge.fail_upload(p_token uuid, p_code text, p_text text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'failed', p_text);
    UPDATE data_uploads
    SET status = 'failed', error_code = p_code, error_text = p_text, finished_at = weighbridge.now()
    WHERE id = v_upload;
END $$;

CREATE FUNCTION weighbridge.fence(p_token uuid) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_subject uuid;
BEGIN
    SELECT subject INTO v_subject FROM attempts
    WHERE lease_token = p_token AND closed_at IS NULL
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease % is lost', p_token USING ERRCODE = 'WB001',
            HINT = 'Another attempt owns this work now. Change nothing.';
    END IF;
    RETURN v_subject;
END $$;

CREATE TABLE public.projects (
    workspace_id uuid NOT NULL,
    id bigint NOT NULL,
    key uuid DEFAULT gen_random_uuid() NOT NULL,
    name text NOT NULL,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    ungrouped boolean DEFAULT false NOT NULL,
    grouped_at timestamp with time zone,
    groupings bigint DEFAULT 0 NOT NULL,
    run_after timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    CONSTRAINT projects_id_check CHECK (((id >= 1) AND (id <= '9007199254740991'::bigint))),
    CONSTRAINT projects_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200)))
);

CREATE FUNCTION weighbridge.fence_project(p_token uuid) RETURNS public.projects
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.fill_site() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.site_id := coalesce(NEW.site_id, NEW.client_id);
    NEW.client_id := coalesce(NEW.client_id, NEW.site_id);
    RETURN NEW;
END $$;

CREATE FUNCTION weighbridge.finish_delivery(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_delivery uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    UPDATE event_deliveries SET delivered_at = weighbridge.now(), last_error = NULL WHERE id = v_delivery;
END $$;

CREATE FUNCTION weighbridge.finish_replay(p_token uuid, p_file_url text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_queue uuid := fence(p_token);
    v_upload uuid;
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    DELETE FROM upload_queue q WHERE q.id = v_queue RETURNING q.payload_submission_id INTO v_upload;
    RETURN set_stored(v_upload, p_file_url);
END $$;

CREATE FUNCTION weighbridge.finish_staging(p_token uuid, p_bins jsonb, p_columns text[], p_mapping jsonb, p_dates date[], p_digest bytea, p_report jsonb, p_read_as jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.finish_upload(p_token uuid, p_status text, p_failed_rows bigint, p_error_code text, p_error text, p_consumers text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_now timestamptz := weighbridge.now();
    v_row data_uploads;
    v_event uuid;
BEGIN
    PERFORM close_attempt(p_token, 'done', p_error);
    UPDATE data_uploads
    SET status = p_status, row_count = promoted_rows, failed_rows = p_failed_rows, error_code = p_error_code,
        warnings = (SELECT count(*) FROM upload_warnings w WHERE w.upload_id = v_upload),
        error_text = p_error, finished_at = v_now, failures = 0
    WHERE id = v_upload
    RETURNING * INTO v_row;
    IF p_status IN ('completed', 'partial') AND v_row.promoted_rows > 0 AND NOT v_row.event_emitted THEN
        INSERT INTO events (workspace_id, upload_id, type, payload)
        VALUES (v_row.workspace_id, v_row.id, 'IngestionCompleteEvent', jsonb_build_object(
            'upload_id', v_row.id,
            'workspace_id', v_row.workspace_id,
            'client_id', v_row.client_id,
            'platform', v_row.platform,
            'status', v_row.status,
            'metrics', jsonb_build_object(
                'total_rows', v_row.total_rows,
                'promoted_rows', v_row.promoted_rows,
                'failed_rows', v_row.failed_rows
            ) || coalesce((
                -- campaigns_upserted and so on: the entities written, by table
                SELECT jsonb_object_agg(
                    e.value ->> 'table' || '_upserted',
                    (e.value ->> 'inserted')::bigint + (e.value ->> 'updated')::bigint)
                FROM jsonb_each(v_row.promoted) e), '{}'),
            'affected_dates', to_jsonb(v_row.affected_dates),
            'timestamp', v_now))
        ON CONFLICT DO NOTHING
        RETURNING id INTO v_event;
        IF v_event IS NOT NULL THEN
            INSERT INTO event_deliveries (event_id, workspace_id, consumer)
            SELECT v_event, v_row.workspace_id, c FROM unnest(p_consumers) c;
            UPDATE data_uploads SET event_emitted = true WHERE id = v_upload;
            PERFORM pg_notify('weighbridge_work', '');
        END IF;
    END IF;
END $$;

CREATE FUNCTION weighbridge.forget_sales() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        UPDATE offline_conversion_queue q SET fresh = false WHERE q.status IN ('QUEUED', 'RETRY');
    ELSE
        UPDATE offline_conversion_queue q SET fresh = false FROM gone s
        WHERE q.sale_id = s.id AND q.workspace_id = s.workspace_id AND q.status IN ('QUEUED', 'RETRY');
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION weighbridge.give_up_unstored(p_upload uuid, p_code text, p_text text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        SELECT fail_unstored(p_upload, p_code, p_text);
        UPDATE data_uploads d SET error_code = p_code, error_text = p_text, source_batch_id = NULL
        WHERE d.id = p_upload AND d.storage_status = 'retry_failed'
    $$;

CREATE FUNCTION weighbridge.guard_delivery() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'conversion %: COMPLETED → % is not a move', OLD.sale_id, NEW.status USING ERRCODE = 'WB002',
        HINT = 'The provider has it, under this order id. A new sale has a new one.';
END $$;

CREATE FUNCTION weighbridge.guard_status() RETURNS trigger
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

CREATE FUNCTION weighbridge.hand_over(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    PERFORM pg_notify('weighbridge_work', '');
END $$;

CREATE FUNCTION weighbridge.has_jobs(p_workspace uuid, p_project bigint) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
        SELECT EXISTS (
            SELECT FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.project_id = p_project
              AND d.status IN ('pending', 'processing', 'staging_complete', 'promoting')
              AND NOT (d.preview AND d.status = 'staging_complete'))
    $$;

CREATE FUNCTION weighbridge.heartbeat(p_tokens uuid[], p_lease interval, p_ceiling interval) RETURNS SETOF uuid
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        UPDATE attempts a
        SET lease_until = least(weighbridge.now() + p_lease, p_ceiling + greatest(
                a.progressed_at, (SELECT max(j.progressed_at) FROM attempts j WHERE j.under = a.lease_token))),
            renewed_at = weighbridge.now()
        WHERE a.lease_token = ANY (p_tokens) AND a.closed_at IS NULL
        RETURNING a.lease_token
    $$;

CREATE FUNCTION weighbridge.hold_preview() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF NEW.preview AND NEW.status = 'staging_complete' THEN
        NEW.run_after := 'infinity';
        IF OLD.status <> NEW.status THEN
            NEW.preview_counts := NULL; -- they were of other rows
            NEW.previewed_at := NULL;
        END IF;
    ELSIF OLD.preview AND OLD.status = 'staging_complete' AND NEW.run_after = 'infinity' THEN
        NEW.run_after := '-infinity';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION weighbridge.hold_upload(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
    v_row data_uploads;
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    UPDATE data_uploads SET warnings = (SELECT count(*) FROM upload_warnings w WHERE w.upload_id = v_upload)
    WHERE id = v_upload
    RETURNING * INTO v_row;
    PERFORM withdraw_alert('ingest_failure', v_upload::text, format('[INGEST RECOVERED] %s: held', batch_name(v_row)));
    PERFORM end_takeovers(v_row, 'held');
    PERFORM tell_live(v_row);
    PERFORM pg_notify('weighbridge_work', ''); -- somebody may have promoted it just now
END $$;

CREATE FUNCTION weighbridge.in_hand(p_upload uuid) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        SELECT EXISTS (SELECT FROM attempts a WHERE a.queue = 'uploads' AND a.subject = p_upload AND a.closed_at IS NULL)
    $$;

CREATE FUNCTION weighbridge.increment_interpretation_count(p_user_id uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_month text := billing_month();
BEGIN
    INSERT INTO storage_usage AS u (workspace_id, user_id, interpretation_count_month, billing_month)
    VALUES (v_workspace, p_user_id, 1, v_month)
    ON CONFLICT (workspace_id, user_id) DO UPDATE
    SET interpretation_count_month =
            CASE WHEN u.billing_month >= v_month THEN u.interpretation_count_month ELSE 0 END + 1,
        month_bytes = CASE WHEN u.billing_month >= v_month THEN u.month_bytes ELSE 0 END,
        billing_month = greatest(u.billing_month, v_month);
END $$;

CREATE FUNCTION weighbridge.increment_storage_usage(p_user_id uuid, p_bytes bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_month text := billing_month();
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_workspace::text, 4));
    INSERT INTO storage_usage AS u (workspace_id, user_id, total_bytes, total_sources, month_bytes, billing_month)
    VALUES (v_workspace, p_user_id, greatest(p_bytes, 0), (p_bytes >= 0)::int, greatest(p_bytes, 0), v_month)
    ON CONFLICT (workspace_id, user_id) DO UPDATE
    SET total_bytes = greatest(u.total_bytes + p_bytes, 0),
        total_sources = greatest(u.total_sources + CASE WHEN p_bytes < 0 THEN -1 ELSE 1 END, 0),
        month_bytes = CASE WHEN u.billing_month >= v_month THEN u.month_bytes ELSE 0 END + greatest(p_bytes, 0),
        interpretation_count_month = CASE WHEN u.billing_month >= v_month THEN u.interpretation_count_month ELSE 0 END,
        billing_month = greatest(u.billing_month, v_month),
        last_calculated = weighbridge.now();
END $$;

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

CREATE FUNCTION weighbridge.job_status(p_status text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT CASE p_status WHEN 'pending' THEN 'queued' WHEN 'failed' THEN 'failed'
                             WHEN 'completed' THEN 'succeeded' WHEN 'partial' THEN 'succeeded'
                             ELSE 'running' END
    $$;

CREATE FUNCTION weighbridge.keep_dimension() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(OLD.workspace_id::text, 1));
    IF EXISTS (SELECT FROM data_uploads
               WHERE workspace_id = OLD.workspace_id
                 AND (status = 'staging_complete' AND NOT preview OR status = 'promoting'
                      OR status IN ('pending', 'processing') AND watermark_entity <> '')) -- to be staged again
       OR EXISTS (SELECT FROM daily_metrics f
                  WHERE f.workspace_id = OLD.workspace_id AND f.client_id IS NOT DISTINCT FROM OLD.client_id
                    AND f.platform = OLD.platform
                    AND CASE TG_TABLE_NAME WHEN 'campaigns' THEN f.campaign_id
                                           WHEN 'ad_sets' THEN f.ad_set_id ELSE f.ad_id END = OLD.id)
    THEN
        RAISE EXCEPTION '% % is in use by daily_metrics', TG_TABLE_NAME, OLD.id
            USING ERRCODE = 'foreign_key_violation',
                  HINT = 'Delete its daily_metrics first, while no upload of the workspace is being promoted.';
    END IF;
    RETURN OLD;
END $$;

CREATE FUNCTION weighbridge.kick_project(p_project bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    PERFORM pg_notify('weighbridge_work', '');
    RETURN EXISTS (SELECT FROM projects p WHERE p.workspace_id = weighbridge.workspace() AND p.id = p_project);
END $$;

CREATE FUNCTION weighbridge.known_upload(p_workspace uuid, p_pipeline text, p_client uuid, p_platform text, p_project bigint, p_sha256 bytea, p_batch text, p_forced boolean, p_reading jsonb DEFAULT '{}'::jsonb) RETURNS SETOF weighbridge.received
    LANGUAGE sql STABLE
    AS $$
        SELECT found.id, true, found.reason
        FROM (
            SELECT d.id, 1 AS rank,
                   CASE WHEN (d.content_sha256, d.pipeline, d.client_id, d.platform, d.project_id)
                             IS DISTINCT FROM (p_sha256, p_pipeline, p_client, p_platform, p_project) THEN 'batch_differs'
                        WHEN d.status = 'failed' THEN 'batch_failed'
                        WHEN d.preview THEN 'duplicate_preview'
                        ELSE 'duplicate_' || ingest.run_status(d.status) END AS reason
            FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.source_batch_id = p_batch
            UNION ALL
            SELECT d.id, 2, CASE WHEN d.preview THEN 'duplicate_preview' ELSE 'duplicate_content' END
            FROM public.data_uploads d
            WHERE d.workspace_id = p_workspace AND d.pipeline = p_pipeline
              AND d.client_id IS NOT DISTINCT FROM p_client AND d.platform IS NOT DISTINCT FROM p_platform
              AND d.project_id IS NOT DISTINCT FROM p_project
              AND d.content_sha256 = p_sha256 AND d.reading = p_reading
              AND d.status <> 'failed' AND NOT d.forced AND NOT p_forced
        ) AS found
        ORDER BY found.rank LIMIT 1
    $$;

CREATE FUNCTION weighbridge.leave_groups() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    WITH left_behind AS (
        DELETE FROM group_keywords m USING before_it b
        WHERE m.workspace_id = b.workspace_id AND m.project_id = b.project_id AND m.keyword_normalized = b.keyword_normalized
        RETURNING m.*
    )
    UPDATE keyword_groups g SET stale = true FROM left_behind l
    WHERE g.workspace_id = l.workspace_id AND g.project_id = l.project_id AND g.id = l.group_id AND NOT g.stale;
    RETURN NULL;
END $$;

CREATE FUNCTION weighbridge.lock_held(p_upload uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
BEGIN
    PERFORM FROM projects p JOIN data_uploads d ON d.workspace_id = p.workspace_id AND d.project_id = p.id
    WHERE d.id = p_upload FOR KEY SHARE OF p;
    PERFORM FROM data_uploads WHERE id = p_upload AND preview AND status = 'staging_complete' FOR UPDATE;
    RETURN FOUND AND NOT in_hand(p_upload);
END $$;

CREATE FUNCTION weighbridge.lock_project(p_project bigint, p_actor text, p_action text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET lock_timeout TO '5s'
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

CREATE FUNCTION weighbridge.lose_replay(p_queue uuid, p_token uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid;
BEGIN
    IF p_token IS NOT NULL THEN
        PERFORM close_attempt(p_token, 'failed', 'the file is gone');
    END IF;
    DELETE FROM upload_queue q
    WHERE q.id = p_queue
      AND NOT EXISTS (SELECT FROM attempts a WHERE a.queue = 'storage' AND a.subject = q.id AND a.closed_at IS NULL)
    RETURNING q.payload_submission_id INTO v_upload;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM give_up_unstored(v_upload, 'STORAGE_FILE_LOST',
        'The file could not be stored when it came, and the copy that waited for the store is gone. Upload it again.');
    RETURN true;
END $$;

CREATE FUNCTION weighbridge.make_project(p_id bigint, p_name text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.mark_fixed(p_upload uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.mark_fixes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.may_be_removed(p_workspace uuid, p_key text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $_$
        SELECT p_key ~ '^[0-9]{4}/[0-9]{2}/[0-9]{2}/[0-9a-f]{64}$'
           AND left(p_key, 10) <= to_char((weighbridge.now() AT TIME ZONE 'UTC')::date - 2, 'YYYY/MM/DD')
           AND NOT EXISTS (SELECT FROM upload_queue q
                           WHERE q.workspace_id = p_workspace AND q.object_path = p_workspace || '/' || p_key)
    $_$;

CREATE FUNCTION weighbridge.may_group(p_token uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_project projects := fence_project(p_token);
BEGIN
    RETURN v_project.ungrouped AND NOT has_jobs(v_project.workspace_id, v_project.id);
END $$;

CREATE FUNCTION weighbridge.natural_key_hash(VARIADIC parts text[]) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT sha256(convert_to(array_to_string(parts, E'\x1f', ''), 'UTF8')) $$;

CREATE FUNCTION weighbridge.next_month() RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    AS $$ SELECT (date_trunc('month', weighbridge.now() AT TIME ZONE 'UTC') + INTERVAL '1 month') AT TIME ZONE 'UTC' $$;

CREATE FUNCTION weighbridge.note_blob_removed(p_upload uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_first data_uploads;
    v_blob counted_blobs;
BEGIN
    SELECT * INTO STRICT v_first FROM data_uploads d
    WHERE d.id = p_upload AND d.workspace_id = v_workspace AND d.storage_status = 'removed';
    UPDATE data_uploads d SET blob_removed_at = weighbridge.now()
    WHERE d.workspace_id = v_workspace AND d.content_sha256 = v_first.content_sha256
      AND blob_key(d.file_url) = blob_key(v_first.file_url)
      AND d.storage_status = 'removed' AND d.blob_removed_at IS NULL;
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_workspace::text, 4));
    DELETE FROM counted_blobs b WHERE b.workspace_id = v_workspace AND b.blob_key = blob_key(v_first.file_url)
    RETURNING * INTO v_blob;
    IF FOUND THEN
        PERFORM increment_storage_usage(v_blob.user_id, -v_blob.bytes);
    END IF;
END $$;

CREATE FUNCTION weighbridge.note_columns(p_token uuid, p_columns text[], p_report jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        UPDATE data_uploads SET columns = p_columns, column_report = p_report WHERE id = fence(p_token)
    $$;

CREATE FUNCTION weighbridge.note_duplicate(p_upload uuid, p_filename text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        INSERT INTO upload_duplicates AS u (upload_id, workspace_id, filename)
        SELECT d.id, d.workspace_id, coalesce(p_filename, '')
        FROM data_uploads d WHERE d.id = p_upload AND d.workspace_id = weighbridge.workspace()
        ON CONFLICT (upload_id, filename) DO UPDATE SET times = u.times + 1, last_at = excluded.last_at
    $$;

CREATE FUNCTION weighbridge.note_grouped(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.note_preview(p_upload uuid, p_counts jsonb, p_at timestamp with time zone) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        UPDATE data_uploads SET preview_counts = p_counts, previewed_at = p_at
        WHERE id = p_upload AND preview AND status = 'staging_complete'
    $$;

CREATE FUNCTION weighbridge.note_rows_read(p_token uuid, p_rows bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE data_uploads SET rows_read = p_rows WHERE id = v_upload;
    UPDATE attempts SET progressed_at = weighbridge.now() WHERE lease_token = p_token;
END $$;

CREATE FUNCTION weighbridge.note_staged(p_token uuid, p_entity text, p_seq bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    UPDATE data_uploads SET staged = staged || jsonb_build_object(p_entity, p_seq) WHERE id = v_upload;
    UPDATE attempts SET progressed_at = weighbridge.now() WHERE lease_token = p_token;
END $$;

CREATE FUNCTION weighbridge.note_volumes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    UPDATE keyword_groups g SET stale = true
    FROM after_it a
    JOIN before_it b USING (workspace_id, project_id, keyword_normalized)
    JOIN group_keywords m USING (workspace_id, project_id, keyword_normalized)
    WHERE a.volume IS DISTINCT FROM b.volume
      AND g.workspace_id = m.workspace_id AND g.project_id = m.project_id AND g.id = m.group_id
      AND NOT g.confirmed AND NOT g.stale;
    RETURN NULL;
END $$;

CREATE FUNCTION weighbridge.open_attempt(p_upload uuid, p_workspace uuid, p_worker text, p_lease interval, p_per_workspace integer, p_under uuid) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.park_deliveries(p_sites uuid[], p_providers text[], p_limit integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        WITH parked AS (
            UPDATE offline_conversion_queue q
            SET next_retry_at = h.next_probe_at + random() * INTERVAL '30 seconds', last_error = 'CIRCUIT_OPEN',
                updated_at = weighbridge.now()
            FROM unnest(p_sites, p_providers) AS g (site_id, provider_key)
            JOIN provider_health_state h USING (site_id, provider_key)
            CROSS JOIN LATERAL (
                SELECT e.ctid AS tid FROM offline_conversion_queue e
                WHERE e.site_id = g.site_id AND e.provider_key = g.provider_key AND e.status IN ('QUEUED', 'RETRY')
                  AND e.due_at <= (SELECT weighbridge.now())
                ORDER BY e.due_at, e.created_at, e.sale_id LIMIT p_limit
                FOR UPDATE OF e SKIP LOCKED) e
            WHERE q.ctid = e.tid AND h.state <> 'CLOSED' AND h.next_probe_at > weighbridge.now()
            RETURNING 1
        )
        SELECT count(*) FROM parked
    $$;

CREATE FUNCTION weighbridge.project_status(p_project bigint) RETURNS TABLE(project_id bigint, name text, leased boolean, ungrouped boolean, grouped_at timestamp with time zone, groupings bigint, files jsonb, duplicates jsonb)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.promote_preview(p_upload uuid, p_actor text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_row data_uploads;
BEGIN
    IF NOT lock_held(p_upload) THEN
        RETURN false;
    END IF;
    SELECT * INTO v_row FROM data_uploads WHERE id = p_upload;
    -- From here until the end no dimension row of the workspace can be deleted: see keep_dimension.
    PERFORM pg_advisory_xact_lock_shared(hashtextextended(v_row.workspace_id::text, 1));
    UPDATE data_uploads SET preview = false WHERE id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_row.workspace_id, p_actor, 'upload.promote', p_upload, '{}');
    PERFORM tell_live(v_row);
    PERFORM pg_notify('weighbridge_work', '');
    RETURN true;
END $$;

CREATE FUNCTION weighbridge.queue_conversions() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        -- Not confirmed any more: not sent, and not by an operator either. What is in a provider's hands is seen by the
        -- claim, should it come back.
        UPDATE offline_conversion_queue q
        SET status = 'FAILED', provider_error_code = 'SALE_CANCELED', provider_error_category = 'VALIDATION',
            last_error = canceled(), updated_at = weighbridge.now()
        FROM changed s
        WHERE s.status <> 'CONFIRMED' AND q.sale_id = s.id AND q.workspace_id = s.workspace_id
          AND q.status IN ('QUEUED', 'RETRY', 'FAILED')
          AND q.provider_error_code IS DISTINCT FROM 'SALE_CANCELED';
        UPDATE offline_conversion_queue q
        SET status = 'QUEUED', next_retry_at = NULL, provider_error_code = NULL, provider_error_category = NULL,
            last_error = NULL, code_times = 0, updated_at = weighbridge.now()
        FROM changed s
        WHERE s.status = 'CONFIRMED' AND q.sale_id = s.id AND q.workspace_id = s.workspace_id AND q.status = 'FAILED'
          AND q.provider_error_code = 'SALE_CANCELED';
        -- What was not sent yet shows what will be; what was refused for what it was is tried as it is now.
        UPDATE offline_conversion_queue q
        SET status = CASE q.status WHEN 'FAILED' THEN 'QUEUED' ELSE q.status END,
            next_retry_at = CASE q.status WHEN 'FAILED' THEN NULL ELSE q.next_retry_at END,
            retry_count = CASE q.status WHEN 'FAILED' THEN 0 ELSE q.retry_count END,
            click_type = d.click_type, click_id = d.click_id, occurred_at = s.occurred_at, clicked_at = s.clicked_at,
            value = s.value, currency = s.currency, user_data = s.user_data, expires_at = d.expires_at,
            updated_at = weighbridge.now()
        FROM changed s
        JOIN offline_conversion_queue o ON o.sale_id = s.id AND o.workspace_id = s.workspace_id
        CROSS JOIN LATERAL deliverable(s, o.provider_key) d
        WHERE s.status = 'CONFIRMED' AND q.sale_id = o.sale_id AND q.provider_key = o.provider_key
          AND (q.status IN ('QUEUED', 'RETRY') OR q.status = 'FAILED' AND q.provider_error_category = 'VALIDATION'
               AND (q.provider_error_code <> 'EXPIRED' OR d.expires_at > weighbridge.now()))
          AND (q.click_type, q.click_id, q.occurred_at, q.clicked_at, q.value, q.currency, q.user_data, q.expires_at)
              IS DISTINCT FROM (d.click_type, d.click_id, s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data,
                                d.expires_at);
    END IF;
    INSERT INTO offline_conversion_queue (workspace_id, site_id, provider_key, sale_id, order_id, click_type, click_id,
                                          occurred_at, clicked_at, value, currency, user_data, expires_at)
    SELECT s.workspace_id, s.site_id, p.provider_key, s.id, s.order_id, d.click_type, d.click_id,
           s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data, d.expires_at
    FROM changed s
    JOIN sites t ON t.workspace_id = s.workspace_id AND t.id = s.site_id
    CROSS JOIN LATERAL unnest(t.providers) AS p (provider_key)
    CROSS JOIN LATERAL deliverable(s, p.provider_key) d
    WHERE s.status = 'CONFIRMED'
    ORDER BY s.created_at, s.line, s.order_id
    ON CONFLICT (sale_id, provider_key) DO NOTHING;
    IF FOUND THEN
        PERFORM pg_notify('weighbridge_deliver', '');
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION weighbridge.raise_alert(p_condition text, p_subject text, p_severity text, p_message text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_alert alerts;
BEGIN
    INSERT INTO alerts (condition, subject, severity, message) VALUES (p_condition, p_subject, p_severity, p_message)
    ON CONFLICT DO NOTHING RETURNING * INTO v_alert;
    IF FOUND THEN
        PERFORM announce_alert('Alert', v_alert, p_message);
    END IF;
END $$;

CREATE FUNCTION weighbridge.receive_upload(p_workspace uuid, p_client uuid, p_platform text, p_project bigint, p_source text, p_pipeline text, p_filename text, p_file_url text, p_file_kind text, p_sha256 bytea, p_size bigint, p_created_by uuid, p_force_partial boolean, p_forced boolean, p_batch text, p_traceparent text, p_preview boolean DEFAULT false, p_reading jsonb DEFAULT '{}'::jsonb) RETURNS weighbridge.received
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    v_id uuid;
    v_known weighbridge.received;
    v_deferred boolean := p_file_url IS NULL;
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
                                  source_batch_id, traceparent, preview, reading, storage_status, run_after, error_code,
                                  error_text)
        VALUES (p_workspace, p_client, p_platform, p_project, p_source, p_pipeline, p_filename, p_file_url,
                p_file_kind, p_sha256, p_size, p_created_by, p_force_partial, p_forced, p_batch, p_traceparent,
                p_preview, p_reading,
                CASE WHEN v_deferred THEN 'pending_retry' ELSE 'stored' END,
                CASE WHEN v_deferred THEN timestamptz 'infinity' ELSE '-infinity' END,
                CASE WHEN v_deferred THEN 'STORAGE_PENDING_RETRY' END,
                CASE WHEN v_deferred THEN 'Upload deferred and will retry automatically' END)
        ON CONFLICT DO NOTHING
        RETURNING id INTO v_id;
        IF v_id IS NOT NULL THEN
            PERFORM pg_notify('weighbridge_work', '');
            PERFORM pg_notify('weighbridge_live', json_build_object(
                'workspace_id', p_workspace, 'upload_id', v_id, 'status', 'pending')::text);
            RETURN (v_id, false, NULL::text);
        END IF;
        SELECT * INTO v_known
        FROM known_upload(p_workspace, p_pipeline, p_client, p_platform, p_project, p_sha256, p_batch, p_forced, p_reading);
        IF FOUND THEN
            RETURN v_known;
        END IF;
        -- It failed between the two statements: now the way is free.
    END LOOP;
END $$;

CREATE FUNCTION weighbridge.recount_storage(p_keys text[], p_sizes bigint[], p_began timestamp with time zone, p_dry boolean) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET enable_nestloop TO 'off'
    SET work_mem TO '64MB'
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_month text := billing_month();
    v_answer jsonb;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(v_workspace::text, 4));
    BEGIN
        WITH listed AS MATERIALIZED (
            SELECT l.key, l.bytes FROM unnest(p_keys, p_sizes) AS l (key, bytes)
        ), naming AS MATERIALIZED ( -- uploads that name a blob which is there, or is just being removed
            SELECT blob_key(d.file_url) AS key, d.id, d.storage_status, d.created_at,
                   coalesce(d.created_by, '00000000-0000-0000-0000-000000000000') AS user_id
            FROM data_uploads d
            WHERE d.workspace_id = v_workspace AND d.file_url IS NOT NULL
              AND (d.storage_status = 'stored'
                   OR d.storage_status = 'removed' AND (d.blob_removed_at IS NULL OR d.blob_removed_at >= p_began))
        ), lost AS (
            DELETE FROM counted_blobs b
            WHERE b.workspace_id = v_workspace AND b.counted_at < p_began
              AND NOT EXISTS (SELECT FROM listed l JOIN naming n ON n.key = l.key WHERE l.key = b.blob_key)
        ), resized AS (
            UPDATE counted_blobs b SET bytes = l.bytes FROM listed l
            WHERE b.workspace_id = v_workspace AND b.blob_key = l.key AND b.bytes <> l.bytes
              AND EXISTS (SELECT FROM naming n WHERE n.key = b.blob_key)
        ), missed AS (
            INSERT INTO counted_blobs (workspace_id, blob_key, user_id, bytes, counted_at)
            SELECT DISTINCT ON (n.key) v_workspace, n.key, n.user_id, l.bytes, n.created_at
            FROM naming n JOIN listed l ON l.key = n.key
            WHERE n.storage_status = 'stored'
              AND NOT EXISTS (SELECT FROM counted_blobs b WHERE b.workspace_id = v_workspace AND b.blob_key = n.key)
            ORDER BY n.key, n.created_at, n.id
            RETURNING user_id, bytes, counted_at
        ), of_month AS (
            UPDATE storage_usage u
            SET month_bytes = CASE WHEN u.billing_month >= v_month THEN u.month_bytes ELSE 0 END + m.bytes,
                interpretation_count_month =
                    CASE WHEN u.billing_month >= v_month THEN u.interpretation_count_month ELSE 0 END,
                billing_month = greatest(u.billing_month, v_month)
            FROM (SELECT x.user_id, sum(x.bytes) AS bytes FROM missed x
                  WHERE to_char(x.counted_at AT TIME ZONE 'UTC', 'YYYY-MM') = v_month GROUP BY x.user_id) m
            WHERE u.workspace_id = v_workspace AND u.user_id = m.user_id
        )
        SELECT jsonb_build_object(
            'missing', coalesce((
                SELECT jsonb_agg(jsonb_build_object('upload_id', n.id, 'key', n.key) ORDER BY n.created_at, n.id)
                FROM naming n
                WHERE n.storage_status = 'stored' AND n.created_at < p_began
                  AND NOT EXISTS (SELECT FROM listed l WHERE l.key = n.key)
                  AND NOT EXISTS (SELECT FROM counted_blobs b WHERE b.workspace_id = v_workspace AND b.blob_key = n.key
                                  AND b.counted_at >= p_began)), '[]'),
            -- A younger one may be on its way: stored, and not yet recorded.
            'orphans', coalesce((
                SELECT jsonb_agg(jsonb_build_object('key', l.key, 'bytes', l.bytes) ORDER BY l.key)
                FROM listed l
                WHERE NOT EXISTS (SELECT FROM naming n WHERE n.key = l.key)
                  AND may_be_removed(v_workspace, l.key)), '[]'))
        INTO v_answer;
        -- In a statement of its own, which sees what the one above has done.
        WITH found AS (
            SELECT coalesce(b.user_id, u.user_id) AS user_id, coalesce(b.bytes, 0) AS bytes, coalesce(b.sources, 0) AS sources,
                   coalesce(u.total_bytes, 0) AS recorded_bytes, coalesce(u.total_sources, 0) AS recorded_sources
            FROM (SELECT c.user_id, sum(c.bytes)::bigint AS bytes, count(*)::int AS sources
                  FROM counted_blobs c WHERE c.workspace_id = v_workspace GROUP BY c.user_id) b
            FULL JOIN (SELECT * FROM storage_usage s WHERE s.workspace_id = v_workspace) u ON u.user_id = b.user_id
        ), wrong AS MATERIALIZED (
            SELECT * FROM found f WHERE (f.bytes, f.sources) <> (f.recorded_bytes, f.recorded_sources)
        ), mended AS (
            INSERT INTO storage_usage AS u (workspace_id, user_id, total_bytes, total_sources, month_bytes)
            SELECT v_workspace, w.user_id, w.bytes, w.sources,
                   -- only where there was no row: all of it was missed
                   coalesce((SELECT sum(c.bytes) FROM counted_blobs c
                             WHERE c.workspace_id = v_workspace AND c.user_id = w.user_id
                               AND to_char(c.counted_at AT TIME ZONE 'UTC', 'YYYY-MM') = v_month), 0)
            FROM wrong w
            ON CONFLICT (workspace_id, user_id) DO UPDATE
            SET total_bytes = EXCLUDED.total_bytes, total_sources = EXCLUDED.total_sources,
                last_calculated = weighbridge.now()
        )
        SELECT v_answer || jsonb_build_object('users', coalesce(jsonb_agg(jsonb_build_object(
            'user_id', w.user_id, 'recorded_bytes', w.recorded_bytes, 'recorded_sources', w.recorded_sources,
            'found_bytes', w.bytes, 'found_sources', w.sources) ORDER BY w.user_id), '[]'))
        INTO v_answer FROM wrong w;
        IF p_dry THEN
            RAISE EXCEPTION 'a dry run' USING ERRCODE = 'WB009';
        END IF;
    EXCEPTION WHEN SQLSTATE 'WB009' THEN
        NULL; -- everything is as it was, and the answer is known
    END;
    RETURN v_answer;
END $$;

CREATE FUNCTION weighbridge.recover(p_max_crashes integer) RETURNS TABLE(queue text, subject uuid, worker text, opened_at timestamp with time zone, hours double precision, batch text, gave_up boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_dead record;
    v_queue upload_queue;
    v_any boolean := false;
    v_batches uuid[] := '{}';
BEGIN
    -- A frozen worker may hold its fence: end the session that does, long after its lease.
    PERFORM pg_terminate_backend(s.pid)
    FROM attempts a
    JOIN pg_stat_activity s ON s.application_name = 'weighbridge ' || a.lease_token AND s.datname = current_database()
    WHERE a.closed_at IS NULL AND a.lease_until < v_now AND s.xact_start IS NOT NULL;

    FOR v_dead IN
        SELECT a.* FROM attempts a
        WHERE a.closed_at IS NULL AND a.lease_until < v_now
        ORDER BY a.lease_until
        FOR UPDATE SKIP LOCKED
    LOOP
        queue := v_dead.queue;
        subject := v_dead.subject;
        worker := v_dead.worker;
        opened_at := v_dead.opened_at;
        hours := EXTRACT(EPOCH FROM v_now - v_dead.opened_at) / 3600;
        batch := NULL;
        gave_up := false;
        UPDATE attempts a SET closed_at = v_now, outcome = 'expired' WHERE a.lease_token = v_dead.lease_token;
        DELETE FROM unbroken u WHERE u.lease_token = v_dead.lease_token;
        IF v_dead.queue = 'uploads' THEN
            SELECT batch_name(d) INTO batch FROM data_uploads d WHERE d.id = v_dead.subject;
            gave_up := rescue(v_dead.subject, batch, v_dead.lease_token::text, hours, p_max_crashes);
        END IF;
        IF v_dead.queue = 'outbox' THEN
            UPDATE event_deliveries d
            SET failures = d.failures + 1, last_error = 'the worker stopped while it delivered',
                gave_up_at = CASE WHEN d.failures + 1 > 10 THEN v_now END
            WHERE d.id = v_dead.subject AND d.delivered_at IS NULL
            RETURNING d.gave_up_at IS NOT NULL INTO gave_up;
        END IF;
        IF v_dead.queue = 'storage' THEN
            UPDATE upload_queue q
            SET retry_count = q.retry_count + 1, tried_at = v_now, error_message = 'The process stopped while it stored the file.'
            WHERE q.id = v_dead.subject AND q.retry_count < q.max_retries
            RETURNING * INTO v_queue;
            gave_up := FOUND AND v_queue.retry_count >= v_queue.max_retries;
            IF gave_up THEN
                PERFORM exhaust_replay(v_queue, v_queue.error_message, ARRAY['audit_log', 'notifier']);
            END IF;
        END IF;
        IF v_dead.queue = 'deliveries' THEN
            v_batches := v_batches || v_dead.subject;
        END IF;
        gave_up := coalesce(gave_up, false);
        v_any := true;
        RETURN NEXT;
    END LOOP;

    -- All at once: what stands around them is locked in one order, as where calls are settled.
    IF v_batches <> '{}' THEN
        PERFORM rescue_deliveries(
            ARRAY(SELECT q.ctid FROM offline_conversion_queue q
                  WHERE q.status = 'PROCESSING' AND q.batch_id = ANY (v_batches) ORDER BY q.sale_id FOR UPDATE),
            p_max_crashes);
        PERFORM close_ledger(v_batches);
    END IF;

    FOR v_dead IN
        SELECT o.* FROM orphans o JOIN data_uploads d ON d.id = o.id
        WHERE d.status IN ('processing', 'promoting')
        FOR UPDATE OF d SKIP LOCKED
    LOOP
        -- Another may have taken it between the look and the lock: its attempt is seen now.
        CONTINUE WHEN EXISTS (SELECT FROM attempts a
                              WHERE a.queue = 'uploads' AND a.subject = v_dead.id AND a.closed_at IS NULL);
        queue := 'uploads';
        subject := v_dead.id;
        worker := 'unknown';
        opened_at := v_dead.started_at;
        hours := v_dead.hours_stale;
        batch := v_dead.source_batch_id;
        gave_up := rescue(v_dead.id, batch, v_now::text, hours, p_max_crashes);
        v_any := true;
        RETURN NEXT;
    END LOOP;
    IF v_any THEN
        PERFORM pg_notify('weighbridge_work', '');
    END IF;
END $$;

CREATE FUNCTION weighbridge.refuse_credentials(p_site uuid, p_provider text, p_version integer, p_code text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    UPDATE provider_credentials c SET refused_at = weighbridge.now(), refused_code = p_code
    WHERE c.site_id = p_site AND c.provider_key = p_provider AND c.version = p_version AND c.refused_at IS NULL;
    IF FOUND THEN
        PERFORM raise_alert('credentials_refused', p_site || '/' || p_provider, 'ERROR',
            format('[DELIVERY] %s refuses the credentials of site %s (%s): nothing is sent until they are replaced',
                   p_provider, p_site, coalesce(p_code, 'no reason given')));
    END IF;
END $$;

CREATE FUNCTION weighbridge.release_batch(p_upload uuid, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET lock_timeout TO '5s'
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

CREATE FUNCTION weighbridge.release_project(p_token uuid, p_pipelines text[], p_per_workspace integer, p_anyway boolean) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.release_slots(p_tokens uuid[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET lock_timeout TO '3s'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '2s', true);
    DELETE FROM slots s
    WHERE (s.key, s.slot, s.token) IN (SELECT o.key, o.slot, o.token FROM slots o
                                       WHERE o.token = ANY (p_tokens)
                                       ORDER BY o.key, o.slot FOR UPDATE);
END $$;

CREATE FUNCTION weighbridge.release_storage(p_grant uuid) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$ DELETE FROM storage_reservations WHERE workspace_id = acting_workspace() AND id = p_grant $$;

CREATE FUNCTION weighbridge.release_upload(p_token uuid, p_delay interval, p_failed boolean, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'released', p_error);
    UPDATE data_uploads
    SET status = CASE status WHEN 'processing' THEN 'pending' WHEN 'promoting' THEN 'staging_complete' ELSE status END,
        run_after = weighbridge.now() + p_delay,
        failures = failures + p_failed::int
    WHERE id = v_upload;
    PERFORM pg_notify('weighbridge_work', '');
END $$;

CREATE FUNCTION weighbridge.requeue_deliveries(p_workspace uuid, p_sales uuid[], p_site uuid, p_provider text, p_category text, p_code text, p_actor text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_count bigint;
BEGIN
    UPDATE offline_conversion_queue q
    SET status = 'QUEUED', next_retry_at = NULL, retry_count = 0, crashes = 0, code_times = 0, updated_at = weighbridge.now()
    WHERE q.status = 'FAILED' AND q.workspace_id = p_workspace
      AND (p_sales IS NULL OR q.sale_id = ANY (p_sales)) AND (p_site IS NULL OR q.site_id = p_site)
      AND (p_provider IS NULL OR q.provider_key = p_provider)
      AND (p_category IS NULL OR q.provider_error_category = p_category)
      AND (p_code IS NULL OR q.provider_error_code = p_code)
      AND q.provider_error_code IS DISTINCT FROM 'SALE_CANCELED';
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count > 0 THEN
        INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
        VALUES (p_workspace, p_actor, 'deliveries.requeue', p_site, jsonb_strip_nulls(jsonb_build_object(
            'rows', v_count, 'provider_key', p_provider, 'category', p_category, 'code', p_code)));
        PERFORM pg_notify('weighbridge_deliver', '');
    END IF;
    RETURN v_count;
END $$;

CREATE FUNCTION weighbridge.rescue(p_upload uuid, p_batch text, p_episode text, p_hours double precision, p_max_crashes integer) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_gave_up boolean;
    v_held data_uploads;
BEGIN
    IF p_batch IS NULL THEN -- the upload itself is gone
        RETURN false;
    END IF;
    SELECT * INTO v_held FROM data_uploads d WHERE d.id = p_upload AND d.preview AND d.status = 'staging_complete';
    IF FOUND THEN
        PERFORM end_takeovers(v_held, 'held');
        PERFORM tell_live(v_held);
        RETURN false;
    END IF;
    PERFORM raise_alert('stale_takeover', p_upload || '/' || p_episode, 'WARNING',
        format('[STALE TAKEOVER] %s abandoned for %sh', p_batch, round(p_hours::numeric, CASE WHEN p_hours < 1 THEN 2 ELSE 1 END)));
    UPDATE data_uploads d
    SET crashes = d.crashes + 1,
        status = CASE WHEN d.crashes + 1 >= p_max_crashes THEN 'failed'
                      WHEN d.status = 'promoting' THEN 'staging_complete'
                      WHEN d.status = 'processing' THEN 'pending'
                      ELSE d.status END,
        error_code = CASE WHEN d.crashes + 1 >= p_max_crashes THEN 'worker_crashed' END,
        error_text = CASE WHEN d.crashes + 1 >= p_max_crashes
            THEN format('The worker stopped %s times while working on this file. Look at its log, then: weighbridge uploads retry %s', d.crashes + 1, d.id) END,
        finished_at = CASE WHEN d.crashes + 1 >= p_max_crashes THEN weighbridge.now() END
    WHERE d.id = p_upload AND d.status IN ('processing', 'staging_complete', 'promoting')
    RETURNING d.status = 'failed' INTO v_gave_up;
    RETURN coalesce(v_gave_up, false);
END $$;

CREATE FUNCTION weighbridge.rescue_deliveries(p_rows tid[], p_max_crashes integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_now timestamptz := weighbridge.now();
    v_count bigint;
BEGIN
    WITH rescued AS (
        UPDATE offline_conversion_queue q
        SET status = CASE WHEN q.crashes + 1 > p_max_crashes THEN 'FAILED' ELSE 'RETRY' END,
            next_retry_at = NULL, crashes = q.crashes + 1, updated_at = v_now,
            last_error = CASE WHEN q.crashes + 1 > p_max_crashes
                THEN 'WORKER_CRASHED: Its workers stopped too often while it was sent. Whether the provider has it is not known.'
                ELSE 'UNKNOWN: The worker stopped while it was sent. It is sent again, under the same order id.' END,
            provider_error_code = CASE WHEN q.crashes + 1 > p_max_crashes THEN 'WORKER_CRASHED' ELSE 'UNKNOWN_OUTCOME' END,
            provider_error_category = 'TRANSIENT', code_times = 1
        WHERE q.ctid = ANY (p_rows) AND (q.status = 'PROCESSING') IS TRUE
        RETURNING q.batch_id, q.status
    ),
    counted AS (
        SELECT r.batch_id, count(*) FILTER (WHERE r.status = 'FAILED') AS failed,
               count(*) FILTER (WHERE r.status = 'RETRY') AS retry
        FROM rescued r GROUP BY r.batch_id
    ),
    finished AS (
        INSERT INTO provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, completed_count,
                                              failed_count, retry_count, duration_ms, error_code, error_category)
        SELECT l.workspace_id, l.site_id, l.provider_key, l.batch_id, 'FINISHED', 0, n.failed, n.retry,
               least(EXTRACT(EPOCH FROM v_now - l.created_at) * 1000, 2147483647), 'UNKNOWN_OUTCOME', 'TRANSIENT'
        FROM counted n JOIN provider_upload_attempts l ON l.batch_id = n.batch_id AND l.phase = 'STARTED'
        ON CONFLICT DO NOTHING
        RETURNING site_id, provider_key, failed_count, retry_count
    ),
    metered AS (
        INSERT INTO provider_upload_metrics AS m (site_id, provider_key, workspace_id, attempts_total, failed_total,
                                                  retry_total)
        SELECT f.site_id, f.provider_key, s.workspace_id, count(*), sum(f.failed_count), sum(f.retry_count)
        FROM finished f JOIN sites s ON s.id = f.site_id
        GROUP BY 1, 2, 3 ORDER BY 1, 2
        ON CONFLICT (site_id, provider_key) DO UPDATE
        SET attempts_total = m.attempts_total + excluded.attempts_total,
            failed_total = m.failed_total + excluded.failed_total,
            retry_total = m.retry_total + excluded.retry_total, updated_at = v_now
    )
    SELECT count(*) INTO v_count FROM rescued;
    IF v_count > 0 THEN
        PERFORM pg_notify('weighbridge_deliver', '');
    END IF;
    RETURN v_count;
END $$;

CREATE FUNCTION weighbridge.reseal_credentials(p_site uuid, p_provider text, p_version integer, p_key_id text, p_nonce bytea, p_ciphertext bytea) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    UPDATE provider_credentials c SET key_id = p_key_id, nonce = p_nonce, ciphertext = p_ciphertext
    WHERE c.site_id = p_site AND c.provider_key = p_provider AND c.version = p_version;
    RETURN FOUND;
END $$;

CREATE FUNCTION weighbridge.reserve_storage(p_grant uuid, p_user uuid, p_bytes bigint, p_lasts interval, p_workspace_month bigint, p_workspace_total bigint, p_user_month bigint, p_user_total bigint, p_consumers text[]) RETURNS TABLE(whose text, span text, used bigint, allowed bigint, resets_at timestamp with time zone, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_month text := billing_month();
    v_limits bigint[]; -- of the user in all, the workspace in all, the user in the month, the workspace in the month
BEGIN
    SELECT ARRAY[
        nullif(coalesce(max(l.total_bytes) FILTER (WHERE l.user_id = p_user), p_user_total), -1),
        nullif(coalesce(max(l.total_bytes) FILTER (WHERE l.user_id IS NULL), p_workspace_total), -1),
        nullif(coalesce(max(l.month_bytes) FILTER (WHERE l.user_id = p_user), p_user_month), -1),
        nullif(coalesce(max(l.month_bytes) FILTER (WHERE l.user_id IS NULL), p_workspace_month), -1)]
    INTO v_limits
    FROM storage_limits l WHERE l.workspace_id = v_workspace AND (l.user_id IS NULL OR l.user_id = p_user);
    IF num_nonnulls(VARIADIC v_limits) = 0 THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(v_workspace::text, 3));
    DELETE FROM storage_reservations r WHERE r.workspace_id = v_workspace AND r.until <= weighbridge.now();
    -- One statement, so one moment: a file that is counted meanwhile is seen as reserved or as used.
    WITH parts (user_id, total, month) AS (
        SELECT u.user_id, u.total_bytes, CASE WHEN u.billing_month >= v_month THEN u.month_bytes ELSE 0 END
        FROM storage_usage u WHERE u.workspace_id = v_workspace
        UNION ALL
        SELECT r.user_id, r.bytes, r.bytes FROM storage_reservations r
        WHERE r.workspace_id = v_workspace AND r.id <> p_grant
        UNION ALL
        SELECT q.user_id, q.byte_size, q.byte_size FROM upload_queue q
        WHERE q.workspace_id = v_workspace AND q.retry_count < q.max_retries
    ), sums AS (
        SELECT ARRAY[sum(p.total) FILTER (WHERE p.user_id = p_user), sum(p.total),
                     sum(p.month) FILTER (WHERE p.user_id = p_user), sum(p.month)]::bigint[] AS used
        FROM parts p
    )
    SELECT (ARRAY['user', 'workspace', 'user', 'workspace'])[n], (ARRAY['total', 'total', 'month', 'month'])[n],
           coalesce(s.used[n], 0), v_limits[n]
    INTO whose, span, used, allowed
    FROM sums s, generate_series(1, 4) AS n
    WHERE coalesce(s.used[n], 0) + p_bytes > v_limits[n]
    ORDER BY n LIMIT 1;
    IF NOT FOUND THEN
        INSERT INTO storage_reservations AS r (workspace_id, id, user_id, bytes, until)
        VALUES (v_workspace, p_grant, p_user, p_bytes, weighbridge.now() + p_lasts)
        ON CONFLICT (workspace_id, id) DO UPDATE SET bytes = EXCLUDED.bytes, until = EXCLUDED.until;
        RETURN;
    END IF;
    IF span = 'month' THEN
        resets_at := next_month();
        seconds := EXTRACT(EPOCH FROM resets_at - weighbridge.now());
    END IF;
    PERFORM emit(v_workspace, NULL, 'quota.storage.exceeded', jsonb_build_object(
        'workspace_id', v_workspace, 'user_id', CASE WHEN whose = 'user' THEN p_user END, 'limit_of', whose, 'span', span,
        'billing_month', v_month, 'used', used, 'limit', allowed, 'resets_at', resets_at), p_consumers);
    RETURN NEXT;
END $$;

CREATE FUNCTION weighbridge.reset_provider(p_site uuid, p_provider text, p_actor text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid;
BEGIN
    SELECT s.workspace_id INTO v_workspace FROM sites s WHERE s.id = p_site
      AND (weighbridge.workspace() IS NULL OR s.workspace_id = weighbridge.workspace());
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM record_provider_outcome(p_site, p_provider, true);
    UPDATE provider_credentials c SET refused_at = NULL, refused_code = NULL
    WHERE c.site_id = p_site AND c.provider_key = p_provider;
    PERFORM withdraw_alert('credentials_refused', p_site || '/' || p_provider,
                           format('[DELIVERY] %s of site %s is tried again', p_provider, p_site));
    -- What waits for the breaker or after a passing trouble need not wait any more.
    UPDATE offline_conversion_queue q SET next_retry_at = NULL, updated_at = weighbridge.now()
    WHERE q.site_id = p_site AND q.provider_key = p_provider AND q.status IN ('QUEUED', 'RETRY')
      AND (q.last_error = 'CIRCUIT_OPEN' OR q.provider_error_category IN ('TRANSIENT', 'RATE_LIMIT'));
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_workspace, p_actor, 'provider.reset', p_site, jsonb_build_object('provider_key', p_provider));
    PERFORM pg_notify('weighbridge_deliver', '');
    RETURN true;
END $$;

CREATE FUNCTION weighbridge.reset_staging(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $_$
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
END $_$;

CREATE FUNCTION weighbridge.restage_preview(p_upload uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    IF lock_held(p_upload) THEN
        UPDATE data_uploads SET status = 'pending', staged = '{}', staged_at = NULL WHERE id = p_upload;
        PERFORM pg_notify('weighbridge_work', '');
    END IF;
END $$;

CREATE FUNCTION weighbridge.restage_upload(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_upload uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'released', 'staging was gone');
    UPDATE data_uploads
    SET status = 'pending', staged = '{}', staged_at = NULL
    WHERE id = v_upload;
    PERFORM pg_notify('weighbridge_work', '');
END $$;

CREATE FUNCTION weighbridge.retire_blob(p_upload uuid, p_age interval) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
    v_first data_uploads;
    v_key text;
    v_held bigint;
BEGIN
    SELECT * INTO v_first FROM data_uploads d WHERE d.id = p_upload AND d.workspace_id = v_workspace;
    v_key := blob_key(v_first.file_url);
    -- SKIP LOCKED: who has one of them in hand may be opening it again; the next run looks at it anew.
    SELECT count(*) INTO v_held FROM (
        SELECT FROM data_uploads d
        WHERE d.workspace_id = v_workspace AND d.content_sha256 = v_first.content_sha256 AND blob_key(d.file_url) = v_key
        ORDER BY d.id FOR UPDATE SKIP LOCKED) held;
    IF may_be_removed(v_workspace, v_key) IS NOT TRUE
       OR v_held <> (SELECT count(*) FROM data_uploads d
                     WHERE d.workspace_id = v_workspace AND d.content_sha256 = v_first.content_sha256
                       AND blob_key(d.file_url) = v_key)
       OR EXISTS (SELECT FROM data_uploads d
                  WHERE d.workspace_id = v_workspace AND d.content_sha256 = v_first.content_sha256
                    AND blob_key(d.file_url) = v_key
                    AND (d.status IN ('completed', 'partial', 'failed')
                         AND (d.storage_status = 'removed'
                              OR d.storage_status = 'stored' AND d.finished_at < weighbridge.now() - p_age)) IS NOT TRUE) THEN
        RETURN NULL;
    END IF;
    UPDATE data_uploads d SET storage_status = 'removed'
    WHERE d.workspace_id = v_workspace AND d.content_sha256 = v_first.content_sha256 AND blob_key(d.file_url) = v_key
      AND d.storage_status = 'stored';
    RETURN v_workspace || '/' || v_key;
END $$;

CREATE FUNCTION weighbridge.retry_replay(p_queue uuid, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    v_queue upload_queue;
    v_status text;
BEGIN
    SELECT * INTO v_queue FROM upload_queue q WHERE q.id = p_queue FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    -- A job that is opened again is one that comes: its project must not be edited meanwhile.
    PERFORM FROM projects p JOIN data_uploads d ON d.workspace_id = p.workspace_id AND d.project_id = p.id
    WHERE d.id = v_queue.payload_submission_id FOR KEY SHARE OF p;
    SELECT d.status INTO v_status FROM data_uploads d WHERE d.id = v_queue.payload_submission_id FOR UPDATE;
    IF v_status = 'failed' THEN
        PERFORM set_config('weighbridge.verb', 'retry', true);
        BEGIN
            UPDATE data_uploads
            SET status = 'pending', storage_status = 'pending_retry', run_after = 'infinity', finished_at = NULL,
                error_code = 'STORAGE_PENDING_RETRY', error_text = 'Upload deferred and will retry automatically'
            WHERE id = v_queue.payload_submission_id;
        EXCEPTION WHEN unique_violation THEN
            RETURN 'superseded';
        END;
        PERFORM set_config('weighbridge.verb', '', true);
        UPDATE upload_queue SET retry_count = 0 WHERE id = p_queue;
    END IF;
    UPDATE upload_queue SET next_retry_at = weighbridge.now() WHERE id = p_queue;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_queue.workspace_id, p_actor, 'storage.retry', v_queue.payload_submission_id,
            jsonb_build_object('queue_id', p_queue));
    PERFORM pg_notify('weighbridge_work', '');
    RETURN 'queued';
END $$;

CREATE FUNCTION weighbridge.retry_upload(p_upload uuid, p_force_partial boolean, p_actor text, p_reading jsonb DEFAULT NULL::jsonb) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET lock_timeout TO '5s'
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
    IF v_before.storage_status <> 'stored' THEN
        RETURN v_before.storage_status;
    END IF;
    PERFORM set_config('weighbridge.verb', 'retry', true);
    UPDATE data_uploads
    SET status = 'pending', run_after = '-infinity', failures = 0, crashes = 0, error_code = NULL, error_text = NULL,
        finished_at = NULL, started_at = NULL, rows_read = 0, staged = '{}', watermark_entity = '',
        watermark_seq = 0, promoted = '{}', promoted_rows = 0, failed_rows = 0, total_rows = 0, warnings = 0,
        staged_at = CASE WHEN staged <> '{}' THEN coalesce(staged_at, finished_at) ELSE staged_at END,
        bins = NULL, row_count = NULL, affected_dates = '{}', force_partial = force_partial OR p_force_partial,
        preview = preview AND error_code IS DISTINCT FROM 'discarded',
        reading = coalesce(p_reading, reading), columns = '{}', column_report = '{}'
    WHERE id = p_upload;
    PERFORM set_config('weighbridge.verb', '', true);
    DELETE FROM upload_rejections WHERE upload_id = p_upload;
    DELETE FROM upload_warnings WHERE upload_id = p_upload;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_before.workspace_id, p_actor, 'upload.retry', p_upload,
            jsonb_build_object('from', v_before.status, 'error_code', v_before.error_code,
                               'force_partial', p_force_partial)
            || CASE WHEN p_reading <> v_before.reading
                    THEN jsonb_build_object('reading', p_reading, 'reading_before', v_before.reading)
                    ELSE '{}' END);
    PERFORM pg_notify('weighbridge_work', '');
    RETURN 'pending';
END $$;

CREATE FUNCTION weighbridge.set_credentials(p_site uuid, p_provider text, p_version integer, p_key_id text, p_nonce bytea, p_ciphertext bytea, p_actor text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid;
BEGIN
    SELECT s.workspace_id INTO v_workspace FROM sites s WHERE s.id = p_site
      AND (weighbridge.workspace() IS NULL OR s.workspace_id = weighbridge.workspace());
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO provider_credentials AS c (site_id, provider_key, workspace_id, version, key_id, nonce, ciphertext)
    VALUES (p_site, p_provider, v_workspace, p_version, p_key_id, p_nonce, p_ciphertext)
    ON CONFLICT (site_id, provider_key) DO UPDATE
    SET version = excluded.version, key_id = excluded.key_id, nonce = excluded.nonce, ciphertext = excluded.ciphertext,
        refused_at = NULL, refused_code = NULL, updated_at = weighbridge.now()
    WHERE c.version < excluded.version;
    IF NOT FOUND THEN
        RETURN false; -- another came later and was quicker
    END IF;
    PERFORM withdraw_alert('credentials_refused', p_site || '/' || p_provider,
                           format('[DELIVERY] %s of site %s has new credentials', p_provider, p_site));
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_workspace, p_actor, 'credentials.set', p_site, jsonb_build_object('provider_key', p_provider, 'version', p_version));
    PERFORM pg_notify('weighbridge_deliver', '');
    RETURN true;
END $$;

CREATE FUNCTION weighbridge.set_storage_limit(p_user uuid, p_month bigint, p_total bigint, p_interpretations integer, p_actor text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
BEGIN
    INSERT INTO storage_limits AS l (workspace_id, user_id, month_bytes, total_bytes)
    VALUES (v_workspace, p_user, nullif(p_month, -2), nullif(p_total, -2))
    ON CONFLICT (workspace_id, user_id) DO UPDATE
    SET month_bytes = nullif(coalesce(p_month, l.month_bytes), -2),
        total_bytes = nullif(coalesce(p_total, l.total_bytes), -2);
    DELETE FROM storage_limits l
    WHERE l.workspace_id = v_workspace AND l.month_bytes IS NULL AND l.total_bytes IS NULL;
    IF p_interpretations IS NOT NULL THEN
        INSERT INTO storage_usage AS u (workspace_id, user_id, interpretation_limit_month)
        VALUES (v_workspace, p_user, p_interpretations)
        ON CONFLICT (workspace_id, user_id) DO UPDATE SET interpretation_limit_month = p_interpretations;
    END IF;
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_workspace, p_actor, 'storage.limit', p_user, jsonb_strip_nulls(jsonb_build_object(
        'month_bytes', p_month, 'total_bytes', p_total, 'interpretations', p_interpretations)));
END $$;

CREATE FUNCTION weighbridge.set_stored(p_upload uuid, p_file_url text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid;
BEGIN
    UPDATE data_uploads d
    SET file_url = p_file_url, storage_status = 'stored', run_after = '-infinity', error_code = NULL, error_text = NULL
    WHERE d.id = p_upload AND d.status = 'pending' AND d.storage_status = 'pending_retry'
    RETURNING d.workspace_id INTO v_workspace;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify('weighbridge_work', '');
    PERFORM pg_notify('weighbridge_live', json_build_object(
        'workspace_id', v_workspace, 'upload_id', p_upload, 'status', 'pending')::text);
    RETURN true;
END $$;

CREATE FUNCTION weighbridge.settle_confirmation(p_site uuid, p_provider text, p_request text, p_state text, p_reasons jsonb) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_rows bigint;
BEGIN
    UPDATE confirmations c SET state = p_state, reasons = p_reasons
    WHERE c.site_id = p_site AND c.provider_key = p_provider AND c.request_id = p_request AND c.state = 'AWAITED';
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    UPDATE offline_conversion_queue q
    SET confirmation = p_state, confirmed_at = CASE WHEN p_state = 'CONFIRMED' THEN weighbridge.now() END,
        updated_at = weighbridge.now()
    WHERE q.provider_request_id = p_request AND q.confirmation = 'AWAITED'
      AND q.site_id = p_site AND q.provider_key = p_provider;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF p_state IN ('PARTIAL', 'REFUSED', 'UNKNOWN') THEN
        PERFORM raise_alert('conversions_unconfirmed', p_site || '/' || p_provider || '/' || p_request, 'WARNING',
            format('[DELIVERY] %s took request %s of site %s, and confirmed %s of its %s conversions: %s', p_provider,
                   p_request, p_site, CASE p_state WHEN 'PARTIAL' THEN 'only some' ELSE 'none' END, v_rows,
                   coalesce(nullif((SELECT string_agg(key || ' ' || value, ', ' ORDER BY key) FROM jsonb_each_text(p_reasons)), ''),
                            'no reason given')));
    END IF;
    RETURN v_rows;
END $$;

CREATE FUNCTION weighbridge.settle_conversions(p_calls jsonb, p_outcomes jsonb, p_batch uuid[], p_id uuid[], p_n integer[], p_retries integer, p_first interval, p_longest interval) RETURNS TABLE(batch_id uuid, completed bigint, failed bigint, retry bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_alive uuid[];
    v_odd jsonb; -- the numbers of outcomes that are not 0, by batch and sale
    v_call record;
BEGIN
    -- KEY SHARE, as a fence does: recover() takes FOR UPDATE, and skips what is being settled.
    SELECT array_agg(f.lease_token) INTO v_alive FROM (
        SELECT a.lease_token FROM attempts a
        WHERE a.lease_token = ANY (ARRAY(SELECT (c ->> 'batch_id')::uuid FROM jsonb_array_elements(p_calls) c))
          AND a.queue = 'deliveries' AND a.closed_at IS NULL
        ORDER BY a.lease_token FOR KEY SHARE) f;
    IF v_alive IS NULL THEN
        RETURN;
    END IF;
    SELECT jsonb_object_agg(u.batch_id::text || u.sale_id, u.n) INTO v_odd FROM unnest(p_batch, p_id, p_n) AS u (batch_id, sale_id, n);
    RETURN QUERY
    WITH calls AS MATERIALIZED (
        SELECT c.* FROM jsonb_to_recordset(p_calls) AS c (
            batch_id uuid, claimed_at timestamptz, duration_ms int, request_id text, error_code text, error_category text)
        WHERE c.batch_id = ANY (v_alive)
    ),
    outcomes AS MATERIALIZED (
        SELECT row_number() OVER () AS place, o.* FROM jsonb_to_recordset(p_outcomes) AS o (
            batch_id uuid, n int, status text, code text, category text, error text, request_id text, at_least interval,
            counts boolean, duplicate boolean, confirm_after interval)
    ),
    written AS (
        UPDATE offline_conversion_queue q
        SET status = CASE WHEN u.status = 'RETRY' AND u.counts AND q.retry_count >= p_retries THEN 'FAILED' ELSE u.status END,
            updated_at = v_now,
            uploaded_at = CASE WHEN u.status = 'COMPLETED' THEN v_now END,
            provider_request_id = coalesce(u.request_id, q.provider_request_id),
            provider_error_code = u.code, provider_error_category = u.category,
            last_error = CASE WHEN u.status = 'RETRY' AND u.counts AND q.retry_count >= p_retries
                THEN format('%s It was tried %s times.', coalesce(u.error, 'It did not go through.'), q.retry_count + 1)
                ELSE u.error END,
            code_times = CASE WHEN u.code = q.provider_error_code THEN q.code_times + 1 ELSE (u.code IS NOT NULL)::int END,
            -- Full jitter: what failed together does not come back together.
            next_retry_at = CASE WHEN u.status = 'RETRY' THEN v_now + coalesce(u.at_least, '0') + random() * CASE
                WHEN u.counts THEN least(p_longest, p_first * power(2, least(q.retry_count, 20))) ELSE INTERVAL '10 seconds' END END,
            retry_count = q.retry_count + coalesce(u.counts, false)::int,
            duplicate = coalesce(u.duplicate, false),
            confirmation = CASE WHEN u.confirm_after IS NOT NULL THEN 'AWAITED' END
        -- By the index of PROCESSING rows: all rows of a batch have one claimed_at, and no others have it.
        FROM calls c JOIN outcomes u ON u.batch_id = c.batch_id
        WHERE q.claimed_at = c.claimed_at AND q.status = 'PROCESSING' AND q.batch_id = c.batch_id
          AND u.n = CASE WHEN v_odd IS NULL THEN 0 ELSE coalesce((v_odd ->> (q.batch_id::text || q.sale_id))::int, 0) END
        RETURNING u.place, q.status
    ),
    came AS MATERIALIZED (
        SELECT w.place, count(*) FILTER (WHERE w.status = 'COMPLETED') AS completed,
               count(*) FILTER (WHERE w.status = 'FAILED') AS failed, count(*) FILTER (WHERE w.status = 'RETRY') AS retry
        FROM written w GROUP BY w.place
    ),
    counted AS MATERIALIZED (
        SELECT u.batch_id, sum(e.completed)::bigint AS completed, sum(e.failed)::bigint AS failed, sum(e.retry)::bigint AS retry
        FROM came e JOIN outcomes u USING (place) GROUP BY u.batch_id
    ),
    awaited AS (
        INSERT INTO confirmations AS c (site_id, provider_key, request_id, workspace_id, rows, due_at)
        SELECT l.site_id, l.provider_key, u.request_id, l.workspace_id, sum(e.completed + e.failed + e.retry), v_now + min(u.confirm_after)
        FROM came e
        JOIN outcomes u USING (place)
        JOIN provider_upload_attempts l ON l.batch_id = u.batch_id AND l.phase = 'STARTED'
        WHERE u.confirm_after IS NOT NULL AND u.request_id IS NOT NULL
        GROUP BY 1, 2, 3, 4
        ON CONFLICT (site_id, provider_key, request_id) DO UPDATE SET rows = c.rows + excluded.rows
    ),
    finished AS (
        INSERT INTO provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, completed_count,
                                              failed_count, retry_count, duration_ms, provider_request_id, error_code,
                                              error_category)
        SELECT l.workspace_id, l.site_id, l.provider_key, l.batch_id, 'FINISHED', coalesce(n.completed, 0),
               coalesce(n.failed, 0), coalesce(n.retry, 0), c.duration_ms, c.request_id, c.error_code, c.error_category
        FROM calls c
        JOIN provider_upload_attempts l ON l.batch_id = c.batch_id AND l.phase = 'STARTED'
        LEFT JOIN counted n ON n.batch_id = c.batch_id
        RETURNING site_id, provider_key, workspace_id, completed_count, failed_count, retry_count
    ),
    metered AS (
        INSERT INTO provider_upload_metrics AS m (site_id, provider_key, workspace_id, attempts_total, completed_total,
                                                  failed_total, retry_total)
        SELECT f.site_id, f.provider_key, f.workspace_id, count(*), sum(f.completed_count), sum(f.failed_count),
               sum(f.retry_count)
        FROM finished f GROUP BY 1, 2, 3 ORDER BY 1, 2
        ON CONFLICT (site_id, provider_key) DO UPDATE
        SET attempts_total = m.attempts_total + excluded.attempts_total,
            completed_total = m.completed_total + excluded.completed_total,
            failed_total = m.failed_total + excluded.failed_total,
            retry_total = m.retry_total + excluded.retry_total, updated_at = v_now
    ),
    closed AS (
        UPDATE attempts a SET closed_at = v_now, outcome = 'done' WHERE a.lease_token = ANY (v_alive)
    )
    SELECT c.batch_id, coalesce(n.completed, 0), coalesce(n.failed, 0), coalesce(n.retry, 0)
    FROM calls c LEFT JOIN counted n ON n.batch_id = c.batch_id;

    -- A success of a healthy group changes nothing: most calls stop here.
    FOR v_call IN
        SELECT l.site_id, l.provider_key, (c ->> 'success')::boolean AS success, (c ->> 'transient')::boolean AS transient,
               (c ->> 'refused')::boolean AS refused, (c ->> 'credentials')::int AS credentials, c ->> 'error_code' AS code
        FROM jsonb_array_elements(p_calls) c
        JOIN provider_upload_attempts l ON l.batch_id = (c ->> 'batch_id')::uuid AND l.phase = 'STARTED'
        LEFT JOIN provider_health_state h USING (site_id, provider_key)
        WHERE l.batch_id = ANY (v_alive)
          AND (NOT (c ->> 'success')::boolean OR h.state <> 'CLOSED' OR h.failure_count > 0)
        ORDER BY l.site_id, l.provider_key
    LOOP
        PERFORM record_provider_outcome(v_call.site_id, v_call.provider_key, v_call.success, v_call.transient);
        IF v_call.refused THEN
            PERFORM refuse_credentials(v_call.site_id, v_call.provider_key, v_call.credentials, v_call.code);
        END IF;
    END LOOP;
    -- What groups share comes after all of them, or two settlements could wait for each other.
    FOR v_call IN
        SELECT l.provider_key, max((c ->> 'pause_seconds')::float8) AS pause_seconds,
               bool_or((c ->> 'unclassified')::boolean) AS unclassified,
               max(c ->> 'error_code') FILTER (WHERE (c ->> 'unclassified')::boolean) AS code
        FROM jsonb_array_elements(p_calls) c
        JOIN provider_upload_attempts l ON l.batch_id = (c ->> 'batch_id')::uuid AND l.phase = 'STARTED'
        WHERE l.batch_id = ANY (v_alive) AND ((c ->> 'unclassified')::boolean OR c ->> 'pause_seconds' IS NOT NULL)
        GROUP BY l.provider_key ORDER BY l.provider_key
    LOOP
        IF v_call.unclassified THEN
            PERFORM raise_alert('provider_unclassified', v_call.provider_key, 'WARNING',
                format('[DELIVERY] %s says %s of conversions, which is in no table of ours: they are tried again',
                       v_call.provider_key, coalesce(v_call.code, 'something')));
        END IF;
        UPDATE providers k
        SET paused_until = greatest(k.paused_until, v_now + v_call.pause_seconds * INTERVAL '1 second')
        WHERE k.provider_key = v_call.provider_key AND v_call.pause_seconds > 0;
    END LOOP;
END $$;

CREATE FUNCTION weighbridge.signature(p_tokens text, p_merges jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT string_agg(DISTINCT coalesce(p_merges ->> t.token, t.token) COLLATE "C", ' '
                          ORDER BY coalesce(p_merges ->> t.token, t.token) COLLATE "C")
        FROM unnest(string_to_array(p_tokens, ' ')) AS t (token)
    $$;

CREATE FUNCTION weighbridge.slots_taken(p_workspace uuid) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
        SELECT count(*) FROM weighbridge.attempts a
        WHERE a.queue = 'uploads' AND a.workspace_id = p_workspace AND a.closed_at IS NULL AND a.slot IS NOT NULL
    $$;

CREATE FUNCTION weighbridge.storage_standing(p_workspace_month bigint, p_workspace_total bigint, p_user_month bigint, p_user_total bigint) RETURNS TABLE(user_id uuid, total_bytes bigint, total_sources bigint, month_bytes bigint, waiting_bytes bigint, reserved_bytes bigint, month_limit bigint, total_limit bigint, last_calculated timestamp with time zone, interpretation_count_month bigint, interpretation_limit_month integer, billing_month text, resets_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        WITH mine AS MATERIALIZED (SELECT acting_workspace() AS id, billing_month() AS month),
        parts (user_id, total, sources, month, waiting, reserved, at, count, most) AS (
            SELECT u.user_id, u.total_bytes, u.total_sources,
                   CASE WHEN u.billing_month >= m.month THEN u.month_bytes ELSE 0 END, 0::bigint, 0::bigint, u.last_calculated,
                   CASE WHEN u.billing_month >= m.month THEN u.interpretation_count_month ELSE 0 END,
                   u.interpretation_limit_month
            FROM storage_usage u, mine m WHERE u.workspace_id = m.id
            UNION ALL
            SELECT q.user_id, 0, 0, 0, q.byte_size, 0, NULL, 0, NULL
            FROM upload_queue q, mine m WHERE q.workspace_id = m.id AND q.retry_count < q.max_retries
            UNION ALL
            SELECT r.user_id, 0, 0, 0, 0, r.bytes, NULL, 0, NULL
            FROM storage_reservations r, mine m WHERE r.workspace_id = m.id AND r.until > weighbridge.now()
            UNION ALL
            SELECT l.user_id, 0, 0, 0, 0, 0, NULL, 0, NULL
            FROM storage_limits l, mine m WHERE l.workspace_id = m.id AND l.user_id IS NOT NULL
        ), standing AS (
            SELECT p.user_id, sum(p.total) AS total, sum(p.sources) AS sources, sum(p.month) AS month,
                   sum(p.waiting) AS waiting, sum(p.reserved) AS reserved, max(p.at) AS at, sum(p.count) AS count,
                   max(p.most) AS most
            FROM parts p GROUP BY GROUPING SETS ((), (p.user_id))
        )
        SELECT s.user_id, coalesce(s.total, 0)::bigint, coalesce(s.sources, 0)::bigint, coalesce(s.month, 0)::bigint,
               coalesce(s.waiting, 0)::bigint, coalesce(s.reserved, 0)::bigint,
               nullif(coalesce(l.month_bytes, CASE WHEN s.user_id IS NULL THEN p_workspace_month ELSE p_user_month END), -1),
               nullif(coalesce(l.total_bytes, CASE WHEN s.user_id IS NULL THEN p_workspace_total ELSE p_user_total END), -1),
               s.at, coalesce(s.count, 0)::bigint, coalesce(s.most, 100), m.month, next_month()
        FROM standing s CROSS JOIN mine m
        LEFT JOIN storage_limits l ON l.workspace_id = m.id AND l.user_id IS NOT DISTINCT FROM s.user_id
        ORDER BY s.user_id NULLS FIRST
    $$;

CREATE FUNCTION weighbridge.store_waiting(p_upload uuid, p_file_url text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    DELETE FROM upload_queue q WHERE q.payload_submission_id = p_upload AND q.workspace_id = weighbridge.workspace();
    RETURN FOUND AND set_stored(p_upload, p_file_url);
END $$;

CREATE FUNCTION weighbridge.sweep_reservations() RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        WITH gone AS (DELETE FROM storage_reservations WHERE until <= weighbridge.now() RETURNING id)
        SELECT count(*) FROM gone
    $$;

CREATE FUNCTION weighbridge.take_interpretations(p_user uuid, p_number integer, p_limited boolean) RETURNS TABLE(used integer, allowed integer, resets_at timestamp with time zone, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_workspace uuid := acting_workspace();
BEGIN
    INSERT INTO storage_usage (workspace_id, user_id) VALUES (v_workspace, p_user) ON CONFLICT DO NOTHING;
    SELECT CASE WHEN u.billing_month >= billing_month() THEN u.interpretation_count_month ELSE 0 END,
           u.interpretation_limit_month, next_month()
    INTO used, allowed, resets_at
    FROM storage_usage u WHERE u.workspace_id = v_workspace AND u.user_id = p_user
    FOR UPDATE;
    IF p_limited AND used + p_number > allowed THEN
        seconds := EXTRACT(EPOCH FROM resets_at - weighbridge.now());
        RETURN NEXT;
        RETURN;
    END IF;
    FOR _ IN 1 .. p_number LOOP
        PERFORM increment_interpretation_count(p_user);
    END LOOP;
END $$;

CREATE FUNCTION weighbridge.take_up(p_worker text, p_from text[], p_pipelines text[], p_lease interval, p_per_workspace integer, p_max_crashes integer) RETURNS TABLE(upload_id uuid, lease_token uuid, abandoned jsonb)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
#variable_conflict use_column
BEGIN
    IF EXISTS (SELECT FROM attempts a WHERE a.closed_at IS NULL AND a.lease_until < weighbridge.now())
       OR EXISTS (SELECT FROM orphans) THEN
        SELECT jsonb_agg(to_jsonb(r)) INTO abandoned FROM recover(p_max_crashes) r;
    END IF;
    SELECT c.upload_id, c.lease_token INTO upload_id, lease_token
    FROM claim_upload(p_worker, p_from, p_pipelines, p_lease, p_per_workspace) c;
    IF upload_id IS NOT NULL OR abandoned IS NOT NULL THEN
        RETURN NEXT;
    END IF;
END $$;

CREATE FUNCTION weighbridge.take_up_project(p_worker text, p_pipelines text[], p_lease interval, p_per_workspace integer, p_only uuid, p_max_crashes integer) RETURNS TABLE(project_key uuid, lease_token uuid, abandoned jsonb)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.tell_live(p_upload public.data_uploads) RETURNS void
    LANGUAGE sql
    AS $$
        SELECT pg_notify('weighbridge_live', json_build_object(
            'workspace_id', p_upload.workspace_id, 'upload_id', p_upload.id, 'status', p_upload.status)::text)
    $$;

CREATE FUNCTION weighbridge.void_receipts() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
BEGIN
    IF current_setting('role', true) IS DISTINCT FROM 'weighbridge_promote' THEN
        DELETE FROM weighbridge.receipts WHERE target = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION weighbridge.waiting_uploads(p_workspace uuid) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
        SELECT (SELECT count(*) FROM public.data_uploads d WHERE d.status IN ('pending', 'staging_complete')
                AND d.project_id IS NULL AND (p_workspace IS NULL OR d.workspace_id = p_workspace))
             + (SELECT count(*) FROM public.data_uploads d WHERE d.status IN ('pending', 'staging_complete')
                AND d.project_id IS NOT NULL AND (p_workspace IS NULL OR d.workspace_id = p_workspace))
             - (SELECT count(*) FROM public.data_uploads d WHERE d.preview AND d.status = 'staging_complete'
                AND (p_workspace IS NULL OR d.workspace_id = p_workspace))
    $$;

CREATE FUNCTION weighbridge.watch_deliveries(p_ahead interval, p_limit integer) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_now timestamptz := weighbridge.now();
    v_refused bigint;
    v_soon bigint;
    v_first timestamptz;
BEGIN
    WITH gone AS MATERIALIZED (
        SELECT q.ctid AS tid FROM offline_conversion_queue q
        WHERE q.status IN ('QUEUED', 'RETRY') AND q.expires_at <= v_now
        ORDER BY q.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ),
    refused AS (
        UPDATE offline_conversion_queue q
        SET status = 'FAILED', last_error = expired(q.provider_key), provider_error_code = 'EXPIRED',
            provider_error_category = 'VALIDATION', updated_at = v_now
        WHERE q.ctid = ANY (ARRAY(SELECT tid FROM gone))
        RETURNING q.site_id, q.provider_key, q.workspace_id
    ),
    metered AS (
        INSERT INTO provider_upload_metrics AS m (site_id, provider_key, workspace_id, failed_total)
        SELECT r.site_id, r.provider_key, r.workspace_id, count(*) FROM refused r GROUP BY 1, 2, 3 ORDER BY 1, 2
        ON CONFLICT (site_id, provider_key) DO UPDATE
        SET failed_total = m.failed_total + excluded.failed_total, updated_at = v_now
    )
    SELECT count(*) INTO v_refused FROM refused;
    -- What no later event can mend is told, and then over.
    UPDATE alerts SET closed_at = v_now
    WHERE closed_at IS NULL AND opened_at < v_now - INTERVAL '1 day'
      AND condition IN ('conversions_expired', 'conversions_unconfirmed', 'provider_unclassified');
    IF v_refused > 0 THEN
        PERFORM raise_alert('conversions_expired', to_char(v_now, 'YYYY-MM-DD'), 'ERROR',
            '[DELIVERY] Conversions expired before they could be sent: they are FAILED with the code EXPIRED');
    END IF;
    SELECT count(*), min(s.expires_at) INTO v_soon, v_first FROM (
        SELECT q.expires_at FROM offline_conversion_queue q
        WHERE q.status IN ('QUEUED', 'RETRY') AND q.expires_at > v_now AND q.expires_at <= v_now + p_ahead
          AND q.created_at < v_now - INTERVAL '15 minutes'
        ORDER BY q.expires_at LIMIT 10000) s;
    IF v_soon > 0 THEN
        PERFORM raise_alert('conversions_expiring', '', 'WARNING',
            format('[DELIVERY] %s%s conversions that wait will expire, the first at %s', v_soon,
                   CASE WHEN v_soon = 10000 THEN ' or more' ELSE '' END,
                   to_char(v_first AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')));
    ELSE
        PERFORM withdraw_alert('conversions_expiring', '', '[DELIVERY] No conversion that waits is about to expire');
    END IF;
    RETURN v_refused;
END $$;

CREATE FUNCTION weighbridge.watch_queues(p_dead_letters integer, p_backlog integer) RETURNS TABLE(dead_letters bigint, backlog bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
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

CREATE FUNCTION weighbridge.watch_storage(p_threshold integer, p_patience interval) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_now timestamptz := weighbridge.now();
    v_depth bigint;
    v_old bigint;
    v_left bigint;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE q.created_at < v_now - p_patience),
           count(*) FILTER (WHERE q.next_retry_at < v_now - INTERVAL '1 hour')
    INTO v_depth, v_old, v_left
    FROM upload_queue q WHERE q.retry_count < q.max_retries;
    IF v_old > p_threshold THEN
        PERFORM raise_alert('storage_queue', '', 'WARNING', format('%s files wait for the file store', v_depth));
    ELSIF v_depth <= p_threshold THEN
        PERFORM withdraw_alert('storage_queue', '', format('%s files wait for the file store', v_depth));
    END IF;
    IF v_left > 0 THEN
        PERFORM raise_alert('storage_left', '', 'ERROR',
            format('%s files wait for the file store on a machine that does not try any more', v_left));
    ELSE
        PERFORM withdraw_alert('storage_left', '', 'No file waits on a machine that does not try any more');
    END IF;
    RETURN v_depth;
END $$;

CREATE FUNCTION weighbridge.withdraw_alert(p_condition text, p_subject text, p_message text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
DECLARE
    v_alert alerts;
BEGIN
    UPDATE alerts SET closed_at = weighbridge.now()
    WHERE condition = p_condition AND subject = p_subject AND closed_at IS NULL
    RETURNING * INTO v_alert;
    IF FOUND THEN
        PERFORM announce_alert('AlertRecovered', v_alert, p_message);
    END IF;
END $$;

CREATE FUNCTION weighbridge.workspace_figures() RETURNS TABLE(backlog_count bigint, failed_24h bigint, stale_runs bigint, avg_processing_seconds double precision, last_failed_batch text, last_failed_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'weighbridge', 'public', 'pg_temp'
    AS $$
        WITH mine AS MATERIALIZED (SELECT workspace() AS id),
        failed AS (
            SELECT batch_name(d) AS batch, d.finished_at
            FROM data_uploads d WHERE d.workspace_id = (SELECT id FROM mine) AND d.status = 'failed'
              AND NOT (d.preview AND d.error_code IN ('discarded', 'preview_expired'))
            ORDER BY d.finished_at DESC LIMIT 1
        )
        SELECT waiting_uploads((SELECT id FROM mine))
               + (SELECT count(*) FROM data_uploads d WHERE d.workspace_id = (SELECT id FROM mine)
                  AND d.status IN ('processing', 'promoting')),
               (SELECT count(*) FROM data_uploads d WHERE d.workspace_id = (SELECT id FROM mine)
                AND d.status = 'failed' AND d.finished_at > weighbridge.now() - INTERVAL '24h'
                AND NOT (d.preview AND d.error_code IN ('discarded', 'preview_expired'))),
               (SELECT count(*) FROM ingest.v_stale_runs s JOIN data_uploads d ON d.id = s.id
                WHERE d.workspace_id = (SELECT id FROM mine)),
               (SELECT avg(EXTRACT(EPOCH FROM d.finished_at - d.started_at))::double precision FROM data_uploads d
                WHERE d.workspace_id = (SELECT id FROM mine) AND d.status IN ('completed', 'partial')),
               (SELECT f.batch FROM failed f),
               (SELECT f.finished_at FROM failed f)
    $$;

CREATE VIEW ingest.import_runs WITH (security_invoker='true') AS
 SELECT id,
    COALESCE(source_batch_id, (id)::text) AS source_batch_id,
    ingest.run_status(status) AS status,
    row_count AS record_count,
    encode(content_sha256, 'hex'::text) AS file_hash,
    started_at,
    finished_at AS completed_at,
    created_at,
    error_text AS error_message,
    pipeline,
    workspace_id
   FROM public.data_uploads d;

CREATE TABLE weighbridge.attempts (
    lease_token uuid DEFAULT gen_random_uuid() NOT NULL,
    queue text NOT NULL,
    subject uuid NOT NULL,
    workspace_id uuid NOT NULL,
    slot integer,
    worker text NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    progressed_at timestamp with time zone NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    closed_at timestamp with time zone,
    outcome text,
    error text,
    under uuid,
    renewed_at timestamp with time zone,
    CONSTRAINT attempts_check CHECK (((closed_at IS NULL) = (outcome IS NULL))),
    CONSTRAINT attempts_outcome_check CHECK ((outcome = ANY (ARRAY['done'::text, 'failed'::text, 'released'::text, 'expired'::text])))
)
WITH (fillfactor='70');

COMMENT ON TABLE weighbridge.attempts IS 'Who works on what, until when. A lease_token is never reused.';

CREATE VIEW ingest.v_stale_runs WITH (security_invoker='true') AS
 SELECT r.id,
    r.source_batch_id,
    r.status,
    r.started_at,
    (EXTRACT(epoch FROM (weighbridge.now() - r.started_at)) / (3600)::numeric) AS hours_stale,
    r.file_hash
   FROM (ingest.import_runs r
     JOIN public.data_uploads d ON (((d.id = r.id) AND (d.status = ANY (ARRAY['processing'::text, 'promoting'::text])))))
  WHERE ((r.status = 'processing'::ingest.import_run_status) AND (r.started_at < (weighbridge.now() - '01:00:00'::interval)) AND (NOT (EXISTS ( SELECT
           FROM weighbridge.attempts a
          WHERE ((a.queue = 'uploads'::text) AND (a.subject = r.id) AND (a.closed_at IS NULL) AND (a.lease_until >= weighbridge.now()))))))
  ORDER BY r.started_at;

COMMENT ON VIEW ingest.v_stale_runs IS 'Import runs stuck in processing state for >1 hour (potential crash victims).';

CREATE TABLE public.ad_sets (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    client_id uuid,
    platform text NOT NULL COLLATE pg_catalog."C",
    external_id text NOT NULL COLLATE pg_catalog."C",
    campaign_id uuid,
    name text,
    status text,
    upload_id uuid NOT NULL,
    line integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT ad_sets_id_from_key CHECK ((id = weighbridge.entity_id(VARIADIC ARRAY['ad_set'::text, (workspace_id)::text, COALESCE((client_id)::text, ''::text), platform, external_id])))
);

CREATE TABLE public.ads (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    client_id uuid,
    platform text NOT NULL COLLATE pg_catalog."C",
    external_id text NOT NULL COLLATE pg_catalog."C",
    campaign_id uuid,
    ad_set_id uuid,
    name text,
    status text,
    upload_id uuid NOT NULL,
    line integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT ads_id_from_key CHECK ((id = weighbridge.entity_id(VARIADIC ARRAY['ad'::text, (workspace_id)::text, COALESCE((client_id)::text, ''::text), platform, external_id])))
);

CREATE TABLE public.campaigns (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    client_id uuid,
    platform text NOT NULL COLLATE pg_catalog."C",
    external_id text NOT NULL COLLATE pg_catalog."C",
    name text,
    status text,
    objective text,
    upload_id uuid NOT NULL,
    line integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT campaigns_id_from_key CHECK ((id = weighbridge.entity_id(VARIADIC ARRAY['campaign'::text, (workspace_id)::text, COALESCE((client_id)::text, ''::text), platform, external_id])))
);

CREATE VIEW public.csv_processing_jobs WITH (security_invoker='true') AS
 SELECT d.id,
    d.project_id,
    d.id AS csv_upload_id,
        CASE
            WHEN ((d.status = 'staging_complete'::text) AND (NOT weighbridge.in_hand(d.id))) THEN 'queued'::text
            ELSE weighbridge.job_status(d.status)
        END AS status,
    d.filename AS source_filename,
    encode(d.content_sha256, 'hex'::text) AS idempotency_key,
    d.attempts,
    d.error_text AS error,
    d.created_at,
    d.started_at,
    d.finished_at,
    d.workspace_id,
    d.status AS upload_status,
    d.error_code,
    d.total_rows AS rows,
    COALESCE(made.inserted, (0)::bigint) AS inserted,
    (COALESCE(((d.bins ->> 'duplicate'::text))::bigint, (0)::bigint) + COALESCE(made.known, (0)::bigint)) AS duplicate,
    d.failed_rows AS invalid,
        CASE
            WHEN (d.bins IS NULL) THEN d.rows_read
            ELSE d.total_rows
        END AS rows_total,
        CASE
            WHEN (d.status = ANY (ARRAY['completed'::text, 'partial'::text, 'failed'::text])) THEN
            CASE
                WHEN (d.bins IS NULL) THEN d.rows_read
                ELSE d.total_rows
            END
            WHEN (d.bins IS NULL) THEN (0)::bigint
            ELSE LEAST(d.total_rows, ((d.total_rows - ((d.bins ->> 'accepted'::text))::bigint) + COALESCE(made.through, (0)::bigint)))
        END AS rows_processed
   FROM (public.data_uploads d
     LEFT JOIN LATERAL ( SELECT (sum(((e.value ->> 'inserted'::text))::bigint))::bigint AS inserted,
            (sum((((e.value ->> 'updated'::text))::bigint + ((e.value ->> 'unchanged'::text))::bigint)))::bigint AS known,
            (sum((((((e.value ->> 'inserted'::text))::bigint + ((e.value ->> 'updated'::text))::bigint) + ((e.value ->> 'unchanged'::text))::bigint) + ((e.value ->> 'failed'::text))::bigint)))::bigint AS through
           FROM jsonb_each(d.promoted) e(key, value)) made ON (true))
  WHERE ((d.project_id IS NOT NULL) AND (NOT (d.preview AND ((d.status = 'staging_complete'::text) OR ((d.status = 'failed'::text) AND (d.error_code = ANY (ARRAY['discarded'::text, 'preview_expired'::text])))))));

CREATE TABLE public.daily_metrics (
    workspace_id uuid NOT NULL,
    client_id uuid,
    platform text NOT NULL COLLATE pg_catalog."C",
    metric_date date NOT NULL,
    campaign_id uuid,
    ad_set_id uuid,
    ad_id uuid,
    impressions bigint,
    clicks bigint,
    spend numeric(18,6),
    currency text,
    conversions numeric(18,6),
    conversion_value numeric(18,6),
    reach bigint,
    upload_id uuid NOT NULL,
    line integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT daily_metrics_clicks_check CHECK ((clicks >= 0)),
    CONSTRAINT daily_metrics_impressions_check CHECK ((impressions >= 0)),
    CONSTRAINT daily_metrics_reach_check CHECK ((reach >= 0))
);

CREATE TABLE public.group_keywords (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    keyword_normalized text NOT NULL COLLATE pg_catalog."C",
    group_id uuid NOT NULL,
    by_hand boolean DEFAULT false NOT NULL
);

CREATE TABLE public.judgments (
    workspace_id uuid DEFAULT weighbridge.workspace() NOT NULL,
    case_number text NOT NULL COLLATE pg_catalog."C",
    plaintiff_id uuid,
    plaintiff_name text,
    defendant_name text,
    judgment_amount numeric(18,6),
    filing_date date,
    court text,
    county text,
    source_file text,
    upload_id uuid,
    line integer,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    updated_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    CONSTRAINT judgments_judgment_amount_check CHECK ((judgment_amount >= (0)::numeric))
);

CREATE TABLE public.keyword_groups (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    signature text COLLATE pg_catalog."C",
    name text COLLATE pg_catalog."C",
    parent text COLLATE pg_catalog."C",
    confirmed boolean DEFAULT false NOT NULL,
    stale boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    CONSTRAINT keyword_groups_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200)))
)
WITH (fillfactor='80');

CREATE TABLE public.keywords (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    keyword_normalized text NOT NULL COLLATE pg_catalog."C",
    keyword text COLLATE pg_catalog."C",
    tokens text NOT NULL COLLATE pg_catalog."C",
    volume bigint,
    difficulty numeric(18,6),
    cpc numeric(18,6),
    clicks bigint,
    impressions bigint,
    upload_id uuid NOT NULL,
    line integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT keywords_keyword_normalized_check CHECK ((keyword_normalized <> ''::text)),
    CONSTRAINT keywords_tokens_check CHECK ((tokens <> ''::text)),
    CONSTRAINT keywords_volume_check CHECK ((volume >= 0))
);

CREATE TABLE public.plaintiffs (
    workspace_id uuid DEFAULT weighbridge.workspace() NOT NULL,
    id uuid NOT NULL,
    dedupe_key text NOT NULL COLLATE pg_catalog."C",
    name text,
    email text,
    phone text,
    upload_id uuid,
    line integer,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    updated_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    CONSTRAINT plaintiffs_id_from_key CHECK ((id = weighbridge.entity_id(VARIADIC ARRAY['plaintiff'::text, (workspace_id)::text, dedupe_key])))
);

CREATE VIEW public.project_processing_leases AS
 SELECT p.id AS project_id,
    a.worker AS lease_owner,
    a.lease_until AS lease_expires_at,
    COALESCE(a.renewed_at, a.opened_at) AS updated_at,
    p.workspace_id
   FROM (weighbridge.attempts a
     JOIN public.projects p ON ((p.key = a.subject)))
  WHERE ((a.queue = 'projects'::text) AND (a.closed_at IS NULL));

COMMENT ON VIEW public.project_processing_leases IS 'Who runs a project, until when, if nothing more is heard (S2 §3.1).';

CREATE TABLE public.provider_credentials (
    site_id uuid NOT NULL,
    provider_key text NOT NULL,
    workspace_id uuid NOT NULL,
    version integer NOT NULL,
    key_id text NOT NULL,
    nonce bytea NOT NULL,
    ciphertext bytea NOT NULL,
    refused_at timestamp with time zone,
    refused_code text,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    updated_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    CONSTRAINT provider_credentials_nonce_check CHECK ((length(nonce) = 12)),
    CONSTRAINT provider_credentials_version_check CHECK ((version > 0))
);

CREATE TABLE public.provider_health_state (
    site_id uuid NOT NULL,
    provider_key text NOT NULL,
    workspace_id uuid NOT NULL,
    state text DEFAULT 'CLOSED'::text NOT NULL,
    failure_count integer DEFAULT 0 NOT NULL,
    next_probe_at timestamp with time zone,
    probe_limit integer DEFAULT 5 NOT NULL,
    probe_until timestamp with time zone,
    opened_at timestamp with time zone,
    updated_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    CONSTRAINT provider_health_state_check CHECK (((state = 'CLOSED'::text) OR (next_probe_at IS NOT NULL))),
    CONSTRAINT provider_health_state_probe_limit_check CHECK ((probe_limit > 0)),
    CONSTRAINT provider_health_state_state_check CHECK ((state = ANY (ARRAY['CLOSED'::text, 'OPEN'::text, 'HALF_OPEN'::text])))
);

CREATE TABLE public.provider_upload_attempts (
    id bigint NOT NULL,
    workspace_id uuid NOT NULL,
    site_id uuid NOT NULL,
    provider_key text NOT NULL,
    batch_id uuid NOT NULL,
    phase text NOT NULL,
    claimed_count integer,
    completed_count integer,
    failed_count integer,
    retry_count integer,
    duration_ms integer,
    provider_request_id text,
    error_code text,
    error_category text,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    CONSTRAINT provider_upload_attempts_check CHECK (((phase = 'STARTED'::text) = (claimed_count IS NOT NULL))),
    CONSTRAINT provider_upload_attempts_check1 CHECK (((phase = 'FINISHED'::text) = ((completed_count IS NOT NULL) AND (failed_count IS NOT NULL) AND (retry_count IS NOT NULL)))),
    CONSTRAINT provider_upload_attempts_phase_check CHECK ((phase = ANY (ARRAY['STARTED'::text, 'FINISHED'::text])))
);

ALTER TABLE public.provider_upload_attempts ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.provider_upload_attempts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.provider_upload_metrics (
    site_id uuid NOT NULL,
    provider_key text NOT NULL,
    workspace_id uuid NOT NULL,
    attempts_total bigint DEFAULT 0 NOT NULL,
    completed_total bigint DEFAULT 0 NOT NULL,
    failed_total bigint DEFAULT 0 NOT NULL,
    retry_total bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL
)
WITH (fillfactor='70');

CREATE TABLE public.sites (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    workspace_id uuid DEFAULT weighbridge.workspace() NOT NULL,
    name text NOT NULL,
    providers text[] DEFAULT '{google_datamanager}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    CONSTRAINT sites_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200)))
);

CREATE UNLOGGED TABLE public.staging_id_resolution (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    entity_type text NOT NULL,
    natural_key_hash bytea NOT NULL,
    production_id uuid NOT NULL,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL
);

CREATE TABLE public.storage_usage (
    workspace_id uuid NOT NULL,
    user_id uuid NOT NULL,
    total_bytes bigint DEFAULT 0 NOT NULL,
    total_sources integer DEFAULT 0 NOT NULL,
    last_calculated timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    interpretation_count_month integer DEFAULT 0 NOT NULL,
    interpretation_limit_month integer DEFAULT 100 NOT NULL,
    billing_month text DEFAULT weighbridge.billing_month() NOT NULL,
    month_bytes bigint DEFAULT 0 NOT NULL,
    CONSTRAINT storage_usage_interpretation_limit_month_check CHECK ((interpretation_limit_month >= 0)),
    CONSTRAINT storage_usage_total_bytes_check CHECK ((total_bytes >= 0)),
    CONSTRAINT storage_usage_total_sources_check CHECK ((total_sources >= 0))
)
WITH (fillfactor='70');

COMMENT ON TABLE public.storage_usage IS 'What each user has stored and had read again (S5). Only functions move the counters.';

CREATE TABLE public.token_merges (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    token text NOT NULL COLLATE pg_catalog."C",
    into_token text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    CONSTRAINT token_merges_check CHECK ((into_token <> token))
);

CREATE TABLE public.upload_duplicates (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    filename text NOT NULL,
    times integer DEFAULT 1 NOT NULL,
    last_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL
);

COMMENT ON TABLE public.upload_duplicates IS 'Files that were here already: shown, never counted.';

CREATE TABLE public.upload_rejections (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    row_index integer NOT NULL,
    line integer NOT NULL,
    stage text NOT NULL,
    column_name text,
    code text NOT NULL,
    message text NOT NULL,
    raw text[],
    more text[],
    fixed_by uuid,
    fixed_at timestamp with time zone,
    CONSTRAINT upload_rejections_stage_check CHECK ((stage = ANY (ARRAY['parse'::text, 'promote'::text])))
);

CREATE TABLE public.upload_warnings (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    row_index integer NOT NULL,
    line integer NOT NULL,
    code text NOT NULL,
    message text NOT NULL
);

CREATE TABLE weighbridge.api_keys (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    workspace_id uuid NOT NULL,
    name text NOT NULL,
    prefix text NOT NULL,
    key_hash bytea NOT NULL,
    scopes text[] NOT NULL,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    CONSTRAINT api_keys_key_hash_check CHECK ((length(key_hash) = 32)),
    CONSTRAINT api_keys_scopes_check CHECK (((scopes <@ ARRAY['upload'::text, 'read'::text, 'operate'::text, 'admin'::text]) AND (cardinality(scopes) > 0)))
);

CREATE TABLE weighbridge.audit_log (
    id bigint NOT NULL,
    workspace_id uuid,
    at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject uuid,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL
);

CREATE SEQUENCE weighbridge.audit_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE weighbridge.audit_log_id_seq OWNED BY weighbridge.audit_log.id;

CREATE TABLE weighbridge.clock (
    one boolean DEFAULT true NOT NULL,
    shift interval DEFAULT '00:00:00'::interval NOT NULL,
    CONSTRAINT clock_one_check CHECK (one)
);

CREATE TABLE weighbridge.confirmations (
    site_id uuid NOT NULL,
    provider_key text NOT NULL,
    request_id text NOT NULL,
    workspace_id uuid NOT NULL,
    rows integer NOT NULL,
    due_at timestamp with time zone NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    state text DEFAULT 'AWAITED'::text NOT NULL,
    reasons jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    CONSTRAINT confirmations_state_check CHECK ((state = ANY (ARRAY['AWAITED'::text, 'CONFIRMED'::text, 'PARTIAL'::text, 'REFUSED'::text, 'UNKNOWN'::text])))
);

CREATE TABLE weighbridge.counted_blobs (
    workspace_id uuid NOT NULL,
    blob_key text NOT NULL,
    user_id uuid NOT NULL,
    bytes bigint NOT NULL,
    counted_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL
);

CREATE SEQUENCE weighbridge.credential_versions
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE weighbridge.event_deliveries (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    event_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    consumer text NOT NULL,
    run_after timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    last_error text,
    delivered_at timestamp with time zone,
    gave_up_at timestamp with time zone,
    heard text[] DEFAULT '{}'::text[] NOT NULL
);

CREATE TABLE weighbridge.events (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    workspace_id uuid NOT NULL,
    upload_id uuid,
    type text NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    alert_id uuid
);

CREATE TABLE weighbridge.identity (
    one boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    CONSTRAINT identity_one_check CHECK (one)
);

CREATE TABLE weighbridge.moves (
    verb text NOT NULL,
    from_status text NOT NULL,
    to_status text NOT NULL,
    operator boolean DEFAULT false NOT NULL
);

CREATE VIEW weighbridge.orphans AS
 SELECT id,
    source_batch_id,
    started_at,
    (hours_stale)::double precision AS hours_stale
   FROM ingest.v_stale_runs s
  WHERE (NOT (EXISTS ( SELECT
           FROM weighbridge.attempts a
          WHERE ((a.queue = 'uploads'::text) AND (a.subject = s.id) AND (a.closed_at IS NULL)))));

CREATE TABLE weighbridge.pipelines (
    name text NOT NULL,
    fingerprint text NOT NULL,
    updated_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL
);

CREATE TABLE weighbridge.providers (
    provider_key text NOT NULL,
    clicks text[] NOT NULL,
    click_window interval,
    from_event boolean DEFAULT false NOT NULL,
    paused_until timestamp with time zone,
    changed_at timestamp with time zone
);

CREATE TABLE weighbridge.receipts (
    workspace_id uuid NOT NULL,
    target text NOT NULL,
    scope text NOT NULL,
    group_key text NOT NULL,
    upload_id uuid NOT NULL,
    digest bytea,
    complete boolean DEFAULT false NOT NULL,
    mixed boolean DEFAULT false NOT NULL
);

COMMENT ON COLUMN weighbridge.receipts.target IS 'The production table.';

CREATE TABLE weighbridge.resumable_uploads (
    id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    spool_id uuid NOT NULL,
    request jsonb NOT NULL,
    metadata text NOT NULL,
    length bigint NOT NULL,
    received bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT weighbridge.now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    upload_id uuid,
    duplicate boolean DEFAULT false NOT NULL,
    refusal_status integer,
    refusal_code text,
    refusal_text text,
    CONSTRAINT ends_once CHECK (((upload_id IS NULL) OR (refusal_code IS NULL))),
    CONSTRAINT refused_with_a_sentence CHECK ((num_nulls(refusal_status, refusal_code, refusal_text) = ANY (ARRAY[0, 3]))),
    CONSTRAINT resumable_uploads_check CHECK (((received >= 0) AND (received <= length))),
    CONSTRAINT resumable_uploads_length_check CHECK ((length > 0)),
    CONSTRAINT whole_when_recorded CHECK (((upload_id IS NULL) OR (received = length)))
);

CREATE TABLE weighbridge.signing (
    one boolean DEFAULT true NOT NULL,
    secret bytea DEFAULT sha256((((gen_random_uuid())::text || (gen_random_uuid())::text))::bytea) NOT NULL,
    CONSTRAINT signing_one_check CHECK (one),
    CONSTRAINT signing_secret_check CHECK ((length(secret) = 32))
);

CREATE UNLOGGED TABLE weighbridge.slots (
    key text NOT NULL,
    slot integer NOT NULL,
    token uuid NOT NULL,
    until timestamp with time zone NOT NULL,
    CONSTRAINT slots_slot_check CHECK ((slot > 0))
)
WITH (autovacuum_vacuum_threshold='1000', autovacuum_vacuum_scale_factor='0');

COMMENT ON TABLE weighbridge.slots IS 'Calls to providers that are under way, by S4''s keys; empty where Redis counts them.';

CREATE UNLOGGED TABLE weighbridge.staging_groups (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    group_key text NOT NULL,
    first_seq integer NOT NULL,
    last_seq integer NOT NULL,
    digest bytea NOT NULL
);

CREATE TABLE weighbridge.storage_limits (
    workspace_id uuid NOT NULL,
    user_id uuid,
    month_bytes bigint,
    total_bytes bigint,
    CONSTRAINT storage_limits_month_bytes_check CHECK ((month_bytes >= '-1'::integer)),
    CONSTRAINT storage_limits_total_bytes_check CHECK ((total_bytes >= '-1'::integer))
);

CREATE TABLE weighbridge.storage_reservations (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    user_id uuid NOT NULL,
    bytes bigint NOT NULL,
    until timestamp with time zone NOT NULL
);

CREATE UNLOGGED TABLE weighbridge.unbroken (
    lease_token uuid NOT NULL
);

CREATE TABLE weighbridge.upload_fixes (
    upload_id uuid NOT NULL,
    workspace_id uuid NOT NULL,
    row_index integer NOT NULL,
    original_upload uuid NOT NULL,
    original_row integer NOT NULL
);

CREATE TABLE weighbridge_migrations.applied (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE ONLY weighbridge.audit_log ALTER COLUMN id SET DEFAULT nextval('weighbridge.audit_log_id_seq'::regclass);

ALTER TABLE ONLY public.ad_sets
    ADD CONSTRAINT ad_sets_pkey PRIMARY KEY (workspace_id, id);

ALTER TABLE ONLY public.ad_sets
    ADD CONSTRAINT ad_sets_workspace_id_client_id_platform_external_id_key UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id);

ALTER TABLE ONLY public.ads
    ADD CONSTRAINT ads_pkey PRIMARY KEY (workspace_id, id);

ALTER TABLE ONLY public.ads
    ADD CONSTRAINT ads_workspace_id_client_id_platform_external_id_key UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id);

ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_pkey PRIMARY KEY (workspace_id, id);

ALTER TABLE ONLY public.campaigns
    ADD CONSTRAINT campaigns_workspace_id_client_id_platform_external_id_key UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id);

ALTER TABLE ONLY public.daily_metrics
    ADD CONSTRAINT daily_metrics_key UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, metric_date, campaign_id, ad_set_id, ad_id);

ALTER TABLE ONLY public.data_uploads
    ADD CONSTRAINT data_uploads_batch UNIQUE (workspace_id, source_batch_id);

ALTER TABLE ONLY public.data_uploads
    ADD CONSTRAINT data_uploads_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.group_keywords
    ADD CONSTRAINT group_keywords_pkey PRIMARY KEY (workspace_id, project_id, keyword_normalized);

ALTER TABLE ONLY public.judgments
    ADD CONSTRAINT judgments_workspace_id_case_number_key UNIQUE (workspace_id, case_number);

ALTER TABLE ONLY public.keyword_groups
    ADD CONSTRAINT keyword_groups_pkey PRIMARY KEY (workspace_id, project_id, id);

ALTER TABLE ONLY public.keywords
    ADD CONSTRAINT keywords_pkey PRIMARY KEY (workspace_id, project_id, keyword_normalized);

ALTER TABLE ONLY public.offline_conversion_queue
    ADD CONSTRAINT offline_conversion_queue_pkey PRIMARY KEY (sale_id, provider_key);

ALTER TABLE ONLY public.plaintiffs
    ADD CONSTRAINT plaintiffs_pkey PRIMARY KEY (workspace_id, id);

ALTER TABLE ONLY public.plaintiffs
    ADD CONSTRAINT plaintiffs_workspace_id_dedupe_key_key UNIQUE (workspace_id, dedupe_key);

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_key_key UNIQUE (key);

ALTER TABLE ONLY public.projects
    ADD CONSTRAINT projects_pkey PRIMARY KEY (workspace_id, id);

ALTER TABLE ONLY public.provider_credentials
    ADD CONSTRAINT provider_credentials_pkey PRIMARY KEY (site_id, provider_key);

ALTER TABLE ONLY public.provider_health_state
    ADD CONSTRAINT provider_health_state_pkey PRIMARY KEY (site_id, provider_key);

ALTER TABLE ONLY public.provider_upload_attempts
    ADD CONSTRAINT provider_upload_attempts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.provider_upload_metrics
    ADD CONSTRAINT provider_upload_metrics_pkey PRIMARY KEY (site_id, provider_key);

ALTER TABLE ONLY public.sales
    ADD CONSTRAINT sales_pkey PRIMARY KEY (workspace_id, id);

ALTER TABLE ONLY public.sales
    ADD CONSTRAINT sales_workspace_id_client_id_order_id_key UNIQUE (workspace_id, client_id, order_id);

ALTER TABLE ONLY public.sites
    ADD CONSTRAINT sites_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.sites
    ADD CONSTRAINT sites_workspace_id_id_key UNIQUE (workspace_id, id);

ALTER TABLE ONLY public.sites
    ADD CONSTRAINT sites_workspace_id_name_key UNIQUE (workspace_id, name);

ALTER TABLE ONLY public.staging_id_resolution
    ADD CONSTRAINT staging_id_resolution_pkey PRIMARY KEY (upload_id, entity_type, production_id);

ALTER TABLE ONLY public.storage_usage
    ADD CONSTRAINT storage_usage_pkey PRIMARY KEY (workspace_id, user_id);

ALTER TABLE ONLY public.token_merges
    ADD CONSTRAINT token_merges_pkey PRIMARY KEY (workspace_id, project_id, token);

ALTER TABLE ONLY public.upload_duplicates
    ADD CONSTRAINT upload_duplicates_pkey PRIMARY KEY (upload_id, filename);

ALTER TABLE ONLY public.upload_queue
    ADD CONSTRAINT upload_queue_payload_submission_id_key UNIQUE (payload_submission_id);

ALTER TABLE ONLY public.upload_queue
    ADD CONSTRAINT upload_queue_pkey PRIMARY KEY (id);

ALTER TABLE ONLY public.upload_rejections
    ADD CONSTRAINT upload_rejections_pkey PRIMARY KEY (upload_id, row_index, stage);

ALTER TABLE ONLY public.upload_warnings
    ADD CONSTRAINT upload_warnings_pkey PRIMARY KEY (upload_id, row_index, code);

ALTER TABLE ONLY weighbridge.alerts
    ADD CONSTRAINT alerts_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weighbridge.api_keys
    ADD CONSTRAINT api_keys_key_hash_key UNIQUE (key_hash);

ALTER TABLE ONLY weighbridge.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weighbridge.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (lease_token);

ALTER TABLE ONLY weighbridge.audit_log
    ADD CONSTRAINT audit_log_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weighbridge.clock
    ADD CONSTRAINT clock_pkey PRIMARY KEY (one);

ALTER TABLE ONLY weighbridge.confirmations
    ADD CONSTRAINT confirmations_pkey PRIMARY KEY (site_id, provider_key, request_id);

ALTER TABLE ONLY weighbridge.counted_blobs
    ADD CONSTRAINT counted_blobs_pkey PRIMARY KEY (workspace_id, blob_key);

ALTER TABLE ONLY weighbridge.event_deliveries
    ADD CONSTRAINT event_deliveries_event_id_consumer_key UNIQUE (event_id, consumer);

ALTER TABLE ONLY weighbridge.event_deliveries
    ADD CONSTRAINT event_deliveries_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weighbridge.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weighbridge.identity
    ADD CONSTRAINT identity_pkey PRIMARY KEY (one);

ALTER TABLE ONLY weighbridge.moves
    ADD CONSTRAINT moves_pkey PRIMARY KEY (from_status, to_status, verb);

ALTER TABLE ONLY weighbridge.pipelines
    ADD CONSTRAINT pipelines_pkey PRIMARY KEY (name);

ALTER TABLE ONLY weighbridge.providers
    ADD CONSTRAINT providers_pkey PRIMARY KEY (provider_key);

ALTER TABLE ONLY weighbridge.receipts
    ADD CONSTRAINT receipts_pkey PRIMARY KEY (workspace_id, target, scope, group_key);

ALTER TABLE ONLY weighbridge.resumable_uploads
    ADD CONSTRAINT resumable_uploads_pkey PRIMARY KEY (id);

ALTER TABLE ONLY weighbridge.signing
    ADD CONSTRAINT signing_pkey PRIMARY KEY (one);

ALTER TABLE ONLY weighbridge.slots
    ADD CONSTRAINT slots_pkey PRIMARY KEY (key, slot);

ALTER TABLE ONLY weighbridge.slots
    ADD CONSTRAINT slots_token_key_key UNIQUE (token, key);

ALTER TABLE ONLY weighbridge.staging_groups
    ADD CONSTRAINT staging_groups_pkey PRIMARY KEY (upload_id, first_seq);

ALTER TABLE ONLY weighbridge.storage_limits
    ADD CONSTRAINT storage_limits_workspace_id_user_id_key UNIQUE NULLS NOT DISTINCT (workspace_id, user_id);

ALTER TABLE ONLY weighbridge.storage_reservations
    ADD CONSTRAINT storage_reservations_pkey PRIMARY KEY (workspace_id, id);

ALTER TABLE ONLY weighbridge.unbroken
    ADD CONSTRAINT unbroken_pkey PRIMARY KEY (lease_token);

ALTER TABLE ONLY weighbridge.upload_fixes
    ADD CONSTRAINT upload_fixes_pkey PRIMARY KEY (upload_id, row_index);

ALTER TABLE ONLY weighbridge_migrations.applied
    ADD CONSTRAINT applied_pkey PRIMARY KEY (version);

CREATE INDEX data_uploads_blob ON public.data_uploads USING btree (workspace_id, content_sha256);

CREATE INDEX data_uploads_claimable ON public.data_uploads USING btree (workspace_id, created_at, id) WHERE ((status = ANY (ARRAY['pending'::text, 'staging_complete'::text])) AND (project_id IS NULL));

CREATE UNIQUE INDEX data_uploads_content ON public.data_uploads USING btree (workspace_id, pipeline, client_id, platform, project_id, content_sha256, reading) NULLS NOT DISTINCT WHERE ((status <> 'failed'::text) AND (NOT forced));

CREATE INDEX data_uploads_dead ON public.data_uploads USING btree (finished_at) WHERE ((status = 'failed'::text) AND ((dismissed_at IS NULL) OR (dismissed_at < finished_at)));

CREATE INDEX data_uploads_ended ON public.data_uploads USING btree (workspace_id, status, finished_at) INCLUDE (started_at) WHERE (status = ANY (ARRAY['completed'::text, 'partial'::text, 'failed'::text]));

CREATE INDEX data_uploads_half_staged ON public.data_uploads USING btree (finished_at) WHERE ((staged_at IS NULL) AND (staged <> '{}'::jsonb) AND (status = ANY (ARRAY['completed'::text, 'partial'::text, 'failed'::text])));

CREATE INDEX data_uploads_held ON public.data_uploads USING btree (workspace_id, staged_at) WHERE (preview AND (status = 'staging_complete'::text));

CREATE INDEX data_uploads_jobs ON public.data_uploads USING btree (workspace_id, project_id, created_at, id) WHERE ((status = ANY (ARRAY['pending'::text, 'processing'::text, 'staging_complete'::text, 'promoting'::text])) AND (project_id IS NOT NULL));

CREATE INDEX data_uploads_of_project ON public.data_uploads USING btree (workspace_id, project_id, created_at, id) INCLUDE (status, started_at, finished_at, preview) WHERE (project_id IS NOT NULL);

CREATE INDEX data_uploads_recent ON public.data_uploads USING btree (workspace_id, created_at DESC, id);

CREATE INDEX data_uploads_set_aside ON public.data_uploads USING btree (workspace_id, finished_at) INCLUDE (project_id) WHERE (preview AND (status = 'failed'::text) AND (error_code = ANY (ARRAY['discarded'::text, 'preview_expired'::text])));

CREATE INDEX data_uploads_staged ON public.data_uploads USING btree (staged_at) WHERE (staged_at IS NOT NULL);

CREATE INDEX data_uploads_under_way ON public.data_uploads USING btree (started_at) WHERE (status = ANY (ARRAY['processing'::text, 'promoting'::text]));

CREATE INDEX group_keywords_group ON public.group_keywords USING btree (workspace_id, project_id, group_id);

CREATE INDEX idx_offline_conversion_queue_eligible_scan ON public.offline_conversion_queue USING btree (site_id, provider_key, status, next_retry_at) WHERE (status = ANY (ARRAY['QUEUED'::text, 'RETRY'::text]));

CREATE INDEX idx_offline_conversion_queue_processing_claimed_at ON public.offline_conversion_queue USING btree (claimed_at) WHERE (status = 'PROCESSING'::text);

CREATE INDEX idx_offline_conversion_queue_uploaded_at ON public.offline_conversion_queue USING btree (site_id, provider_key, uploaded_at) WHERE (uploaded_at IS NOT NULL);

CREATE INDEX idx_upload_queue_next_retry ON public.upload_queue USING btree (spool_id, next_retry_at) WHERE (retry_count < max_retries);

CREATE INDEX idx_upload_queue_user ON public.upload_queue USING btree (workspace_id, user_id);

CREATE INDEX judgments_plaintiff ON public.judgments USING btree (workspace_id, plaintiff_id);

CREATE INDEX keyword_groups_parent ON public.keyword_groups USING btree (workspace_id, project_id, parent, id);

CREATE UNIQUE INDEX keyword_groups_signature ON public.keyword_groups USING btree (workspace_id, project_id, signature) WHERE (NOT confirmed);

CREATE INDEX offline_conversion_queue_awaited ON public.offline_conversion_queue USING btree (provider_request_id) WHERE (confirmation = 'AWAITED'::text);

CREATE INDEX offline_conversion_queue_due ON public.offline_conversion_queue USING btree (site_id, provider_key, due_at, created_at, sale_id) WHERE (status = ANY (ARRAY['QUEUED'::text, 'RETRY'::text]));

CREATE INDEX offline_conversion_queue_expiring ON public.offline_conversion_queue USING btree (expires_at) WHERE ((status = ANY (ARRAY['QUEUED'::text, 'RETRY'::text])) AND (expires_at IS NOT NULL));

CREATE INDEX offline_conversion_queue_failed ON public.offline_conversion_queue USING btree (site_id, provider_key, updated_at) WHERE (status = 'FAILED'::text);

CREATE INDEX projects_ungrouped ON public.projects USING btree (workspace_id, id) WHERE ungrouped;

CREATE UNIQUE INDEX provider_upload_attempts_batch ON public.provider_upload_attempts USING btree (batch_id, phase);

CREATE INDEX provider_upload_attempts_recent ON public.provider_upload_attempts USING btree (site_id, provider_key, created_at DESC);

CREATE INDEX sales_recent ON public.sales USING btree (workspace_id, created_at DESC, id);

CREATE INDEX upload_rejections_fixed ON public.upload_rejections USING btree (fixed_by) WHERE (fixed_by IS NOT NULL);

CREATE UNIQUE INDEX alerts_open ON weighbridge.alerts USING btree (condition, subject) WHERE (closed_at IS NULL);

CREATE INDEX attempts_expiring ON weighbridge.attempts USING btree (lease_until) WHERE (closed_at IS NULL);

CREATE INDEX attempts_history ON weighbridge.attempts USING btree (subject, opened_at);

CREATE UNIQUE INDEX attempts_live ON weighbridge.attempts USING btree (queue, subject) WHERE (closed_at IS NULL);

CREATE UNIQUE INDEX attempts_slots ON weighbridge.attempts USING btree (queue, workspace_id, slot) WHERE ((closed_at IS NULL) AND (slot IS NOT NULL));

CREATE INDEX attempts_under ON weighbridge.attempts USING btree (under) WHERE (under IS NOT NULL);

CREATE UNIQUE INDEX audit_log_event ON weighbridge.audit_log USING btree (((detail ->> 'event_id'::text))) WHERE (detail ? 'event_id'::text);

CREATE INDEX audit_log_subject ON weighbridge.audit_log USING btree (subject);

CREATE INDEX confirmations_due ON weighbridge.confirmations USING btree (due_at) WHERE (state = 'AWAITED'::text);

CREATE INDEX event_deliveries_waiting ON weighbridge.event_deliveries USING btree (run_after) WHERE ((delivered_at IS NULL) AND (gave_up_at IS NULL));

CREATE INDEX events_alert ON weighbridge.events USING btree (alert_id) WHERE (alert_id IS NOT NULL);

CREATE UNIQUE INDEX events_once ON weighbridge.events USING btree (upload_id, type) WHERE (type = 'IngestionCompleteEvent'::text);

CREATE UNIQUE INDEX events_quota ON weighbridge.events USING btree (workspace_id, ((payload ->> 'user_id'::text)), ((payload ->> 'billing_month'::text)), ((payload ->> 'span'::text))) NULLS NOT DISTINCT WHERE (type = 'quota.storage.exceeded'::text);

CREATE INDEX events_upload ON weighbridge.events USING btree (upload_id);

CREATE INDEX resumable_expires ON weighbridge.resumable_uploads USING btree (expires_at);

CREATE INDEX resumable_of_spool ON weighbridge.resumable_uploads USING btree (spool_id);

CREATE INDEX resumable_whole ON weighbridge.resumable_uploads USING btree (spool_id) WHERE ((received = length) AND (upload_id IS NULL) AND (refusal_code IS NULL));

CREATE INDEX storage_reservations_expiring ON weighbridge.storage_reservations USING btree (until);

CREATE INDEX upload_fixes_original ON weighbridge.upload_fixes USING btree (original_upload, original_row);

CREATE TRIGGER trg_import_runs_guard INSTEAD OF INSERT OR DELETE ON ingest.import_runs FOR EACH ROW EXECUTE FUNCTION ingest.guard_import_runs();

CREATE TRIGGER trg_import_runs_status_guard INSTEAD OF UPDATE ON ingest.import_runs FOR EACH ROW EXECUTE FUNCTION ingest.guard_status_transition();

CREATE TRIGGER alert_on_status AFTER UPDATE OF status ON public.data_uploads FOR EACH ROW WHEN (((new.status = ANY (ARRAY['completed'::text, 'partial'::text, 'failed'::text])) AND (old.status <> new.status) AND (new.error_code IS DISTINCT FROM 'STORAGE_DROPPED'::text))) EXECUTE FUNCTION weighbridge.alert_on_status();

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON public.provider_upload_attempts FOR EACH ROW EXECUTE FUNCTION weighbridge.append_only();

CREATE TRIGGER check_site BEFORE INSERT OR UPDATE OF providers ON public.sites FOR EACH ROW EXECUTE FUNCTION weighbridge.check_site();

CREATE TRIGGER count_warnings BEFORE UPDATE OF status ON public.data_uploads FOR EACH ROW WHEN (((new.status = 'failed'::text) AND (old.status <> new.status))) EXECUTE FUNCTION weighbridge.count_warnings();

CREATE TRIGGER fill_site BEFORE INSERT ON public.sales FOR EACH ROW EXECUTE FUNCTION weighbridge.fill_site();

CREATE TRIGGER guard_delivery AFTER UPDATE OF status ON public.offline_conversion_queue FOR EACH ROW WHEN (((old.status = 'COMPLETED'::text) AND (new.status <> 'COMPLETED'::text))) EXECUTE FUNCTION weighbridge.guard_delivery();

CREATE TRIGGER guard_status BEFORE UPDATE OF status ON public.data_uploads FOR EACH ROW EXECUTE FUNCTION weighbridge.guard_status();

CREATE TRIGGER hold_preview BEFORE UPDATE OF status, preview, run_after ON public.data_uploads FOR EACH ROW WHEN ((new.preview OR old.preview)) EXECUTE FUNCTION weighbridge.hold_preview();

CREATE TRIGGER keep_dimension BEFORE DELETE ON public.ad_sets FOR EACH ROW EXECUTE FUNCTION weighbridge.keep_dimension();

CREATE TRIGGER keep_dimension BEFORE DELETE ON public.ads FOR EACH ROW EXECUTE FUNCTION weighbridge.keep_dimension();

CREATE TRIGGER keep_dimension BEFORE DELETE ON public.campaigns FOR EACH ROW EXECUTE FUNCTION weighbridge.keep_dimension();

CREATE TRIGGER leave_groups AFTER DELETE ON public.keywords REFERENCING OLD TABLE AS before_it FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.leave_groups();

CREATE TRIGGER mark_fixes AFTER UPDATE OF status ON public.data_uploads FOR EACH ROW WHEN (((new.status = ANY (ARRAY['staging_complete'::text, 'completed'::text, 'partial'::text])) AND (old.status <> new.status))) EXECUTE FUNCTION weighbridge.mark_fixes();

CREATE TRIGGER note_volumes AFTER UPDATE ON public.keywords REFERENCING OLD TABLE AS before_it NEW TABLE AS after_it FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.note_volumes();

CREATE TRIGGER queue_deleted AFTER DELETE ON public.sales REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.forget_sales();

CREATE TRIGGER queue_inserted AFTER INSERT ON public.sales REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.queue_conversions();

CREATE TRIGGER queue_truncated AFTER TRUNCATE ON public.sales FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.forget_sales();

CREATE TRIGGER queue_updated AFTER UPDATE ON public.sales REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.queue_conversions();

CREATE TRIGGER void_receipts AFTER INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.daily_metrics FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts();

CREATE TRIGGER void_receipts AFTER INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.judgments FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts();

CREATE TRIGGER void_receipts AFTER INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.keywords FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts();

CREATE TRIGGER void_receipts AFTER INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.sales FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts();

ALTER TABLE ONLY public.ad_sets
    ADD CONSTRAINT ad_sets_workspace_id_campaign_id_fkey FOREIGN KEY (workspace_id, campaign_id) REFERENCES public.campaigns(workspace_id, id);

ALTER TABLE ONLY public.ads
    ADD CONSTRAINT ads_workspace_id_ad_set_id_fkey FOREIGN KEY (workspace_id, ad_set_id) REFERENCES public.ad_sets(workspace_id, id);

ALTER TABLE ONLY public.ads
    ADD CONSTRAINT ads_workspace_id_campaign_id_fkey FOREIGN KEY (workspace_id, campaign_id) REFERENCES public.campaigns(workspace_id, id);

ALTER TABLE ONLY public.data_uploads
    ADD CONSTRAINT data_uploads_workspace_id_project_id_fkey FOREIGN KEY (workspace_id, project_id) REFERENCES public.projects(workspace_id, id);

ALTER TABLE ONLY public.judgments
    ADD CONSTRAINT judgments_workspace_id_plaintiff_id_fkey FOREIGN KEY (workspace_id, plaintiff_id) REFERENCES public.plaintiffs(workspace_id, id);

ALTER TABLE ONLY public.provider_credentials
    ADD CONSTRAINT provider_credentials_provider_key_fkey FOREIGN KEY (provider_key) REFERENCES weighbridge.providers(provider_key);

ALTER TABLE ONLY public.provider_credentials
    ADD CONSTRAINT provider_credentials_site_id_fkey FOREIGN KEY (site_id) REFERENCES public.sites(id);

ALTER TABLE ONLY public.provider_health_state
    ADD CONSTRAINT provider_health_state_site_id_fkey FOREIGN KEY (site_id) REFERENCES public.sites(id);

ALTER TABLE ONLY public.provider_upload_metrics
    ADD CONSTRAINT provider_upload_metrics_site_id_fkey FOREIGN KEY (site_id) REFERENCES public.sites(id);

ALTER TABLE ONLY public.sales
    ADD CONSTRAINT sales_workspace_id_site_id_fkey FOREIGN KEY (workspace_id, site_id) REFERENCES public.sites(workspace_id, id);

ALTER TABLE ONLY public.upload_duplicates
    ADD CONSTRAINT upload_duplicates_upload_id_fkey FOREIGN KEY (upload_id) REFERENCES public.data_uploads(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.upload_queue
    ADD CONSTRAINT upload_queue_payload_submission_id_fkey FOREIGN KEY (payload_submission_id) REFERENCES public.data_uploads(id) ON DELETE SET NULL;

ALTER TABLE ONLY weighbridge.event_deliveries
    ADD CONSTRAINT event_deliveries_event_id_fkey FOREIGN KEY (event_id) REFERENCES weighbridge.events(id) ON DELETE CASCADE;

ALTER TABLE public.ad_sets ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.ads ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.campaigns ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.daily_metrics ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.data_uploads ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.group_keywords ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.judgments ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.keyword_groups ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.keywords ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.offline_conversion_queue ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.plaintiffs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.projects ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.provider_credentials ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.provider_health_state ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.provider_upload_attempts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.provider_upload_metrics ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.sales ENABLE ROW LEVEL SECURITY;

CREATE POLICY service ON public.offline_conversion_queue TO weighbridge_deliver USING (((( SELECT weighbridge.workspace() AS workspace) IS NULL) OR (workspace_id = ( SELECT weighbridge.workspace() AS workspace))));

CREATE POLICY service ON public.provider_credentials TO weighbridge_deliver USING (((( SELECT weighbridge.workspace() AS workspace) IS NULL) OR (workspace_id = ( SELECT weighbridge.workspace() AS workspace))));

CREATE POLICY service ON public.provider_health_state TO weighbridge_deliver USING (((( SELECT weighbridge.workspace() AS workspace) IS NULL) OR (workspace_id = ( SELECT weighbridge.workspace() AS workspace))));

CREATE POLICY service ON public.provider_upload_attempts TO weighbridge_deliver USING (((( SELECT weighbridge.workspace() AS workspace) IS NULL) OR (workspace_id = ( SELECT weighbridge.workspace() AS workspace))));

CREATE POLICY service ON public.provider_upload_metrics TO weighbridge_deliver USING (((( SELECT weighbridge.workspace() AS workspace) IS NULL) OR (workspace_id = ( SELECT weighbridge.workspace() AS workspace))));

CREATE POLICY service ON public.sales TO weighbridge_deliver USING (((( SELECT weighbridge.workspace() AS workspace) IS NULL) OR (workspace_id = ( SELECT weighbridge.workspace() AS workspace))));

CREATE POLICY service ON public.sites TO weighbridge_deliver USING (((( SELECT weighbridge.workspace() AS workspace) IS NULL) OR (workspace_id = ( SELECT weighbridge.workspace() AS workspace))));

ALTER TABLE public.sites ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.storage_usage ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.token_merges ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.upload_duplicates ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.upload_queue ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.upload_rejections ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.upload_warnings ENABLE ROW LEVEL SECURITY;

CREATE POLICY workspace ON public.ad_sets USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.ads USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.campaigns USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.daily_metrics USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.data_uploads USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.group_keywords USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.judgments USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.keyword_groups USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.keywords USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.plaintiffs USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.projects USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.sales USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.sites USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.storage_usage USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.token_merges USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.upload_duplicates USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.upload_rejections USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON public.upload_warnings USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

ALTER TABLE weighbridge.confirmations ENABLE ROW LEVEL SECURITY;

ALTER TABLE weighbridge.resumable_uploads ENABLE ROW LEVEL SECURITY;

CREATE POLICY service ON weighbridge.confirmations TO weighbridge_deliver USING (((( SELECT weighbridge.workspace() AS workspace) IS NULL) OR (workspace_id = ( SELECT weighbridge.workspace() AS workspace))));

ALTER TABLE weighbridge.slots ENABLE ROW LEVEL SECURITY;

ALTER TABLE weighbridge.upload_fixes ENABLE ROW LEVEL SECURITY;

CREATE POLICY workspace ON weighbridge.resumable_uploads USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

CREATE POLICY workspace ON weighbridge.upload_fixes USING ((workspace_id = ( SELECT weighbridge.workspace() AS workspace)));

GRANT USAGE ON SCHEMA ingest TO weighbridge_tenant;

GRANT USAGE ON SCHEMA intake TO weighbridge_parse;
GRANT USAGE ON SCHEMA intake TO weighbridge_promote;
GRANT USAGE ON SCHEMA intake TO weighbridge_clean;

GRANT USAGE ON SCHEMA public TO weighbridge_intake;
GRANT USAGE ON SCHEMA public TO weighbridge_parse;
GRANT USAGE ON SCHEMA public TO weighbridge_promote;
GRANT USAGE ON SCHEMA public TO weighbridge_clean;
GRANT USAGE ON SCHEMA public TO weighbridge_announce;
GRANT USAGE ON SCHEMA public TO weighbridge_tenant;
GRANT USAGE ON SCHEMA public TO weighbridge_group;
GRANT USAGE ON SCHEMA public TO weighbridge_deliver;

GRANT USAGE ON SCHEMA staging TO weighbridge_intake;
GRANT USAGE ON SCHEMA staging TO weighbridge_parse;
GRANT USAGE ON SCHEMA staging TO weighbridge_promote;
GRANT USAGE ON SCHEMA staging TO weighbridge_clean;
GRANT USAGE ON SCHEMA staging TO weighbridge_announce;

GRANT USAGE ON SCHEMA weighbridge TO weighbridge_intake;
GRANT USAGE ON SCHEMA weighbridge TO weighbridge_parse;
GRANT USAGE ON SCHEMA weighbridge TO weighbridge_promote;
GRANT USAGE ON SCHEMA weighbridge TO weighbridge_clean;
GRANT USAGE ON SCHEMA weighbridge TO weighbridge_announce;
GRANT USAGE ON SCHEMA weighbridge TO weighbridge_tenant;
GRANT USAGE ON SCHEMA weighbridge TO weighbridge_group;
GRANT USAGE ON SCHEMA weighbridge TO weighbridge_deliver;

REVOKE ALL ON FUNCTION ingest.guard_import_runs() FROM PUBLIC;

REVOKE ALL ON FUNCTION ingest.guard_status_transition() FROM PUBLIC;

GRANT SELECT ON TABLE public.offline_conversion_queue TO weighbridge_deliver;

REVOKE ALL ON FUNCTION public.claim_offline_conversion_jobs_v2(p_site_id uuid, p_provider_key text, p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION public.claim_offline_conversion_jobs_v2(p_site_id uuid, p_provider_key text, p_limit integer) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION public.increment_provider_upload_metrics(p_site_id uuid, p_provider_key text, p_attempts integer, p_completed integer, p_failed integer, p_retry integer) FROM PUBLIC;
GRANT ALL ON FUNCTION public.increment_provider_upload_metrics(p_site_id uuid, p_provider_key text, p_attempts integer, p_completed integer, p_failed integer, p_retry integer) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION public.list_offline_conversion_groups(p_limit_groups integer) FROM PUBLIC;
GRANT ALL ON FUNCTION public.list_offline_conversion_groups(p_limit_groups integer) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION public.record_provider_outcome(p_site_id uuid, p_provider_key text, p_success boolean, p_transient boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION public.record_provider_outcome(p_site_id uuid, p_provider_key text, p_success boolean, p_transient boolean) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION public.recover_stuck_offline_conversion_jobs(p_min_age_minutes integer) FROM PUBLIC;
GRANT ALL ON FUNCTION public.recover_stuck_offline_conversion_jobs(p_min_age_minutes integer) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.abandon(p_upload uuid, p_fail boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.acquire_slots(p_site_keys text[], p_global_keys text[], p_tokens uuid[], p_per_site integer, p_per_provider integer, p_ttl interval) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.acquire_slots(p_site_keys text[], p_global_keys text[], p_tokens uuid[], p_per_site integer, p_per_provider integer, p_ttl interval) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.acting_workspace() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.advance_promotion(p_token uuid, p_entity text, p_seq bigint, p_promoted jsonb, p_promoted_rows bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.advance_promotion(p_token uuid, p_entity text, p_seq bigint, p_promoted jsonb, p_promoted_rows bigint) TO weighbridge_promote;

REVOKE ALL ON FUNCTION weighbridge.alert_on_status() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.announce_alert(p_type text, p_alert weighbridge.alerts, p_message text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.append_only() FROM PUBLIC;

GRANT INSERT,UPDATE ON TABLE public.data_uploads TO weighbridge_intake;
GRANT SELECT ON TABLE public.data_uploads TO weighbridge_parse;
GRANT SELECT,INSERT,UPDATE ON TABLE public.data_uploads TO weighbridge_promote;
GRANT SELECT ON TABLE public.data_uploads TO weighbridge_tenant;

REVOKE ALL ON FUNCTION weighbridge.batch_name(p_upload public.data_uploads) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.begin_probe(p_site uuid, p_provider text, p_for interval) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.begin_probe(p_site uuid, p_provider text, p_for interval) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.begin_promotion(p_token uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.begin_promotion(p_token uuid) TO weighbridge_promote;

REVOKE ALL ON FUNCTION weighbridge.begin_staging(p_token uuid, p_digest bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.begin_staging(p_token uuid, p_digest bytea) TO weighbridge_parse;

REVOKE ALL ON FUNCTION weighbridge.billing_month() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.blob_key(p_file_url text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.canceled() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.change_reading(p_upload uuid, p_reading jsonb, p_actor text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.check_site() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.claim_confirmations(p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.claim_confirmations(p_limit integer) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.claim_conversions(p_worker text, p_lease interval, p_batches uuid[], p_sites uuid[], p_providers text[], p_limits integer[]) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.claim_conversions(p_worker text, p_lease interval, p_batches uuid[], p_sites uuid[], p_providers text[], p_limits integer[]) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.claim_deliveries(p_worker text, p_consumers text[], p_lease interval, p_limit integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.claim_job(p_token uuid, p_worker text, p_pipelines text[], p_lease interval, p_per_workspace integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.claim_project(p_worker text, p_pipelines text[], p_lease interval, p_per_workspace integer, p_only uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.claim_replays(p_worker text, p_spool uuid, p_lease interval, p_limit integer, p_early boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.claim_upload(p_worker text, p_from text[], p_pipelines text[], p_lease interval, p_per_workspace integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.claimable_since(p_workspace uuid, p_project bigint, p_pipelines text[], p_per_workspace integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.close_attempt(p_token uuid, p_outcome text, p_error text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.close_ledger(p_batches uuid[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.count_blob(p_user uuid, p_bytes bigint, p_file_url text, p_grant uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.count_blob(p_user uuid, p_bytes bigint, p_file_url text, p_grant uuid) TO weighbridge_intake;

REVOKE ALL ON FUNCTION weighbridge.count_warnings() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.defer_upload(p_upload uuid, p_queue uuid, p_spool uuid, p_path text, p_bucket text, p_object text, p_user uuid, p_max_retries integer, p_delay interval, p_error text, p_consumers text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.defer_upload(p_upload uuid, p_queue uuid, p_spool uuid, p_path text, p_bucket text, p_object text, p_user uuid, p_max_retries integer, p_delay interval, p_error text, p_consumers text[]) TO weighbridge_intake;

GRANT SELECT ON TABLE public.sales TO weighbridge_tenant;
GRANT SELECT,INSERT,UPDATE ON TABLE public.sales TO weighbridge_intake;
GRANT SELECT,INSERT,UPDATE ON TABLE public.sales TO weighbridge_promote;
GRANT SELECT ON TABLE public.sales TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.deliverable(p_sale public.sales, p_provider text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.delivery_groups(p_most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.delivery_groups(p_most integer) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.discard_preview(p_upload uuid, p_code text, p_text text, p_actor text, p_age interval) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.discard_preview(p_upload uuid, p_code text, p_text text, p_actor text, p_age interval) TO weighbridge_clean;

REVOKE ALL ON FUNCTION weighbridge.dismiss_upload(p_upload uuid, p_actor text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.drop_replay(p_queue uuid, p_actor text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.emit(p_workspace uuid, p_upload uuid, p_type text, p_payload jsonb, p_consumers text[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.end_takeovers(p_upload public.data_uploads, p_word text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.enqueue_conversions(p_workspace uuid, p_site uuid, p_provider text, p_since timestamp with time zone, p_actor text) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.enqueue_conversions(p_workspace uuid, p_site uuid, p_provider text, p_since timestamp with time zone, p_actor text) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.enter(p_token uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.exhaust_replay(p_queue public.upload_queue, p_error text, p_consumers text[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.expire_staging(p_upload uuid, p_age interval) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.expire_staging(p_upload uuid, p_age interval) TO weighbridge_clean;

REVOKE ALL ON FUNCTION weighbridge.expired(p_provider text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.fail_delivery(p_token uuid, p_delay interval, p_error text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.fail_project(p_token uuid, p_delay interval, p_error text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.fail_replay(p_token uuid, p_delay interval, p_error text, p_counts boolean, p_consumers text[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.fail_unstored(p_upload uuid, p_code text, p_text text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.fail_upload(p_token uuid, p_code text, p_text text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.fence(p_token uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.fence(p_token uuid) TO weighbridge_parse;
GRANT ALL ON FUNCTION weighbridge.fence(p_token uuid) TO weighbridge_promote;
GRANT ALL ON FUNCTION weighbridge.fence(p_token uuid) TO weighbridge_announce;

GRANT SELECT ON TABLE public.projects TO weighbridge_tenant;
GRANT SELECT ON TABLE public.projects TO weighbridge_group;

REVOKE ALL ON FUNCTION weighbridge.fence_project(p_token uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.fill_site() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.finish_delivery(p_token uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.finish_delivery(p_token uuid) TO weighbridge_announce;

REVOKE ALL ON FUNCTION weighbridge.finish_replay(p_token uuid, p_file_url text) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.finish_replay(p_token uuid, p_file_url text) TO weighbridge_intake;

REVOKE ALL ON FUNCTION weighbridge.finish_staging(p_token uuid, p_bins jsonb, p_columns text[], p_mapping jsonb, p_dates date[], p_digest bytea, p_report jsonb, p_read_as jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.finish_staging(p_token uuid, p_bins jsonb, p_columns text[], p_mapping jsonb, p_dates date[], p_digest bytea, p_report jsonb, p_read_as jsonb) TO weighbridge_parse;

REVOKE ALL ON FUNCTION weighbridge.finish_upload(p_token uuid, p_status text, p_failed_rows bigint, p_error_code text, p_error text, p_consumers text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.finish_upload(p_token uuid, p_status text, p_failed_rows bigint, p_error_code text, p_error text, p_consumers text[]) TO weighbridge_promote;

REVOKE ALL ON FUNCTION weighbridge.forget_sales() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.give_up_unstored(p_upload uuid, p_code text, p_text text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.guard_delivery() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.guard_status() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.hand_over(p_token uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.has_jobs(p_workspace uuid, p_project bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.heartbeat(p_tokens uuid[], p_lease interval, p_ceiling interval) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.hold_preview() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.hold_upload(p_token uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.in_hand(p_upload uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.in_hand(p_upload uuid) TO weighbridge_tenant;

REVOKE ALL ON FUNCTION weighbridge.increment_interpretation_count(p_user_id uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.increment_storage_usage(p_user_id uuid, p_bytes bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.increment_storage_usage(p_user_id uuid, p_bytes bigint) TO weighbridge_intake;

REVOKE ALL ON FUNCTION weighbridge.job_in_hand(p_workspace uuid, p_project bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.keep_dimension() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.kick_project(p_project bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.kick_project(p_project bigint) TO weighbridge_tenant;

REVOKE ALL ON FUNCTION weighbridge.known_upload(p_workspace uuid, p_pipeline text, p_client uuid, p_platform text, p_project bigint, p_sha256 bytea, p_batch text, p_forced boolean, p_reading jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.known_upload(p_workspace uuid, p_pipeline text, p_client uuid, p_platform text, p_project bigint, p_sha256 bytea, p_batch text, p_forced boolean, p_reading jsonb) TO weighbridge_tenant;

REVOKE ALL ON FUNCTION weighbridge.leave_groups() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.lock_held(p_upload uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.lock_project(p_project bigint, p_actor text, p_action text) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.lock_project(p_project bigint, p_actor text, p_action text) TO weighbridge_group;

REVOKE ALL ON FUNCTION weighbridge.lose_replay(p_queue uuid, p_token uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.make_project(p_id bigint, p_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.make_project(p_id bigint, p_name text) TO weighbridge_intake;

REVOKE ALL ON FUNCTION weighbridge.mark_fixed(p_upload uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.mark_fixes() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.may_be_removed(p_workspace uuid, p_key text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.may_group(p_token uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.may_group(p_token uuid) TO weighbridge_group;

REVOKE ALL ON FUNCTION weighbridge.next_month() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.note_blob_removed(p_upload uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.note_blob_removed(p_upload uuid) TO weighbridge_clean;

REVOKE ALL ON FUNCTION weighbridge.note_columns(p_token uuid, p_columns text[], p_report jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.note_columns(p_token uuid, p_columns text[], p_report jsonb) TO weighbridge_parse;

REVOKE ALL ON FUNCTION weighbridge.note_duplicate(p_upload uuid, p_filename text) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.note_duplicate(p_upload uuid, p_filename text) TO weighbridge_intake;

REVOKE ALL ON FUNCTION weighbridge.note_grouped(p_token uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.note_grouped(p_token uuid) TO weighbridge_group;

REVOKE ALL ON FUNCTION weighbridge.note_preview(p_upload uuid, p_counts jsonb, p_at timestamp with time zone) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.note_rows_read(p_token uuid, p_rows bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.note_rows_read(p_token uuid, p_rows bigint) TO weighbridge_parse;

REVOKE ALL ON FUNCTION weighbridge.note_staged(p_token uuid, p_entity text, p_seq bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.note_staged(p_token uuid, p_entity text, p_seq bigint) TO weighbridge_parse;

REVOKE ALL ON FUNCTION weighbridge.note_volumes() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.open_attempt(p_upload uuid, p_workspace uuid, p_worker text, p_lease interval, p_per_workspace integer, p_under uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.park_deliveries(p_sites uuid[], p_providers text[], p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.park_deliveries(p_sites uuid[], p_providers text[], p_limit integer) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.project_status(p_project bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.project_status(p_project bigint) TO weighbridge_tenant;

REVOKE ALL ON FUNCTION weighbridge.promote_preview(p_upload uuid, p_actor text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.queue_conversions() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.raise_alert(p_condition text, p_subject text, p_severity text, p_message text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.receive_upload(p_workspace uuid, p_client uuid, p_platform text, p_project bigint, p_source text, p_pipeline text, p_filename text, p_file_url text, p_file_kind text, p_sha256 bytea, p_size bigint, p_created_by uuid, p_force_partial boolean, p_forced boolean, p_batch text, p_traceparent text, p_preview boolean, p_reading jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.receive_upload(p_workspace uuid, p_client uuid, p_platform text, p_project bigint, p_source text, p_pipeline text, p_filename text, p_file_url text, p_file_kind text, p_sha256 bytea, p_size bigint, p_created_by uuid, p_force_partial boolean, p_forced boolean, p_batch text, p_traceparent text, p_preview boolean, p_reading jsonb) TO weighbridge_intake;

REVOKE ALL ON FUNCTION weighbridge.recount_storage(p_keys text[], p_sizes bigint[], p_began timestamp with time zone, p_dry boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.recover(p_max_crashes integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.refuse_credentials(p_site uuid, p_provider text, p_version integer, p_code text) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.refuse_credentials(p_site uuid, p_provider text, p_version integer, p_code text) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.release_batch(p_upload uuid, p_actor text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.release_project(p_token uuid, p_pipelines text[], p_per_workspace integer, p_anyway boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.release_slots(p_tokens uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.release_slots(p_tokens uuid[]) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.release_storage(p_grant uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.release_storage(p_grant uuid) TO weighbridge_intake;

REVOKE ALL ON FUNCTION weighbridge.release_upload(p_token uuid, p_delay interval, p_failed boolean, p_error text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.requeue_deliveries(p_workspace uuid, p_sales uuid[], p_site uuid, p_provider text, p_category text, p_code text, p_actor text) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.requeue_deliveries(p_workspace uuid, p_sales uuid[], p_site uuid, p_provider text, p_category text, p_code text, p_actor text) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.rescue(p_upload uuid, p_batch text, p_episode text, p_hours double precision, p_max_crashes integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.rescue_deliveries(p_rows tid[], p_max_crashes integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.reseal_credentials(p_site uuid, p_provider text, p_version integer, p_key_id text, p_nonce bytea, p_ciphertext bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.reseal_credentials(p_site uuid, p_provider text, p_version integer, p_key_id text, p_nonce bytea, p_ciphertext bytea) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.reserve_storage(p_grant uuid, p_user uuid, p_bytes bigint, p_lasts interval, p_workspace_month bigint, p_workspace_total bigint, p_user_month bigint, p_user_total bigint, p_consumers text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.reserve_storage(p_grant uuid, p_user uuid, p_bytes bigint, p_lasts interval, p_workspace_month bigint, p_workspace_total bigint, p_user_month bigint, p_user_total bigint, p_consumers text[]) TO weighbridge_intake;

REVOKE ALL ON FUNCTION weighbridge.reset_provider(p_site uuid, p_provider text, p_actor text) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.reset_provider(p_site uuid, p_provider text, p_actor text) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.reset_staging(p_token uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.restage_preview(p_upload uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.restage_upload(p_token uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.retire_blob(p_upload uuid, p_age interval) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.retire_blob(p_upload uuid, p_age interval) TO weighbridge_clean;

REVOKE ALL ON FUNCTION weighbridge.retry_replay(p_queue uuid, p_actor text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.retry_upload(p_upload uuid, p_force_partial boolean, p_actor text, p_reading jsonb) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.set_credentials(p_site uuid, p_provider text, p_version integer, p_key_id text, p_nonce bytea, p_ciphertext bytea, p_actor text) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.set_credentials(p_site uuid, p_provider text, p_version integer, p_key_id text, p_nonce bytea, p_ciphertext bytea, p_actor text) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.set_storage_limit(p_user uuid, p_month bigint, p_total bigint, p_interpretations integer, p_actor text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.set_stored(p_upload uuid, p_file_url text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.settle_confirmation(p_site uuid, p_provider text, p_request text, p_state text, p_reasons jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.settle_confirmation(p_site uuid, p_provider text, p_request text, p_state text, p_reasons jsonb) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.settle_conversions(p_calls jsonb, p_outcomes jsonb, p_batch uuid[], p_id uuid[], p_n integer[], p_retries integer, p_first interval, p_longest interval) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.settle_conversions(p_calls jsonb, p_outcomes jsonb, p_batch uuid[], p_id uuid[], p_n integer[], p_retries integer, p_first interval, p_longest interval) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.signature(p_tokens text, p_merges jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.signature(p_tokens text, p_merges jsonb) TO weighbridge_group;

REVOKE ALL ON FUNCTION weighbridge.slots_taken(p_workspace uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.storage_standing(p_workspace_month bigint, p_workspace_total bigint, p_user_month bigint, p_user_total bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.storage_standing(p_workspace_month bigint, p_workspace_total bigint, p_user_month bigint, p_user_total bigint) TO weighbridge_tenant;

REVOKE ALL ON FUNCTION weighbridge.store_waiting(p_upload uuid, p_file_url text) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.store_waiting(p_upload uuid, p_file_url text) TO weighbridge_intake;

REVOKE ALL ON FUNCTION weighbridge.sweep_reservations() FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.sweep_reservations() TO weighbridge_clean;

REVOKE ALL ON FUNCTION weighbridge.take_interpretations(p_user uuid, p_number integer, p_limited boolean) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.take_up(p_worker text, p_from text[], p_pipelines text[], p_lease interval, p_per_workspace integer, p_max_crashes integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.take_up_project(p_worker text, p_pipelines text[], p_lease interval, p_per_workspace integer, p_only uuid, p_max_crashes integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.tell_live(p_upload public.data_uploads) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.void_receipts() FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.waiting_uploads(p_workspace uuid) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.watch_deliveries(p_ahead interval, p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.watch_deliveries(p_ahead interval, p_limit integer) TO weighbridge_deliver;

REVOKE ALL ON FUNCTION weighbridge.watch_queues(p_dead_letters integer, p_backlog integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.watch_storage(p_threshold integer, p_patience interval) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.withdraw_alert(p_condition text, p_subject text, p_message text) FROM PUBLIC;

REVOKE ALL ON FUNCTION weighbridge.workspace_figures() FROM PUBLIC;
GRANT ALL ON FUNCTION weighbridge.workspace_figures() TO weighbridge_tenant;

GRANT SELECT ON TABLE ingest.import_runs TO weighbridge_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.ad_sets TO weighbridge_promote;
GRANT SELECT ON TABLE public.ad_sets TO weighbridge_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.ads TO weighbridge_promote;
GRANT SELECT ON TABLE public.ads TO weighbridge_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.campaigns TO weighbridge_promote;
GRANT SELECT ON TABLE public.campaigns TO weighbridge_tenant;

GRANT SELECT ON TABLE public.csv_processing_jobs TO weighbridge_tenant;

GRANT SELECT,INSERT,UPDATE ON TABLE public.daily_metrics TO weighbridge_promote;
GRANT SELECT ON TABLE public.daily_metrics TO weighbridge_tenant;

GRANT SELECT ON TABLE public.group_keywords TO weighbridge_tenant;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.group_keywords TO weighbridge_group;

GRANT SELECT,INSERT,UPDATE ON TABLE public.judgments TO weighbridge_promote;
GRANT SELECT ON TABLE public.judgments TO weighbridge_tenant;

GRANT SELECT ON TABLE public.keyword_groups TO weighbridge_tenant;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.keyword_groups TO weighbridge_group;

GRANT SELECT ON TABLE public.keywords TO weighbridge_tenant;
GRANT SELECT,INSERT,UPDATE ON TABLE public.keywords TO weighbridge_promote;
GRANT SELECT ON TABLE public.keywords TO weighbridge_group;

GRANT SELECT,INSERT,UPDATE ON TABLE public.plaintiffs TO weighbridge_promote;
GRANT SELECT ON TABLE public.plaintiffs TO weighbridge_tenant;

GRANT SELECT ON TABLE public.provider_credentials TO weighbridge_deliver;

GRANT SELECT ON TABLE public.provider_health_state TO weighbridge_deliver;

GRANT SELECT ON TABLE public.provider_upload_attempts TO weighbridge_deliver;

GRANT SELECT ON TABLE public.provider_upload_metrics TO weighbridge_deliver;

GRANT SELECT ON TABLE public.sites TO weighbridge_tenant;
GRANT SELECT,INSERT,UPDATE ON TABLE public.sites TO weighbridge_intake;
GRANT SELECT ON TABLE public.sites TO weighbridge_promote;
GRANT SELECT ON TABLE public.sites TO weighbridge_deliver;

GRANT SELECT,INSERT ON TABLE public.staging_id_resolution TO weighbridge_parse;
GRANT SELECT ON TABLE public.staging_id_resolution TO weighbridge_promote;
GRANT SELECT,DELETE ON TABLE public.staging_id_resolution TO weighbridge_clean;

GRANT SELECT ON TABLE public.storage_usage TO weighbridge_tenant;

GRANT SELECT ON TABLE public.token_merges TO weighbridge_tenant;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.token_merges TO weighbridge_group;

GRANT SELECT ON TABLE public.upload_duplicates TO weighbridge_tenant;

GRANT INSERT ON TABLE public.upload_rejections TO weighbridge_parse;
GRANT SELECT,INSERT,UPDATE ON TABLE public.upload_rejections TO weighbridge_promote;
GRANT SELECT ON TABLE public.upload_rejections TO weighbridge_tenant;

GRANT INSERT ON TABLE public.upload_warnings TO weighbridge_parse;
GRANT SELECT,INSERT,UPDATE ON TABLE public.upload_warnings TO weighbridge_promote;
GRANT SELECT ON TABLE public.upload_warnings TO weighbridge_tenant;

GRANT SELECT,INSERT ON TABLE weighbridge.audit_log TO weighbridge_announce;

GRANT USAGE ON SEQUENCE weighbridge.audit_log_id_seq TO weighbridge_announce;

GRANT SELECT ON TABLE weighbridge.clock TO PUBLIC;

GRANT SELECT ON TABLE weighbridge.confirmations TO weighbridge_deliver;

GRANT USAGE ON SEQUENCE weighbridge.credential_versions TO weighbridge_deliver;

GRANT SELECT ON TABLE weighbridge.moves TO PUBLIC;

GRANT SELECT ON TABLE weighbridge.providers TO weighbridge_deliver;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE weighbridge.receipts TO weighbridge_promote;
GRANT SELECT ON TABLE weighbridge.receipts TO weighbridge_parse;

GRANT SELECT ON TABLE weighbridge.resumable_uploads TO weighbridge_tenant;
GRANT SELECT,INSERT,DELETE ON TABLE weighbridge.resumable_uploads TO weighbridge_intake;

GRANT UPDATE(spool_id) ON TABLE weighbridge.resumable_uploads TO weighbridge_intake;

GRANT UPDATE(received) ON TABLE weighbridge.resumable_uploads TO weighbridge_intake;

GRANT UPDATE(expires_at) ON TABLE weighbridge.resumable_uploads TO weighbridge_intake;

GRANT UPDATE(upload_id) ON TABLE weighbridge.resumable_uploads TO weighbridge_intake;

GRANT UPDATE(duplicate) ON TABLE weighbridge.resumable_uploads TO weighbridge_intake;

GRANT UPDATE(refusal_status) ON TABLE weighbridge.resumable_uploads TO weighbridge_intake;

GRANT UPDATE(refusal_code) ON TABLE weighbridge.resumable_uploads TO weighbridge_intake;

GRANT UPDATE(refusal_text) ON TABLE weighbridge.resumable_uploads TO weighbridge_intake;

GRANT INSERT ON TABLE weighbridge.staging_groups TO weighbridge_parse;
GRANT SELECT ON TABLE weighbridge.staging_groups TO weighbridge_promote;
GRANT SELECT,DELETE ON TABLE weighbridge.staging_groups TO weighbridge_clean;

GRANT INSERT ON TABLE weighbridge.upload_fixes TO weighbridge_parse;
GRANT SELECT ON TABLE weighbridge.upload_fixes TO weighbridge_tenant;
GRANT SELECT ON TABLE weighbridge.upload_fixes TO weighbridge_promote;

INSERT INTO weighbridge.clock DEFAULT VALUES;
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
INSERT INTO weighbridge.providers (provider_key, clicks, click_window, from_event) VALUES
    ('google_ads', '{gclid,gbraid,wbraid}', '90 days', false),
    ('google_datamanager', '{gclid,gbraid,wbraid}', '90 days', false),
    ('meta_capi', '{fbclid}', '7 days', true),
    ('tiktok_events', '{ttclid}', '28 days', true),
    ('webhook', '{gclid,gbraid,wbraid,fbclid,ttclid}', NULL, true);
INSERT INTO weighbridge.signing DEFAULT VALUES;
INSERT INTO weighbridge.identity DEFAULT VALUES;

INSERT INTO weighbridge_migrations.applied (version, name, checksum) VALUES
    (1, 'engine', '4816f273dedca46dcdc4797b9407b7fd03227ffa549abe97df065770842ea172'),
    (2, 'ads', '7a616f927cb5472b466f023f346cd4b5f5fedc5bb725050ff45f27061214c8fb'),
    (3, 'resume', 'f402f32646c8c9dc0ed187c223dff75569f559745dffde382a2b75b44d8dde08'),
    (4, 'judgments', '8f58d1327dc3b193c44af078c8aa8798a144e7077696b70cb76ef12fe3862520'),
    (5, 'operations', '8785828f51a0718b195310eb20b3989b93be03dab58a2b682eef61e28056613e'),
    (6, 'projects', '8470f6b1ab72174ed954c0159c1c4c1e3a950c9b886aa06a0bb62586bb8c7791'),
    (7, 'keywords', '0da04077d0f7ac780c97f7744407f299314b31346e92a04899ec2cea275ea4ee'),
    (8, 'storage', '4db4e706b56fe12a59019264cb5afa5d0d2a75fa19b642552799c0112ff04844'),
    (9, 'usage', '988cf16ad112618f6c9d7f41d9a46c33b46a6c47dcb3a18b5848c9eee9bfbae6'),
    (10, 'resumable', '2a4cdad3d3e831d0f26c896cd46fdd633eb1045358e630ea31b9ed5687eb2df5'),
    (11, 'delivery', 'd683d2a87ac5b13317f5e5b1b14982db271d9fc6d280610ff40f891eca30a073'),
    (12, 'slots', '0e8d86f086a04d96dd47de073a5efe249f28e8200c986c9eff3096d2cc827f00'),
    (13, 'browser', 'fdcd7440171db667fd6bdf0ed6c2ed35721ca38921082309137e175019a9a269'),
    (14, 'preview', '145273046c9ac91896be877ea27a389ddc1695494753a494beae3885845eadaa'),
    (15, 'faster_delivery', '2f4de23ca456c13dadd788af59d1e3a73c73c4bf8a84f84968d2b889e9e56784'),
    (16, 'states', '8299e8c25a712223d97909a476c78298c73de2253956c44687d7b0228cbcecb8'),
    (17, 'direct_delivery', '130d2565fc69918887fce16a6fe1b127883055284427d34d8a10f5bdc8ee83b6'),
    (18, 'lighter_claims', 'a9c7acdb67cfb076674f0f2f35b91fdef25bdc5137dea2aec27c5e6ff64cfd9e'),
    (19, 'reading', '77ce6cba98e70f67a45e828ac9947ba1aaf34eff14463fb21578868204362eea'),
    (20, 'read_options', '4448fdd6e7c65e2b575463192fcc7cc8e68db815bc81d4eaecaf13c5c9b37978'),
    (21, 'fixes', '03d50fa98abe778bfc0404880bd2670da9f9c60939ff4e95dc599d383feea76c'),
    (22, 'fixed_keys', 'c8bd04f2cdeeb3130c7dcc0be15499bac6ee305e4b0b62b530943793b81b449f');
