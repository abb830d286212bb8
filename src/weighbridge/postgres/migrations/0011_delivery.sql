-- Delivery (S4): conversions on their way to ad platforms, and the proof that they got there.
--
-- sites                      whose conversions they are, and which providers get them
-- sales                      a confirmed sale with a click id makes its queue rows in the same transaction
-- offline_conversion_queue   one row per sale and provider; its status is the only truth about it
-- provider_health_state      the circuit breaker of a group: a site and a provider
-- provider_credentials       sealed by the vault; the database never sees what is in them
-- provider_upload_metrics    counters per group
-- provider_upload_attempts   the ledger: STARTED before and FINISHED after every call
-- weighbridge.providers      what the database has to know of each provider
-- weighbridge.confirmations  requests that were accepted, and whose end is asked for later
--
-- The life of a row. QUEUED by its sale. claim_conversions makes it PROCESSING, opens an attempt (queue 'deliveries', the
-- batch is its subject and its token) and writes STARTED. No transaction is open while the provider is called.
-- settle_conversions, fenced by the attempt, writes what it said of each row, FINISHED, counters and breaker in one go.
-- recover() and recover_stuck_offline_conversion_jobs() give back what nobody settled: RETRY, and FINISHED as unknown.
--
-- Lock order: attempts, offline_conversion_queue, metrics, then health and credentials by site and provider, then what
-- groups share: alerts and weighbridge.providers.
-- Whoever touches QUEUED and RETRY rows skips locked ones, or locks nothing else.
--
-- S4's service_role is weighbridge_deliver here. Its row-level security has a policy for that role alone.

DO $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('weighbridge.roles'));
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'weighbridge_deliver') THEN
        CREATE ROLE weighbridge_deliver NOLOGIN;
    END IF;
    IF NOT pg_has_role(current_user, 'weighbridge_deliver', 'MEMBER') THEN
        GRANT weighbridge_deliver TO CURRENT_USER;
    END IF;
END $$;
GRANT USAGE ON SCHEMA weighbridge, public TO weighbridge_deliver;

-- Tables ----------------------------------------------------------------------------------------------------

CREATE TABLE weighbridge.providers (
    provider_key text PRIMARY KEY,
    clicks text[] NOT NULL, -- the click ids it takes, best first
    click_window interval, -- older clicks are refused; NULL: any age
    from_event boolean NOT NULL DEFAULT false, -- the window counts from the event, not from the click
    paused_until timestamptz -- it said that all sites together send too much
);
INSERT INTO weighbridge.providers (provider_key, clicks, click_window, from_event) VALUES
    ('google_ads', '{gclid,gbraid,wbraid}', '90 days', false),
    ('google_datamanager', '{gclid,gbraid,wbraid}', '90 days', false),
    ('meta_capi', '{fbclid}', '7 days', true),
    ('tiktok_events', '{ttclid}', '28 days', true),
    ('webhook', '{gclid,gbraid,wbraid,fbclid,ttclid}', NULL, true);

CREATE TABLE public.sites (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL DEFAULT weighbridge.workspace(),
    name text NOT NULL CHECK (length(name) BETWEEN 1 AND 200),
    providers text[] NOT NULL DEFAULT '{google_datamanager}',
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    UNIQUE (workspace_id, name),
    UNIQUE (workspace_id, id)
);

CREATE FUNCTION weighbridge.check_site() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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
CREATE TRIGGER check_site BEFORE INSERT OR UPDATE OF providers ON public.sites
    FOR EACH ROW EXECUTE FUNCTION weighbridge.check_site();

-- No address and no number by itself, whoever writes it.
CREATE FUNCTION weighbridge.only_digests(p_people jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT jsonb_typeof(p_people) = 'object' AND (SELECT coalesce(bool_and(value ~ '^[0-9a-f]{64}$'), true)
                                                      FROM jsonb_each_text(p_people))
    $$;

CREATE TABLE public.sales (
    workspace_id uuid NOT NULL DEFAULT weighbridge.workspace(),
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    site_id uuid NOT NULL,
    client_id uuid NOT NULL, -- the site again: what an upload of the pipeline conversions calls it
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
    -- SHA-256 of an e-mail address and a phone number, never these themselves
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

-- An application says site_id, an upload client_id.
CREATE FUNCTION weighbridge.fill_site() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.site_id := coalesce(NEW.site_id, NEW.client_id);
    NEW.client_id := coalesce(NEW.client_id, NEW.site_id);
    RETURN NEW;
END $$;
CREATE TRIGGER fill_site BEFORE INSERT ON public.sales FOR EACH ROW EXECUTE FUNCTION weighbridge.fill_site();

CREATE TABLE public.offline_conversion_queue (
    sale_id uuid NOT NULL,
    provider_key text NOT NULL,
    workspace_id uuid NOT NULL,
    site_id uuid NOT NULL,
    status text NOT NULL DEFAULT 'QUEUED' CHECK (status IN ('QUEUED', 'RETRY', 'PROCESSING', 'COMPLETED', 'FAILED')),
    -- what is sent, as it was when the sale last changed before it
    order_id text COLLATE "C" NOT NULL,
    click_type text NOT NULL,
    click_id text NOT NULL,
    occurred_at timestamptz NOT NULL,
    clicked_at timestamptz,
    value numeric(18,6),
    currency text,
    user_data jsonb NOT NULL DEFAULT '{}',
    expires_at timestamptz, -- refused from then on; NULL: never
    -- when and how often
    next_retry_at timestamptz,
    due_at timestamptz NOT NULL GENERATED ALWAYS AS (coalesce(next_retry_at, TIMESTAMPTZ 'epoch')) STORED, -- NULLS FIRST
    claimed_at timestamptz,
    batch_id uuid, -- of the call that it was last in
    attempt_count int NOT NULL DEFAULT 0, -- calls that it was claimed for
    retry_count int NOT NULL DEFAULT 0, -- passing troubles that count towards the limit
    crashes int NOT NULL DEFAULT 0, -- calls that nobody settled
    -- the proof, or what is in its way (PR9)
    last_error text,
    uploaded_at timestamptz,
    provider_request_id text,
    provider_error_code text,
    provider_error_category text CHECK (provider_error_category IN ('VALIDATION', 'AUTH', 'TRANSIENT', 'RATE_LIMIT')),
    code_times int NOT NULL DEFAULT 0, -- how often in a row it was this code
    duplicate boolean NOT NULL DEFAULT false, -- the provider had it already: an earlier call went through
    confirmation text CHECK (confirmation IN ('AWAITED', 'CONFIRMED', 'PARTIAL', 'REFUSED', 'UNKNOWN')),
    confirmed_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (sale_id, provider_key),
    CHECK ((status = 'COMPLETED') = (uploaded_at IS NOT NULL)),
    CHECK (status <> 'PROCESSING' OR claimed_at IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

COMMENT ON TABLE public.offline_conversion_queue IS 'One row per sale and provider. Its status is the only truth about it.';

-- Exactly the rows that may be claimed, in the order of the claim: the head of a group costs the same however long it is,
-- and rows that are put off are not walked over.
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

CREATE FUNCTION weighbridge.guard_delivery() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'conversion %: COMPLETED → % is not a move', OLD.sale_id, NEW.status USING ERRCODE = 'WB002',
        HINT = 'The provider has it, under this order id. A new sale has a new one.';
END $$;
CREATE TRIGGER guard_delivery BEFORE UPDATE OF status ON public.offline_conversion_queue
    FOR EACH ROW WHEN (OLD.status = 'COMPLETED' AND NEW.status <> 'COMPLETED')
    EXECUTE FUNCTION weighbridge.guard_delivery();

CREATE TABLE public.provider_health_state (
    site_id uuid NOT NULL REFERENCES public.sites (id),
    provider_key text NOT NULL,
    workspace_id uuid NOT NULL,
    state text NOT NULL DEFAULT 'CLOSED' CHECK (state IN ('CLOSED', 'OPEN', 'HALF_OPEN')),
    failure_count int NOT NULL DEFAULT 0,
    next_probe_at timestamptz,
    probe_limit int NOT NULL DEFAULT 5 CHECK (probe_limit > 0),
    probe_until timestamptz, -- one prober at a time; one that never returns loses its turn then
    opened_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (site_id, provider_key),
    CHECK (state = 'CLOSED' OR next_probe_at IS NOT NULL)
);

CREATE TABLE public.provider_credentials (
    site_id uuid NOT NULL REFERENCES public.sites (id),
    provider_key text NOT NULL REFERENCES weighbridge.providers (provider_key),
    workspace_id uuid NOT NULL,
    version int NOT NULL CHECK (version > 0),
    key_id text NOT NULL, -- of the vault key that sealed it
    nonce bytea NOT NULL CHECK (length(nonce) = 12),
    ciphertext bytea NOT NULL,
    refused_at timestamptz, -- the provider did not accept them: nothing more is sent with them
    refused_code text,
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    updated_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (site_id, provider_key)
);

CREATE SEQUENCE weighbridge.credential_versions AS int;
GRANT USAGE ON SEQUENCE weighbridge.credential_versions TO weighbridge_deliver;

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

CREATE FUNCTION weighbridge.append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% is a ledger: rows are added to it, never changed', TG_TABLE_NAME USING ERRCODE = 'WB002';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON public.provider_upload_attempts
    FOR EACH ROW EXECUTE FUNCTION weighbridge.append_only();

CREATE TABLE weighbridge.confirmations (
    site_id uuid NOT NULL,
    provider_key text NOT NULL,
    request_id text NOT NULL,
    workspace_id uuid NOT NULL,
    rows int NOT NULL,
    due_at timestamptz NOT NULL,
    tries int NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'AWAITED' CHECK (state IN ('AWAITED', 'CONFIRMED', 'PARTIAL', 'REFUSED', 'UNKNOWN')),
    reasons jsonb NOT NULL DEFAULT '{}', -- the provider's codes: how many rows each
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (site_id, provider_key, request_id)
);
CREATE INDEX confirmations_due ON weighbridge.confirmations (due_at) WHERE state = 'AWAITED';

-- From a sale to the queue ----------------------------------------------------------------------------------

-- What a provider is sent of a sale: the best of the click ids that it takes; no row where it takes none of them.
CREATE FUNCTION weighbridge.deliverable(p_sale public.sales, p_provider text)
    RETURNS TABLE (click_type text, click_id text, expires_at timestamptz)
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

CREATE FUNCTION weighbridge.canceled() RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT 'SALE_CANCELED: The sale is not confirmed any more.' $$;

CREATE FUNCTION weighbridge.queue_conversions() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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
CREATE TRIGGER queue_inserted AFTER INSERT ON public.sales REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.queue_conversions();
CREATE TRIGGER queue_updated AFTER UPDATE ON public.sales REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.queue_conversions();

-- Groups and claims -----------------------------------------------------------------------------------------

-- Every group with rows whose time has come. Counted are the first p_most of each, all of them where it is NULL: a group of
-- a million rows need not be counted to the last for its share.
CREATE FUNCTION weighbridge.delivery_groups(p_most int)
    RETURNS TABLE (site_id uuid, provider_key text, queued_count bigint, min_next_retry_at timestamptz,
                   min_created_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

CREATE FUNCTION public.list_offline_conversion_groups(p_limit_groups int DEFAULT 50)
    RETURNS TABLE (site_id uuid, provider_key text, queued_count bigint, min_next_retry_at timestamptz,
                   min_created_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        SELECT g.site_id, g.provider_key, g.queued_count, g.min_next_retry_at, g.min_created_at
        FROM weighbridge.delivery_groups(NULL) g
        ORDER BY g.min_next_retry_at ASC NULLS FIRST, g.min_created_at ASC, g.site_id, g.provider_key
        LIMIT p_limit_groups
    $$;

CREATE FUNCTION weighbridge.expired(p_provider text) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        SELECT format('EXPIRED: %s takes no %s older than %s days.', k.provider_key,
                      CASE WHEN k.from_event THEN 'event' ELSE 'click' END, extract(day FROM k.click_window))
        FROM providers k WHERE k.provider_key = p_provider
    $$;

-- Claims of several groups at once, the first rows of each in S4's order: a batch each, with its attempt and its STARTED
-- where p_worker is given. A group may stand there once. What has expired or was canceled is refused on the way: such rows
-- are not `live`.
CREATE FUNCTION weighbridge.claim_conversions(
    p_worker text, p_lease interval, p_batches uuid[], p_sites uuid[], p_providers text[], p_limits int[]
) RETURNS TABLE (place bigint, live boolean, sale_id uuid, order_id text, click_type text, click_id text, occurred_at timestamptz,
                 value numeric, currency text, user_data jsonb, clicked_at timestamptz, tries int, code text, code_times int,
                 claimed_at timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
BEGIN
    RETURN QUERY
    WITH head AS MATERIALIZED (
        SELECT w.place, row_number() OVER () AS turn, w.batch_id, w.provider_key, e.*
        FROM unnest(p_batches, p_sites, p_providers, p_limits) WITH ORDINALITY
            AS w (batch_id, site_id, provider_key, wanted, place)
        -- What came in the way since the run was planned: a breaker that opened, credentials that were refused, a pause.
        LEFT JOIN provider_health_state b ON b.site_id = w.site_id AND b.provider_key = w.provider_key
        LEFT JOIN provider_credentials c ON c.site_id = w.site_id AND c.provider_key = w.provider_key
        LEFT JOIN providers k ON k.provider_key = w.provider_key
        CROSS JOIN LATERAL (
            -- SKIP LOCKED: a slow claim must not queue the others.
            SELECT q.ctid AS tid, q.workspace_id, q.sale_id FROM offline_conversion_queue q
            WHERE q.site_id = w.site_id AND q.provider_key = w.provider_key AND q.status IN ('QUEUED', 'RETRY')
              AND q.due_at <= v_now
            ORDER BY q.due_at, q.created_at, q.sale_id LIMIT w.wanted
            FOR UPDATE SKIP LOCKED) e
        WHERE p_worker IS NULL
           OR (b.state IS DISTINCT FROM 'OPEN' AND c.refused_at IS NULL AND (k.paused_until <= v_now) IS NOT FALSE)
    ),
    -- What is sent is what the sale says now: it may have changed, or been canceled, while the row was in other hands.
    current AS MATERIALIZED (
        SELECT h.place, h.turn, h.batch_id, h.tid, s.status = 'CONFIRMED' AND d.click_id IS NOT NULL AS wanted,
               s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data, d.click_type, d.click_id, d.expires_at
        FROM head h
        -- LIMIT: each by its key, however many the planner expects.
        LEFT JOIN LATERAL (
            SELECT * FROM sales e WHERE e.workspace_id = h.workspace_id AND e.id = h.sale_id LIMIT 1) s ON true
        LEFT JOIN LATERAL deliverable(s, h.provider_key) d ON true
    ),
    claimed AS (
        -- By where they lie: they are locked, and cannot have moved. ANY, or a planner that expects more reads the whole table.
        UPDATE offline_conversion_queue q
        SET status = CASE WHEN h.refusal IS NULL THEN 'PROCESSING' ELSE 'FAILED' END,
            updated_at = v_now, claimed_at = CASE WHEN h.refusal IS NULL THEN v_now ELSE q.claimed_at END,
            batch_id = CASE WHEN h.refusal IS NULL THEN h.batch_id ELSE q.batch_id END,
            attempt_count = q.attempt_count + (h.refusal IS NULL)::int,
            last_error = CASE h.refusal WHEN 'EXPIRED' THEN expired(q.provider_key) WHEN 'SALE_CANCELED' THEN canceled()
                                        ELSE q.last_error END,
            provider_error_code = coalesce(h.refusal, q.provider_error_code),
            provider_error_category = CASE WHEN h.refusal IS NULL THEN q.provider_error_category ELSE 'VALIDATION' END,
            click_type = coalesce(h.click_type, q.click_type), click_id = coalesce(h.click_id, q.click_id),
            occurred_at = coalesce(h.occurred_at, q.occurred_at), clicked_at = h.clicked_at, value = h.value,
            currency = h.currency, user_data = coalesce(h.user_data, '{}'), expires_at = h.expires_at
        FROM (SELECT c.*, CASE WHEN c.wanted IS NOT TRUE THEN 'SALE_CANCELED'
                               WHEN c.expires_at <= v_now THEN 'EXPIRED' END AS refusal FROM current c) h
        WHERE q.ctid = ANY (ARRAY(SELECT tid FROM head)) AND q.ctid = h.tid
        RETURNING h.place, h.turn, h.batch_id, q.workspace_id, q.site_id, q.provider_key, q.sale_id, q.status, q.order_id,
            q.click_type, q.click_id, q.occurred_at, q.value, q.currency, q.user_data, q.clicked_at, q.attempt_count,
            q.provider_error_code, q.code_times
    ),
    counted AS MATERIALIZED (
        SELECT c.batch_id, c.workspace_id, c.site_id, c.provider_key, count(*) FILTER (WHERE c.status = 'PROCESSING') AS live,
               count(*) FILTER (WHERE c.status = 'FAILED') AS failed
        FROM claimed c WHERE p_worker IS NOT NULL GROUP BY 1, 2, 3, 4
    ),
    opened AS (
        INSERT INTO attempts (lease_token, queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)
        SELECT n.batch_id, 'deliveries', n.batch_id, n.workspace_id, p_worker, v_now, v_now, v_now + p_lease
        FROM counted n WHERE n.live > 0
    ),
    started AS (
        INSERT INTO provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, claimed_count)
        SELECT n.workspace_id, n.site_id, n.provider_key, n.batch_id, 'STARTED', n.live FROM counted n WHERE n.live > 0
    ),
    metered AS (
        INSERT INTO provider_upload_metrics AS m (site_id, provider_key, workspace_id, failed_total)
        SELECT n.site_id, n.provider_key, n.workspace_id, n.failed FROM counted n WHERE n.failed > 0
        ORDER BY n.site_id, n.provider_key
        ON CONFLICT (site_id, provider_key) DO UPDATE
        SET failed_total = m.failed_total + excluded.failed_total, updated_at = v_now
    )
    SELECT c.place, c.status = 'PROCESSING', c.sale_id, c.order_id, c.click_type, c.click_id, c.occurred_at, c.value,
           c.currency, nullif(c.user_data, '{}'), c.clicked_at, c.attempt_count - 1, c.provider_error_code, c.code_times, v_now
    FROM claimed c ORDER BY c.turn;
END $$;

CREATE FUNCTION public.claim_offline_conversion_jobs_v2(p_site_id uuid, p_provider_key text, p_limit int DEFAULT 50)
    RETURNS SETOF public.offline_conversion_queue
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- The breaker (PR5) -----------------------------------------------------------------------------------------

CREATE FUNCTION public.record_provider_outcome(
    p_site_id uuid, p_provider_key text, p_success boolean, p_transient boolean DEFAULT false
) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- The turn to probe a group whose time has come: one prober, for so long. How many rows it may send; NULL: not its turn.
CREATE FUNCTION weighbridge.begin_probe(p_site uuid, p_provider text, p_for interval) RETURNS int
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        UPDATE provider_health_state h
        SET state = 'HALF_OPEN', probe_until = weighbridge.now() + p_for, updated_at = weighbridge.now()
        WHERE h.site_id = p_site AND h.provider_key = p_provider AND h.state <> 'CLOSED'
          AND h.next_probe_at <= weighbridge.now() AND (h.probe_until IS NULL OR h.probe_until < weighbridge.now())
        RETURNING h.probe_limit
    $$;

-- Rows of open groups, put off until after the next probe, visibly. At most p_limit of each group: the group is skipped
-- whether or not all its rows say so.
CREATE FUNCTION weighbridge.park_deliveries(p_sites uuid[], p_providers text[], p_limit int) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- The end of a call ------------------------------------------------------------------------------------------

CREATE FUNCTION public.increment_provider_upload_metrics(
    p_site_id uuid, p_provider_key text, p_attempts int, p_completed int, p_failed int, p_retry int
) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- What became of calls. p_calls has an object per call (batch_id, claimed_at, duration_ms, request_id, error_code,
-- error_category, success, transient, refused, credentials, pause_seconds, unclassified), p_outcomes one per outcome of a
-- call (batch_id, n, status, code, category, error, request_id, at_least, counts, duplicate, confirm_after). Every row of a
-- call has its outcome 0, but for the sales in p_id, which have the one in p_n. Rows, ledger, counters, breaker and attempt in
-- one transaction. A call that lost its lease changes nothing; the others come back with what became of their rows.
CREATE FUNCTION weighbridge.settle_conversions(
    p_calls jsonb, p_outcomes jsonb, p_batch uuid[], p_id uuid[], p_n int[], p_retries int, p_first interval, p_longest interval
) RETURNS TABLE (batch_id uuid, completed bigint, failed bigint, retry bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_alive uuid[];
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
    RETURN QUERY
    WITH calls AS MATERIALIZED (
        SELECT c.* FROM jsonb_to_recordset(p_calls) AS c (
            batch_id uuid, claimed_at timestamptz, duration_ms int, request_id text, error_code text, error_category text)
        WHERE c.batch_id = ANY (v_alive)
    ),
    outcomes AS MATERIALIZED (
        SELECT o.* FROM jsonb_to_recordset(p_outcomes) AS o (
            batch_id uuid, n int, status text, code text, category text, error text, request_id text, at_least interval,
            counts boolean, duplicate boolean, confirm_after interval)
    ),
    said AS MATERIALIZED (
        SELECT q.ctid AS tid, o.*
        FROM calls c
        -- By the index of PROCESSING rows: a claim gives all its rows one claimed_at.
        JOIN offline_conversion_queue q ON q.claimed_at = c.claimed_at AND q.status = 'PROCESSING' AND q.batch_id = c.batch_id
        LEFT JOIN unnest(p_batch, p_id, p_n) AS u (batch_id, sale_id, n)
            ON u.batch_id = q.batch_id AND u.sale_id = q.sale_id
        JOIN outcomes o ON o.batch_id = c.batch_id AND o.n = coalesce(u.n, 0)
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
        FROM said u
        WHERE q.ctid = ANY (ARRAY(SELECT tid FROM said)) AND q.ctid = u.tid AND q.batch_id = u.batch_id
          AND (q.status = 'PROCESSING') IS TRUE
        RETURNING q.batch_id, q.status, q.site_id, q.provider_key, q.workspace_id, q.provider_request_id, u.confirm_after
    ),
    awaited AS (
        INSERT INTO confirmations AS c (site_id, provider_key, request_id, workspace_id, rows, due_at)
        SELECT w.site_id, w.provider_key, w.provider_request_id, w.workspace_id, count(*), v_now + min(w.confirm_after)
        FROM written w WHERE w.confirm_after IS NOT NULL AND w.provider_request_id IS NOT NULL
        GROUP BY 1, 2, 3, 4
        ON CONFLICT (site_id, provider_key, request_id) DO UPDATE SET rows = c.rows + excluded.rows
    ),
    counted AS MATERIALIZED (
        SELECT w.batch_id, count(*) FILTER (WHERE w.status = 'COMPLETED') AS completed,
               count(*) FILTER (WHERE w.status = 'FAILED') AS failed, count(*) FILTER (WHERE w.status = 'RETRY') AS retry
        FROM written w GROUP BY w.batch_id
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

-- The provider does not accept a site's credentials: nothing more is sent with them until they are replaced.
CREATE FUNCTION weighbridge.refuse_credentials(p_site uuid, p_provider text, p_version int, p_code text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Recovery ---------------------------------------------------------------------------------------------------

-- Rows of a call that nobody settled: what the provider made of it is not known. The same order id goes out again, and a
-- provider that has it says so. The caller has locked them. Rows that brought their workers down too often fail instead of going round for ever.
CREATE FUNCTION weighbridge.rescue_deliveries(p_rows tid[], p_max_crashes int) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- FINISHED of calls whose rows somebody has taken from them, as S4's rollback does: no row is left to say what became of it.
CREATE FUNCTION weighbridge.close_ledger(p_batches uuid[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        INSERT INTO provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, completed_count,
                                              failed_count, retry_count, error_code, error_category)
        SELECT l.workspace_id, l.site_id, l.provider_key, l.batch_id, 'FINISHED', 0, 0, 0, 'UNKNOWN_OUTCOME', 'TRANSIENT'
        FROM provider_upload_attempts l WHERE l.batch_id = ANY (p_batches) AND l.phase = 'STARTED'
        ON CONFLICT DO NOTHING
    $$;

-- By claimed_at, whatever lease there is (PR7): whoever still works on such a row has lost it, and settles nothing.
CREATE FUNCTION public.recover_stuck_offline_conversion_jobs(p_min_age_minutes int DEFAULT 15) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- As before; rows of a call whose worker is gone go back too.
CREATE OR REPLACE FUNCTION weighbridge.recover(p_max_crashes int)
    RETURNS TABLE (queue text, subject uuid, worker text, opened_at timestamptz, hours double precision, batch text,
                   gave_up boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- What is about to be lost -----------------------------------------------------------------------------------

-- Refuses what has expired where it waits, and alerts what will within p_ahead although it has waited for a while. How many
-- were refused, at most p_limit at a time.
CREATE FUNCTION weighbridge.watch_deliveries(p_ahead interval, p_limit int) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Confirmations ----------------------------------------------------------------------------------------------

-- Requests to ask about now. Taking one puts it off: whoever dies with it is followed by another.
CREATE FUNCTION weighbridge.claim_confirmations(p_limit int)
    RETURNS TABLE (site_id uuid, provider_key text, request_id text, rows int, tries int)
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        WITH head AS MATERIALIZED (
            SELECT c.site_id, c.provider_key, c.request_id FROM confirmations c
            WHERE c.state = 'AWAITED' AND c.due_at <= (SELECT weighbridge.now())
            ORDER BY c.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
        UPDATE confirmations c SET due_at = weighbridge.now() + INTERVAL '10 minutes', tries = c.tries + 1
        FROM head h WHERE (c.site_id, c.provider_key, c.request_id) = (h.site_id, h.provider_key, h.request_id)
        RETURNING c.site_id, c.provider_key, c.request_id, c.rows, c.tries
    $$;

-- What the provider made of a request. It counts rows, and does not name them: where it refused some, all say PARTIAL.
CREATE FUNCTION weighbridge.settle_confirmation(
    p_site uuid, p_provider text, p_request text, p_state text, p_reasons jsonb
) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Operators --------------------------------------------------------------------------------------------------

-- Credentials in place of what there was. p_version is from credential_versions: a row that was sealed earlier, even one
-- that was removed since, can never stand in for a later one.
CREATE FUNCTION weighbridge.set_credentials(
    p_site uuid, p_provider text, p_version int, p_key_id text, p_nonce bytea, p_ciphertext bytea, p_actor text
) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- The same values under another key of the vault.
CREATE FUNCTION weighbridge.reseal_credentials(
    p_site uuid, p_provider text, p_version int, p_key_id text, p_nonce bytea, p_ciphertext bytea
) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    UPDATE provider_credentials c SET key_id = p_key_id, nonce = p_nonce, ciphertext = p_ciphertext
    WHERE c.site_id = p_site AND c.provider_key = p_provider AND c.version = p_version;
    RETURN FOUND;
END $$;

-- Failed conversions into the queue again: those of some sales, or those of a group, of one error category or code, or all.
CREATE FUNCTION weighbridge.requeue_deliveries(
    p_workspace uuid, p_sales uuid[], p_site uuid, p_provider text, p_category text, p_code text, p_actor text
) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Sales of a site that came before it had a provider, to those that it has now, or to one of them. What has expired stays.
CREATE FUNCTION weighbridge.enqueue_conversions(
    p_workspace uuid, p_site uuid, p_provider text, p_since timestamptz, p_actor text
) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_count bigint;
BEGIN
    INSERT INTO offline_conversion_queue (workspace_id, site_id, provider_key, sale_id, order_id, click_type, click_id,
                                          occurred_at, clicked_at, value, currency, user_data, expires_at)
    SELECT s.workspace_id, s.site_id, p.provider_key, s.id, s.order_id, d.click_type, d.click_id,
           s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data, d.expires_at
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

-- Closes a breaker and lets refused credentials be tried again: an operator knows that all is well.
CREATE FUNCTION weighbridge.reset_provider(p_site uuid, p_provider text, p_actor text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Who may do what --------------------------------------------------------------------------------------------

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['sites', 'sales'] LOOP
        EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY workspace ON public.%I USING (workspace_id = (SELECT weighbridge.workspace()))', t);
        EXECUTE format('GRANT SELECT ON public.%I TO weighbridge_tenant, weighbridge_intake, weighbridge_promote', t);
    END LOOP;
    -- Of the service alone, and of one workspace where it acts for one.
    FOREACH t IN ARRAY ARRAY['offline_conversion_queue', 'provider_health_state', 'provider_credentials',
                             'provider_upload_metrics', 'provider_upload_attempts'] LOOP
        EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY service ON public.%I TO weighbridge_deliver'
                       ' USING ((SELECT weighbridge.workspace()) IS NULL OR workspace_id = (SELECT weighbridge.workspace()))', t);
        EXECUTE format('GRANT SELECT ON public.%I TO weighbridge_deliver', t);
    END LOOP;
END $$;
CREATE POLICY service ON public.sites TO weighbridge_deliver
    USING ((SELECT weighbridge.workspace()) IS NULL OR workspace_id = (SELECT weighbridge.workspace()));
CREATE POLICY service ON public.sales TO weighbridge_deliver
    USING ((SELECT weighbridge.workspace()) IS NULL OR workspace_id = (SELECT weighbridge.workspace()));
GRANT SELECT ON public.sites, public.sales, weighbridge.providers, weighbridge.confirmations TO weighbridge_deliver;
GRANT INSERT, UPDATE ON public.sites, public.sales TO weighbridge_intake;
GRANT INSERT, UPDATE ON public.sales TO weighbridge_promote;
CREATE TRIGGER void_receipts AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON public.sales
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts();

DO $$
DECLARE
    f regprocedure;
BEGIN
    FOR f IN
        SELECT p.oid::regprocedure FROM pg_proc p
        WHERE p.pronamespace IN ('weighbridge'::regnamespace, 'public'::regnamespace)
          AND p.proname = ANY (ARRAY['delivery_groups', 'list_offline_conversion_groups',
              'claim_offline_conversion_jobs_v2', 'claim_conversions', 'record_provider_outcome', 'begin_probe',
              'park_deliveries', 'increment_provider_upload_metrics', 'settle_conversions', 'refuse_credentials',
              'rescue_deliveries', 'recover_stuck_offline_conversion_jobs', 'watch_deliveries', 'claim_confirmations',
              'settle_confirmation', 'set_credentials', 'reseal_credentials', 'requeue_deliveries', 'reset_provider', 'enqueue_conversions',
              'expired'])
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO weighbridge_deliver', f);
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION weighbridge.expired(text), weighbridge.rescue_deliveries(tid[], int) FROM weighbridge_deliver;
REVOKE EXECUTE ON FUNCTION weighbridge.queue_conversions(), weighbridge.check_site(), weighbridge.fill_site(),
    weighbridge.guard_delivery(), weighbridge.append_only(), weighbridge.deliverable(public.sales, text), weighbridge.canceled(),
    weighbridge.close_ledger(uuid[]) FROM PUBLIC;
ALTER TABLE weighbridge.confirmations ENABLE ROW LEVEL SECURITY;
CREATE POLICY service ON weighbridge.confirmations TO weighbridge_deliver
    USING ((SELECT weighbridge.workspace()) IS NULL OR workspace_id = (SELECT weighbridge.workspace()));
