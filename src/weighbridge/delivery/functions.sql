-- Delivery: conversions to ad platforms, with every call in a ledger.
--
-- Tables
--   sites                      owners of sales, and the providers that receive their conversions
--   sales                      a confirmed sale with a click id creates its queue rows in the same transaction
--   offline_conversion_queue   one row per sale and provider; the source of truth for its status
--   provider_health_state      the circuit breaker of a group: a site and a provider
--   provider_credentials       encrypted by the vault; the database never sees the values
--   provider_upload_metrics    counters per group
--   provider_upload_attempts   the ledger: STARTED before and FINISHED after every call
--   providers                  properties of each provider that the database needs
--   confirmations              accepted requests whose result the provider reports later
--   slots                      calls in flight, if Redis is not used
--
-- The life of a row
--   QUEUED → PROCESSING → COMPLETED | FAILED | RETRY → PROCESSING …
--   The triggers on sales queue it. claim_conversions makes it PROCESSING, opens an attempt (queue 'deliveries'; the
--   batch is its subject and its token) and writes STARTED. No transaction is open while the provider is called.
--   settle_conversions, fenced by the attempt, writes the outcome of each row, FINISHED, counters and breaker in one
--   transaction. recover() and recover_stuck_offline_conversion_jobs() return rows that were never settled: RETRY,
--   and FINISHED with an unknown outcome.
--
-- A waiting row has the data of its sale (fresh): the triggers on sales keep it so. The claim reads the sale again
-- only if that may not be so: the row was in a call, was refused, or was queued while its sale may have been
-- changing. All rows of a batch have one claimed_at, a microsecond apart from that of the next batch, so that a
-- settlement finds them by the index of PROCESSING rows.
--
-- Lock order: attempts, offline_conversion_queue, metrics, then health and credentials by site and provider, then
-- alerts and providers, which groups share. Code that changes QUEUED, RETRY and FAILED rows skips locked rows, or locks nothing
-- else. Functions that serve several workspaces wait for no row or counter of a group: they skip what another transaction has
-- locked, and it is done later. acquire_slots takes an advisory lock per key, in the order of their hashes, and waits for no other lock
-- after that. release_slots takes none; it locks rows in the order of the primary key. A process that freezes before
-- its commit is disconnected after two seconds; others wait for at most three.

-- From a sale to the queue -----------------------------------------------------------------------------------

-- The providers of a site must exist; they are stored once each, sorted.
CREATE OR REPLACE FUNCTION weighbridge.check_site() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_unknown text;
BEGIN
    SELECT string_agg(p, ', ') INTO v_unknown
    FROM unnest(NEW.providers) p WHERE NOT EXISTS (SELECT FROM providers k WHERE k.provider_key = p);
    IF v_unknown IS NOT NULL THEN
        RAISE EXCEPTION 'site %: there is no provider %', NEW.name, v_unknown USING ERRCODE = 'check_violation',
            HINT = 'The table weighbridge.providers lists the known providers.';
    END IF;
    NEW.providers := ARRAY(SELECT DISTINCT p FROM unnest(NEW.providers) p ORDER BY p);
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION weighbridge.check_site() FROM PUBLIC;
CREATE OR REPLACE TRIGGER check_site BEFORE INSERT OR UPDATE OF providers ON public.sites
    FOR EACH ROW EXECUTE FUNCTION weighbridge.check_site();

-- Applications set site_id, uploads set client_id: both are the site.
CREATE OR REPLACE FUNCTION weighbridge.fill_site() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    NEW.site_id := coalesce(NEW.site_id, NEW.client_id);
    NEW.client_id := coalesce(NEW.client_id, NEW.site_id);
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION weighbridge.fill_site() FROM PUBLIC;
CREATE OR REPLACE TRIGGER fill_site BEFORE INSERT ON public.sales
    FOR EACH ROW EXECUTE FUNCTION weighbridge.fill_site();

-- The click id of a sale that a provider accepts, the best of several, and when it expires; no row if it accepts none.
CREATE OR REPLACE FUNCTION weighbridge.accepted_click(p_sale public.sales, p_provider text)
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
REVOKE ALL ON FUNCTION weighbridge.accepted_click(public.sales, text) FROM PUBLIC;

-- The error text of a conversion whose sale is no longer confirmed.
CREATE OR REPLACE FUNCTION weighbridge.canceled_text() RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT 'SALE_CANCELED: The sale is no longer confirmed.' $$;
REVOKE ALL ON FUNCTION weighbridge.canceled_text() FROM PUBLIC;

-- Queues the conversions of new and changed sales, and refuses those of canceled ones.
CREATE OR REPLACE FUNCTION weighbridge.queue_conversions() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        -- No longer confirmed: not sent, and operators cannot requeue it. A row that is in a call is refused by the
        -- next claim, if it returns to the queue.
        UPDATE public.offline_conversion_queue q
        SET status = 'FAILED', provider_error_code = 'SALE_CANCELED', provider_error_category = 'VALIDATION',
            last_error = canceled_text(), updated_at = weighbridge.now()
        FROM changed s
        WHERE s.status <> 'CONFIRMED' AND q.sale_id = s.id AND q.workspace_id = s.workspace_id
          AND q.status IN ('QUEUED', 'RETRY', 'FAILED')
          AND q.provider_error_code IS DISTINCT FROM 'SALE_CANCELED';
        UPDATE public.offline_conversion_queue q
        SET status = 'QUEUED', next_retry_at = NULL, provider_error_code = NULL, provider_error_category = NULL,
            last_error = NULL, code_times = 0, updated_at = weighbridge.now()
        FROM changed s
        WHERE s.status = 'CONFIRMED' AND q.sale_id = s.id AND q.workspace_id = s.workspace_id AND q.status = 'FAILED'
          AND q.provider_error_code = 'SALE_CANCELED';
        -- Waiting rows get the new data; rows that were refused for the old data are tried again.
        UPDATE public.offline_conversion_queue q
        SET status = CASE q.status WHEN 'FAILED' THEN 'QUEUED' ELSE q.status END,
            next_retry_at = CASE q.status WHEN 'FAILED' THEN NULL ELSE q.next_retry_at END,
            retry_count = CASE q.status WHEN 'FAILED' THEN 0 ELSE q.retry_count END,
            click_type = d.click_type, click_id = d.click_id, occurred_at = s.occurred_at, clicked_at = s.clicked_at,
            value = s.value, currency = s.currency, user_data = s.user_data, expires_at = d.expires_at,
            updated_at = weighbridge.now()
        FROM changed s
        JOIN public.offline_conversion_queue o ON o.sale_id = s.id AND o.workspace_id = s.workspace_id
        CROSS JOIN LATERAL accepted_click(s, o.provider_key) d
        WHERE s.status = 'CONFIRMED' AND q.sale_id = o.sale_id AND q.provider_key = o.provider_key
          AND (q.status IN ('QUEUED', 'RETRY') OR q.status = 'FAILED' AND q.provider_error_category = 'VALIDATION'
               AND (q.provider_error_code <> 'EXPIRED' OR d.expires_at > weighbridge.now()))
          AND (q.click_type, q.click_id, q.occurred_at, q.clicked_at, q.value, q.currency, q.user_data, q.expires_at)
              IS DISTINCT FROM (d.click_type, d.click_id, s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data,
                                d.expires_at);
    END IF;
    INSERT INTO public.offline_conversion_queue (workspace_id, site_id, provider_key, sale_id, order_id, click_type, click_id,
                                          occurred_at, clicked_at, value, currency, user_data, expires_at)
    SELECT s.workspace_id, s.site_id, p.provider_key, s.id, s.order_id, d.click_type, d.click_id,
           s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data, d.expires_at
    FROM changed s
    JOIN public.sites t ON t.workspace_id = s.workspace_id AND t.id = s.site_id
    CROSS JOIN LATERAL unnest(t.providers) AS p (provider_key)
    CROSS JOIN LATERAL accepted_click(s, p.provider_key) d
    WHERE s.status = 'CONFIRMED'
    ORDER BY s.created_at, s.line, s.order_id
    ON CONFLICT (sale_id, provider_key) DO NOTHING;
    IF FOUND THEN
        PERFORM pg_notify('weighbridge_deliver', '');
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION weighbridge.queue_conversions() FROM PUBLIC;
CREATE OR REPLACE TRIGGER queue_inserted AFTER INSERT ON public.sales REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.queue_conversions();
CREATE OR REPLACE TRIGGER queue_updated AFTER UPDATE ON public.sales REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.queue_conversions();

-- Marks the queue rows of deleted sales: the claim reads the sale again, and refuses the conversion.
CREATE OR REPLACE FUNCTION weighbridge.note_deleted_sales() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        UPDATE public.offline_conversion_queue q SET fresh = false WHERE q.status IN ('QUEUED', 'RETRY');
    ELSE
        UPDATE public.offline_conversion_queue q SET fresh = false FROM deleted s
        WHERE q.sale_id = s.id AND q.workspace_id = s.workspace_id AND q.status IN ('QUEUED', 'RETRY');
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION weighbridge.note_deleted_sales() FROM PUBLIC;
CREATE OR REPLACE TRIGGER queue_deleted AFTER DELETE ON public.sales REFERENCING OLD TABLE AS deleted
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.note_deleted_sales();
CREATE OR REPLACE TRIGGER queue_truncated AFTER TRUNCATE ON public.sales
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.note_deleted_sales();

-- Queues sales of a site that are older than its providers, for all of them or for one. Expired ones are not queued. A sale may
-- be changing right now: the claim reads it again.
CREATE OR REPLACE FUNCTION weighbridge.enqueue_conversions(
    p_workspace uuid, p_site uuid, p_provider text, p_since timestamptz, p_actor text
) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_count bigint;
BEGIN
    INSERT INTO public.offline_conversion_queue (workspace_id, site_id, provider_key, sale_id, order_id, click_type, click_id,
                                          occurred_at, clicked_at, value, currency, user_data, expires_at, fresh)
    SELECT s.workspace_id, s.site_id, p.provider_key, s.id, s.order_id, d.click_type, d.click_id,
           s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data, d.expires_at, false
    FROM public.sales s
    JOIN public.sites t ON t.workspace_id = s.workspace_id AND t.id = s.site_id
    CROSS JOIN LATERAL unnest(t.providers) AS p (provider_key)
    CROSS JOIN LATERAL accepted_click(s, p.provider_key) d
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
REVOKE ALL ON FUNCTION weighbridge.enqueue_conversions(uuid, uuid, text, timestamptz, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.enqueue_conversions(uuid, uuid, text, timestamptz, text) TO weighbridge_deliver;

-- COMPLETED is final: the provider has the conversion.
CREATE OR REPLACE FUNCTION weighbridge.guard_delivery() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'conversion %: COMPLETED → % is not an allowed transition', OLD.sale_id, NEW.status
        USING ERRCODE = 'WB002',
        HINT = 'The provider has this order id. A new sale needs a new order id.';
END $$;
REVOKE ALL ON FUNCTION weighbridge.guard_delivery() FROM PUBLIC;
-- AFTER: a BEFORE trigger would lock each row once more, and compute due_at again.
CREATE OR REPLACE TRIGGER guard_delivery AFTER UPDATE OF status ON public.offline_conversion_queue
    FOR EACH ROW WHEN (OLD.status = 'COMPLETED' AND NEW.status <> 'COMPLETED')
    EXECUTE FUNCTION weighbridge.guard_delivery();

-- Plan -------------------------------------------------------------------------------------------------------

-- Every group with rows that are due. Counts the first p_most rows of each, or all where it is NULL: a group of a million rows
-- need not be counted completely for its share.
CREATE OR REPLACE FUNCTION weighbridge.delivery_groups(p_most int)
    RETURNS TABLE (site_id uuid, provider_key text, queued_count bigint, min_next_retry_at timestamptz,
                   min_created_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        -- A loose index scan: one probe per group, however many rows each has.
        WITH RECURSIVE present (site_id, provider_key) AS (
            (SELECT q.site_id, q.provider_key FROM public.offline_conversion_queue q
             WHERE q.status IN ('QUEUED', 'RETRY') ORDER BY q.site_id, q.provider_key LIMIT 1)
            UNION ALL
            SELECT n.site_id, n.provider_key
            FROM present p CROSS JOIN LATERAL (
                SELECT q.site_id, q.provider_key FROM public.offline_conversion_queue q
                WHERE q.status IN ('QUEUED', 'RETRY') AND (q.site_id, q.provider_key) > (p.site_id, p.provider_key)
                ORDER BY q.site_id, q.provider_key LIMIT 1) n
        )
        SELECT p.site_id, p.provider_key, h.queued, h.min_next_retry_at, h.min_created_at
        FROM present p
        CROSS JOIN LATERAL (
            SELECT count(*) AS queued, min(e.next_retry_at) AS min_next_retry_at, min(e.created_at) AS min_created_at
            FROM (SELECT nullif(q.due_at, TIMESTAMPTZ 'epoch') AS next_retry_at, q.created_at FROM public.offline_conversion_queue q
                  WHERE q.site_id = p.site_id AND q.provider_key = p.provider_key AND q.status IN ('QUEUED', 'RETRY')
                    AND q.due_at <= (SELECT weighbridge.now())
                  ORDER BY q.due_at, q.created_at, q.sale_id LIMIT p_most) e
        ) h
        WHERE h.queued > 0
    $$;
REVOKE ALL ON FUNCTION weighbridge.delivery_groups(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.delivery_groups(int) TO weighbridge_deliver;

-- The groups with rows that are due, the longest overdue first.
CREATE OR REPLACE FUNCTION public.list_offline_conversion_groups(p_limit_groups int DEFAULT 50)
    RETURNS TABLE (site_id uuid, provider_key text, queued_count bigint, min_next_retry_at timestamptz,
                   min_created_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        SELECT g.site_id, g.provider_key, g.queued_count, g.min_next_retry_at, g.min_created_at
        FROM weighbridge.delivery_groups(NULL) g
        ORDER BY g.min_next_retry_at ASC NULLS FIRST, g.min_created_at ASC, g.site_id, g.provider_key
        LIMIT p_limit_groups
    $$;
REVOKE ALL ON FUNCTION public.list_offline_conversion_groups(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.list_offline_conversion_groups(int) TO weighbridge_deliver;

-- Slots ------------------------------------------------------------------------------------------------------

-- A slot of both keys, or of neither, for each of the tokens in their order. Returns the tokens that have one. p_per_provider
-- 0: no limit for all sites together. A slot is a leased row, not a count: releasing twice does not free another's slot, and the
-- rows of a stopped process are reused after their expiry. Rows are numbered from 1, so no key can exceed its limit.
CREATE OR REPLACE FUNCTION weighbridge.acquire_slots(
    p_site_keys text[], p_global_keys text[], p_tokens uuid[], p_per_site int, p_per_provider int, p_ttl interval
) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET lock_timeout = '3s'
    -- The table is small and has many dead rows: the planner must not choose a sequential scan.
    SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
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
        SELECT w.token, w.site_key, CASE WHEN p_per_provider > 0 THEN w.global_key END AS global_key, w.request_no,
               row_number() OVER (PARTITION BY w.site_key ORDER BY w.request_no) AS turn
        FROM unnest(p_tokens, p_site_keys, p_global_keys) WITH ORDINALITY AS w (token, site_key, global_key, request_no)
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
            -- These numbers contain as many free slots as can be granted.
            SELECT i AS slot, row_number() OVER () AS turn
            FROM generate_series(1, least(a.most, coalesce(cardinality(h.slots), 0) + a.times)::int) i
            WHERE h.slots IS NULL OR i <> ALL (h.slots)
        ) n
        -- The limit may have been lowered: slots above it count until they are released.
        WHERE n.turn <= a.most - coalesce(cardinality(h.slots), 0)
    ), at_site AS MATERIALIZED (
        -- A request without a slot of its provider may precede another of its site, which then gets none either.
        SELECT w.token, w.site_key, w.global_key, f.slot,
               row_number() OVER (PARTITION BY w.global_key ORDER BY w.request_no) AS turn
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
REVOKE ALL ON FUNCTION weighbridge.acquire_slots(text[], text[], uuid[], int, int, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.acquire_slots(text[], text[], uuid[], int, int, interval) TO weighbridge_deliver;

-- Slots that are no longer held are ignored.
CREATE OR REPLACE FUNCTION weighbridge.release_slots(p_tokens uuid[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET lock_timeout = '3s'
    SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
    AS $$
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '2s', true);
    DELETE FROM slots s
    WHERE (s.key, s.slot, s.token) IN (SELECT o.key, o.slot, o.token FROM slots o
                                       WHERE o.token = ANY (p_tokens)
                                       ORDER BY o.key, o.slot FOR UPDATE);
END $$;
REVOKE ALL ON FUNCTION weighbridge.release_slots(uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.release_slots(uuid[]) TO weighbridge_deliver;

-- Claim ------------------------------------------------------------------------------------------------------

-- The error text of a conversion that is older than its provider accepts.
CREATE OR REPLACE FUNCTION weighbridge.expired_text(p_provider text) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        SELECT format('EXPIRED: %s does not accept %s older than %s days.', k.provider_key,
                      CASE WHEN k.from_event THEN 'events' ELSE 'clicks' END, extract(day FROM k.click_window))
        FROM providers k WHERE k.provider_key = p_provider
    $$;
REVOKE ALL ON FUNCTION weighbridge.expired_text(text) FROM PUBLIC;

-- Adds to the counters of groups; an array that is NULL adds nothing. A group may be listed more than once.
-- settle_conversions does the same in its own statement, which is faster.
CREATE OR REPLACE FUNCTION weighbridge.add_provider_metrics(
    p_sites uuid[], p_providers text[], p_attempts int[], p_completed int[], p_failed int[], p_retry int[]
) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        INSERT INTO public.provider_upload_metrics AS m (site_id, provider_key, workspace_id, attempts_total, completed_total,
                                                  failed_total, retry_total)
        SELECT s.id, c.provider_key, s.workspace_id, coalesce(sum(c.attempts), 0), coalesce(sum(c.completed), 0),
               coalesce(sum(c.failed), 0), coalesce(sum(c.retry), 0)
        FROM unnest(p_sites, p_providers, p_attempts, p_completed, p_failed, p_retry)
             AS c (site_id, provider_key, attempts, completed, failed, retry)
        CROSS JOIN LATERAL (SELECT t.id, t.workspace_id FROM public.sites t WHERE t.id = c.site_id OFFSET 0) s -- not all sites
        GROUP BY 1, 2, 3 ORDER BY 1, 2
        ON CONFLICT (site_id, provider_key) DO UPDATE
        SET attempts_total = m.attempts_total + excluded.attempts_total,
            completed_total = m.completed_total + excluded.completed_total,
            failed_total = m.failed_total + excluded.failed_total,
            retry_total = m.retry_total + excluded.retry_total, updated_at = weighbridge.now()
    $$;
REVOKE ALL ON FUNCTION weighbridge.add_provider_metrics(uuid[], text[], int[], int[], int[], int[]) FROM PUBLIC;

-- Counts failed conversions that were not part of a call: one for each element, in the counters of its site and provider.
CREATE OR REPLACE FUNCTION weighbridge.count_failed_deliveries(p_sites uuid[], p_providers text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    PERFORM add_provider_metrics(p_sites, p_providers, NULL, NULL, array_fill(1, ARRAY[coalesce(cardinality(p_sites), 0)]), NULL);
END $$;
REVOKE ALL ON FUNCTION weighbridge.count_failed_deliveries(uuid[], text[]) FROM PUBLIC;

-- Claims the first due rows of several groups: a batch each, with its attempt and its STARTED where p_worker is given. A group
-- may be listed once. Expired and canceled rows are refused: they are not `live`, and are returned first. The first row
-- of all has the time of the claim: claimed_at of a batch is that time and a microsecond for each place before its own.
CREATE OR REPLACE FUNCTION weighbridge.claim_conversions(
    p_worker text, p_lease interval, p_batches uuid[], p_sites uuid[], p_providers text[], p_limits int[]
) RETURNS TABLE (place bigint, live boolean, sale_id uuid, order_id text, click_type text, click_id text, occurred_at timestamptz,
                 value numeric, currency text, user_data jsonb, clicked_at timestamptz, tries int, code text, code_times int,
                 claimed_at timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET jit = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_tids tid[]; -- the locked rows, in the order of the claim
    v_places bigint[]; -- the place of the request that each row is for
    v_may_differ boolean[]; -- whether each row may differ from its sale
    v_refused bigint[]; -- the places of rows that are refused
BEGIN
    SELECT array_agg(e.tid), array_agg(w.place), array_agg(NOT e.fresh OR (e.expires_at <= v_now) IS TRUE)
    INTO v_tids, v_places, v_may_differ
    FROM unnest(p_sites, p_providers, p_limits) WITH ORDINALITY AS w (site_id, provider_key, wanted, place)
    -- Since the run was planned a breaker may have opened, credentials may have been refused, a pause may have begun.
    LEFT JOIN public.provider_health_state b ON b.site_id = w.site_id AND b.provider_key = w.provider_key
    LEFT JOIN public.provider_credentials c ON c.site_id = w.site_id AND c.provider_key = w.provider_key
    LEFT JOIN providers k ON k.provider_key = w.provider_key
    CROSS JOIN LATERAL (
        -- SKIP LOCKED: a slow claim must not queue the others.
        SELECT q.ctid AS tid, q.expires_at,
               q.fresh AND q.provider_error_code IS NULL
               AND (q.created_at > k.changed_at + INTERVAL '1 hour') IS NOT FALSE AS fresh
        FROM public.offline_conversion_queue q
        WHERE q.site_id = w.site_id AND q.provider_key = w.provider_key AND q.status IN ('QUEUED', 'RETRY')
          AND q.due_at <= v_now
        ORDER BY q.due_at, q.created_at, q.sale_id LIMIT w.wanted
        FOR UPDATE SKIP LOCKED) e
    WHERE p_worker IS NULL
       OR (b.state IS DISTINCT FROM 'OPEN' AND c.refused_at IS NULL AND (k.paused_until <= v_now) IS NOT FALSE);

    IF true = ANY (v_may_differ) THEN
        -- The current data of the sale is sent: it may have changed, or been canceled, since the row was queued or claimed.
        WITH compared AS MATERIALIZED (
            SELECT h.tid, h.place, h.turn, r.refusal, s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data,
                   d.click_type, d.click_id, d.expires_at,
                   r.refusal IS NOT NULL
                   OR (q.click_type, q.click_id, q.occurred_at, q.clicked_at, q.value, q.currency, q.user_data, q.expires_at)
                      IS DISTINCT FROM (d.click_type, d.click_id, s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data,
                                        d.expires_at) AS changed
            FROM unnest(v_tids, v_places, v_may_differ) WITH ORDINALITY AS h (tid, place, may_differ, turn)
            JOIN public.offline_conversion_queue q ON q.ctid = h.tid
            LEFT JOIN public.sales s ON s.workspace_id = q.workspace_id AND s.id = q.sale_id
            LEFT JOIN LATERAL accepted_click(s, q.provider_key) d ON true
            CROSS JOIN LATERAL (
                SELECT CASE WHEN (s.status = 'CONFIRMED' AND d.click_id IS NOT NULL) IS NOT TRUE THEN 'SALE_CANCELED'
                            WHEN d.expires_at <= v_now THEN 'EXPIRED' END AS refusal) r
            WHERE h.may_differ
        ),
        counters AS MATERIALIZED (
            SELECT m.site_id, m.provider_key FROM public.provider_upload_metrics m
            WHERE p_worker IS NOT NULL AND (m.site_id, m.provider_key) IN (
                SELECT p_sites[l.place], p_providers[l.place] FROM compared l WHERE l.refusal IS NOT NULL)
            ORDER BY m.site_id, m.provider_key FOR NO KEY UPDATE SKIP LOCKED
        ),
        -- Another transaction has locked the counters of these: rows that are to be refused stay in the queue.
        uncounted AS MATERIALIZED (
            SELECT r.place FROM (SELECT DISTINCT l.place FROM compared l WHERE l.refusal IS NOT NULL) r
            WHERE p_worker IS NOT NULL
              AND EXISTS (SELECT FROM public.provider_upload_metrics m
                          WHERE m.site_id = p_sites[r.place] AND m.provider_key = p_providers[r.place])
              AND NOT EXISTS (SELECT FROM counters k
                              WHERE k.site_id = p_sites[r.place] AND k.provider_key = p_providers[r.place])
        ),
        corrected AS (
            UPDATE public.offline_conversion_queue q
            SET status = CASE WHEN l.refusal IS NULL THEN q.status ELSE 'FAILED' END, updated_at = v_now, fresh = false,
                last_error = CASE l.refusal WHEN 'EXPIRED' THEN expired_text(q.provider_key) WHEN 'SALE_CANCELED' THEN canceled_text()
                                            ELSE q.last_error END,
                provider_error_code = coalesce(l.refusal, q.provider_error_code),
                provider_error_category = CASE WHEN l.refusal IS NULL THEN q.provider_error_category ELSE 'VALIDATION' END,
                click_type = coalesce(l.click_type, q.click_type), click_id = coalesce(l.click_id, q.click_id),
                occurred_at = coalesce(l.occurred_at, q.occurred_at), clicked_at = l.clicked_at, value = l.value,
                currency = l.currency, user_data = coalesce(l.user_data, '{}'), expires_at = l.expires_at
            FROM compared l
            WHERE q.ctid = l.tid AND l.changed
              AND (l.refusal IS NULL OR l.place NOT IN (SELECT u.place FROM uncounted u))
            RETURNING q.ctid AS tid, l.place, l.turn, l.refusal
        ),
        batch_rows AS (
            SELECT h.tid, h.place, h.turn, NULL AS refusal
            FROM unnest(v_tids, v_places, v_may_differ) WITH ORDINALITY AS h (tid, place, may_differ, turn) WHERE NOT h.may_differ
            UNION ALL
            SELECT l.tid, l.place, l.turn, NULL FROM compared l WHERE NOT l.changed
            UNION ALL
            SELECT m.tid, m.place, m.turn, m.refusal FROM corrected m
        )
        SELECT array_agg(h.tid ORDER BY h.turn) FILTER (WHERE h.refusal IS NULL),
               array_agg(h.place ORDER BY h.turn) FILTER (WHERE h.refusal IS NULL),
               array_agg(h.place) FILTER (WHERE h.refusal IS NOT NULL)
        INTO v_tids, v_places, v_refused FROM batch_rows h;
        IF p_worker IS NOT NULL THEN
            PERFORM count_failed_deliveries(array_agg(p_sites[r.place]), array_agg(p_providers[r.place]))
            FROM unnest(v_refused) AS r (place);
        END IF;
        RETURN QUERY SELECT r.place, false, NULL::uuid, NULL, NULL, NULL, NULL::timestamptz, NULL::numeric, NULL, NULL::jsonb,
                            NULL::timestamptz, NULL::int, NULL, NULL::int, v_now
                     FROM unnest(v_refused) AS r (place);
    END IF;

    IF p_worker IS NOT NULL THEN
        WITH counted AS MATERIALIZED (
            SELECT p_batches[h.place] AS batch_id, t.workspace_id, t.id AS site_id, p_providers[h.place] AS provider_key, h.live
            FROM (SELECT u.place, count(*) AS live FROM unnest(v_places) AS u (place) GROUP BY u.place) h
            JOIN public.sites t ON t.id = p_sites[h.place]
        ),
        opened AS (
            INSERT INTO attempts (lease_token, queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)
            SELECT n.batch_id, 'deliveries', n.batch_id, n.workspace_id, p_worker, v_now, v_now, v_now + p_lease FROM counted n
        )
        INSERT INTO public.provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, claimed_count)
        SELECT n.workspace_id, n.site_id, n.provider_key, n.batch_id, 'STARTED', n.live FROM counted n;
    END IF;

    RETURN QUERY
    -- By ctid: the rows are locked, so they cannot have moved.
    UPDATE public.offline_conversion_queue q
    SET status = 'PROCESSING', updated_at = v_now, fresh = false, batch_id = p_batches[h.place],
        claimed_at = v_now + (h.place - 1) * INTERVAL '1 microsecond', attempt_count = q.attempt_count + 1,
        -- Unchanged. Without it Postgres would look up the expression of due_at for each row.
        next_retry_at = q.next_retry_at
    FROM unnest(v_tids, v_places) WITH ORDINALITY AS h (tid, place, turn)
    WHERE q.ctid = h.tid
    RETURNING h.place, true, q.sale_id, q.order_id, q.click_type, q.click_id, q.occurred_at, q.value, q.currency,
        nullif(q.user_data, '{}'), q.clicked_at, q.attempt_count - 1, q.provider_error_code, q.code_times,
        CASE h.turn WHEN 1 THEN v_now END;
END $$;
REVOKE ALL ON FUNCTION weighbridge.claim_conversions(text, interval, uuid[], uuid[], text[], int[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.claim_conversions(text, interval, uuid[], uuid[], text[], int[]) TO
    weighbridge_deliver;

-- Claims rows of one group without an attempt, for callers outside the service.
CREATE OR REPLACE FUNCTION public.claim_offline_conversion_jobs_v2(p_site_id uuid, p_provider_key text, p_limit int DEFAULT 50)
    RETURNS SETOF public.offline_conversion_queue
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_batch uuid := gen_random_uuid();
    v_claimed timestamptz;
BEGIN
    SELECT max(c.claimed_at) INTO v_claimed FROM claim_conversions(
        NULL, NULL, ARRAY[v_batch], ARRAY[p_site_id], ARRAY[p_provider_key], ARRAY[p_limit]) c;
    RETURN QUERY
    SELECT q.* FROM public.offline_conversion_queue q
    WHERE q.claimed_at = v_claimed AND q.status = 'PROCESSING' AND q.batch_id = v_batch
    ORDER BY q.due_at, q.created_at, q.sale_id;
END $$;
REVOKE ALL ON FUNCTION public.claim_offline_conversion_jobs_v2(uuid, text, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.claim_offline_conversion_jobs_v2(uuid, text, int) TO weighbridge_deliver;

-- Breaker ----------------------------------------------------------------------------------------------------

-- Updates the circuit breaker of a group after a call. It opens after five transient failures, or one while it is HALF_OPEN; a
-- success closes it. Returns its state.
CREATE OR REPLACE FUNCTION public.record_provider_outcome(
    p_site_id uuid, p_provider_key text, p_success boolean, p_transient boolean DEFAULT false
) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_now timestamptz := weighbridge.now();
    v_probe timestamptz := v_now + INTERVAL '5 minutes' + random() * INTERVAL '60 seconds';
    v_before public.provider_health_state;
    v_state text;
    v_group text := p_site_id || '/' || p_provider_key;
BEGIN
    INSERT INTO public.provider_health_state (site_id, provider_key, workspace_id)
    SELECT s.id, p_provider_key, s.workspace_id FROM public.sites s WHERE s.id = p_site_id
    ON CONFLICT DO NOTHING;
    SELECT * INTO v_before FROM public.provider_health_state h
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
    -- A validation failure does not change the provider's health; it only ends the probe.
    IF p_success OR p_transient OR v_before.probe_until IS NOT NULL THEN
        UPDATE public.provider_health_state h
        SET state = v_state, probe_until = NULL, updated_at = v_now,
            failure_count = CASE WHEN p_success THEN 0 WHEN p_transient THEN h.failure_count + 1 ELSE h.failure_count END,
            next_probe_at = CASE WHEN p_success THEN NULL
                                 -- Calls that were in flight when it opened do not postpone the probe.
                                 WHEN p_transient AND v_state = 'OPEN' AND h.state <> 'OPEN' THEN v_probe
                                 ELSE h.next_probe_at END,
            opened_at = CASE WHEN p_success THEN NULL ELSE coalesce(h.opened_at, CASE WHEN v_state = 'OPEN' THEN v_now END) END
        WHERE h.site_id = p_site_id AND h.provider_key = p_provider_key
          AND (p_transient OR (h.state, h.failure_count, h.probe_until) IS DISTINCT FROM (v_state, 0, NULL::timestamptz));
    END IF;
    IF v_state = 'OPEN' AND v_before.state = 'CLOSED' THEN
        PERFORM raise_alert('circuit_open', v_group, 'WARNING',
            format('[DELIVERY] %s of site %s does not respond correctly: deliveries stop until a probe succeeds',
                   p_provider_key, p_site_id));
    ELSIF v_state = 'CLOSED' AND v_before.state <> 'CLOSED' THEN
        PERFORM withdraw_alert('circuit_open', v_group, format('[DELIVERY] %s of site %s responds again', p_provider_key, p_site_id));
    END IF;
    RETURN v_state;
END $$;
REVOKE ALL ON FUNCTION public.record_provider_outcome(uuid, text, boolean, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.record_provider_outcome(uuid, text, boolean, boolean) TO weighbridge_deliver;

-- Begins the probe of a group that is due: one prober at a time, for a limited time. Returns how many rows it may send;
-- NULL: no probe is due, or another worker probes.
CREATE OR REPLACE FUNCTION weighbridge.begin_probe(p_site uuid, p_provider text, p_for interval) RETURNS int
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        UPDATE public.provider_health_state h
        SET state = 'HALF_OPEN', probe_until = weighbridge.now() + p_for, updated_at = weighbridge.now()
        WHERE h.site_id = p_site AND h.provider_key = p_provider AND h.state <> 'CLOSED'
          AND h.next_probe_at <= weighbridge.now() AND (h.probe_until IS NULL OR h.probe_until < weighbridge.now())
        RETURNING h.probe_limit
    $$;
REVOKE ALL ON FUNCTION weighbridge.begin_probe(uuid, text, interval) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.begin_probe(uuid, text, interval) TO weighbridge_deliver;

-- Postpones rows of open groups until after the next probe, so that they show the reason. At most p_limit of each
-- group: the group is skipped even if not all its rows show it.
CREATE OR REPLACE FUNCTION weighbridge.park_deliveries(p_sites uuid[], p_providers text[], p_limit int) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        WITH parked AS (
            UPDATE public.offline_conversion_queue q
            SET next_retry_at = h.next_probe_at + random() * INTERVAL '30 seconds', last_error = 'CIRCUIT_OPEN',
                updated_at = weighbridge.now()
            FROM unnest(p_sites, p_providers) AS g (site_id, provider_key)
            JOIN public.provider_health_state h USING (site_id, provider_key)
            CROSS JOIN LATERAL (
                SELECT e.ctid AS tid FROM public.offline_conversion_queue e
                WHERE e.site_id = g.site_id AND e.provider_key = g.provider_key AND e.status IN ('QUEUED', 'RETRY')
                  AND e.due_at <= (SELECT weighbridge.now())
                ORDER BY e.due_at, e.created_at, e.sale_id LIMIT p_limit
                FOR UPDATE OF e SKIP LOCKED) e
            WHERE q.ctid = e.tid AND h.state <> 'CLOSED' AND h.next_probe_at > weighbridge.now()
            RETURNING 1
        )
        SELECT count(*) FROM parked
    $$;
REVOKE ALL ON FUNCTION weighbridge.park_deliveries(uuid[], text[], int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.park_deliveries(uuid[], text[], int) TO weighbridge_deliver;

-- Settle -----------------------------------------------------------------------------------------------------

-- Adds to the counters of a group.
CREATE OR REPLACE FUNCTION public.increment_provider_upload_metrics(
    p_site_id uuid, p_provider_key text, p_attempts int, p_completed int, p_failed int, p_retry int
) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        SELECT add_provider_metrics(ARRAY[p_site_id], ARRAY[p_provider_key], ARRAY[p_attempts], ARRAY[p_completed],
                                    ARRAY[p_failed], ARRAY[p_retry])
    $$;
REVOKE ALL ON FUNCTION public.increment_provider_upload_metrics(uuid, text, int, int, int, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.increment_provider_upload_metrics(uuid, text, int, int, int, int) TO weighbridge_deliver;

-- The provider does not accept the credentials of a site: they are not used until they are replaced.
CREATE OR REPLACE FUNCTION weighbridge.refuse_credentials(p_site uuid, p_provider text, p_version int, p_code text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    UPDATE public.provider_credentials c SET refused_at = weighbridge.now(), refused_code = p_code
    WHERE c.site_id = p_site AND c.provider_key = p_provider AND c.version = p_version AND c.refused_at IS NULL;
    IF FOUND THEN
        PERFORM raise_alert('credentials_refused', p_site || '/' || p_provider, 'ERROR',
            format('[DELIVERY] %s refuses the credentials of site %s (%s): deliveries stop until they are replaced',
                   p_provider, p_site, coalesce(p_code, 'no reason given')));
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.refuse_credentials(uuid, text, int, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.refuse_credentials(uuid, text, int, text) TO weighbridge_deliver;

-- The calls of p_batches that cannot be settled without waiting: another transaction has locked a row, or the counters, the
-- breaker or the credentials of the group. Locks counters, breakers and credentials of the others.
CREATE OR REPLACE FUNCTION weighbridge.held_calls(p_calls jsonb, p_batches uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET jit = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
    AS $$
DECLARE
    v_marked tid[];
    v_free tid[];
    v_held uuid[] := '{}';
BEGIN
    -- xmax is 0, or the claim that wrote this version of a row, unless another transaction has locked or changed it since.
    -- Locking all rows here would write each of them once more.
    v_marked := ARRAY(
        SELECT q.ctid FROM jsonb_to_recordset(p_calls) AS c (batch_id uuid, claimed_at timestamptz)
        JOIN public.offline_conversion_queue q
          ON q.claimed_at = c.claimed_at AND q.status = 'PROCESSING' AND q.batch_id = c.batch_id
        WHERE c.batch_id = ANY (p_batches) AND q.xmax <> '0'::xid AND q.xmax <> q.xmin);
    IF v_marked <> '{}' THEN
        v_free := ARRAY(SELECT q.ctid FROM public.offline_conversion_queue q WHERE q.ctid = ANY (v_marked)
                        FOR NO KEY UPDATE SKIP LOCKED);
        v_held := ARRAY(SELECT DISTINCT q.batch_id FROM public.offline_conversion_queue q
                        WHERE q.ctid = ANY (v_marked) AND q.ctid <> ALL (v_free));
    END IF;
    RETURN (
        WITH calls AS MATERIALIZED (
            SELECT l.batch_id, l.site_id, l.provider_key, c.refused,
                   NOT c.success OR h.state <> 'CLOSED' OR h.failure_count > 0 AS unhealthy
            FROM jsonb_to_recordset(p_calls) AS c (batch_id uuid, success boolean, refused boolean)
            JOIN public.provider_upload_attempts l ON l.batch_id = c.batch_id AND l.phase = 'STARTED'
            LEFT JOIN public.provider_health_state h ON h.site_id = l.site_id AND h.provider_key = l.provider_key
            WHERE c.batch_id = ANY (p_batches)
        ),
        counters AS MATERIALIZED (
            SELECT m.site_id, m.provider_key FROM public.provider_upload_metrics m
            WHERE (m.site_id, m.provider_key) IN (SELECT c.site_id, c.provider_key FROM calls c)
            ORDER BY m.site_id, m.provider_key FOR NO KEY UPDATE SKIP LOCKED
        ),
        breakers AS MATERIALIZED (
            SELECT h.site_id, h.provider_key FROM public.provider_health_state h
            WHERE (h.site_id, h.provider_key) IN (SELECT c.site_id, c.provider_key FROM calls c WHERE c.unhealthy)
            ORDER BY h.site_id, h.provider_key FOR UPDATE SKIP LOCKED
        ),
        credentials AS MATERIALIZED (
            SELECT k.site_id, k.provider_key FROM public.provider_credentials k
            WHERE (k.site_id, k.provider_key) IN (SELECT c.site_id, c.provider_key FROM calls c WHERE c.refused)
            ORDER BY k.site_id, k.provider_key FOR NO KEY UPDATE SKIP LOCKED
        )
        SELECT v_held || coalesce(array_agg(c.batch_id), '{}') FROM calls c
        WHERE EXISTS (SELECT FROM public.provider_upload_metrics m WHERE m.site_id = c.site_id AND m.provider_key = c.provider_key)
              AND (c.site_id, c.provider_key) NOT IN (SELECT k.site_id, k.provider_key FROM counters k)
           OR c.unhealthy
              AND EXISTS (SELECT FROM public.provider_health_state h WHERE h.site_id = c.site_id AND h.provider_key = c.provider_key)
              AND (c.site_id, c.provider_key) NOT IN (SELECT b.site_id, b.provider_key FROM breakers b)
           OR c.refused
              AND EXISTS (SELECT FROM public.provider_credentials k WHERE k.site_id = c.site_id AND k.provider_key = c.provider_key)
              AND (c.site_id, c.provider_key) NOT IN (SELECT k.site_id, k.provider_key FROM credentials k)
    );
END $$;
REVOKE ALL ON FUNCTION weighbridge.held_calls(jsonb, uuid[]) FROM PUBLIC;

-- Writes the results of calls. p_calls has an object per call (batch_id, claimed_at, duration_ms, request_id, error_code,
-- error_category, success, transient, refused, credentials, pause_seconds, unclassified), p_outcomes one per outcome of a call
-- (batch_id, n, status, code, category, error, request_id, at_least, counts, duplicate, confirm_after). Every row of a call has
-- its outcome 0, except the sales in p_id, which have the one in p_n. Rows, ledger, counters, breaker and attempt change in one
-- transaction. A call that lost its lease changes nothing; the others are returned with the counts of their rows. It waits for no
-- lock: calls of other workspaces are settled in the same transaction. A call that would have to wait changes nothing, and is
-- returned with NULL as its counts.
CREATE OR REPLACE FUNCTION weighbridge.settle_conversions(
    p_calls jsonb, p_outcomes jsonb, p_batch uuid[], p_id uuid[], p_n int[], p_retries int, p_first interval, p_longest interval
) RETURNS TABLE (batch_id uuid, completed bigint, failed bigint, retry bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp SET jit = off
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_open uuid[];
    v_alive uuid[]; -- those that are settled now
    v_held uuid[];
    v_numbers jsonb; -- batch and sale → number of the outcome, where it is not 0
    v_call record;
BEGIN
    v_open := ARRAY(SELECT a.lease_token FROM attempts a
                    WHERE a.lease_token = ANY (ARRAY(SELECT (c ->> 'batch_id')::uuid FROM jsonb_array_elements(p_calls) c))
                      AND a.queue = 'deliveries' AND a.closed_at IS NULL);
    -- KEY SHARE, as in fence(): recover() takes FOR UPDATE, and skips calls that are being settled.
    v_alive := ARRAY(SELECT a.lease_token FROM attempts a
                     WHERE a.lease_token = ANY (v_open) AND a.closed_at IS NULL
                     ORDER BY a.lease_token FOR KEY SHARE SKIP LOCKED);
    v_held := held_calls(p_calls, v_alive);
    IF v_held <> '{}' THEN
        v_alive := ARRAY(SELECT u.token FROM unnest(v_alive) AS u (token) WHERE u.token <> ALL (v_held));
    END IF;
    IF cardinality(v_alive) < cardinality(v_open) THEN
        RETURN QUERY SELECT u.token, NULL::bigint, NULL::bigint, NULL::bigint
                     FROM unnest(v_open) AS u (token) WHERE u.token <> ALL (v_alive);
    END IF;
    IF v_alive = '{}' THEN
        RETURN;
    END IF;
    SELECT jsonb_object_agg(u.batch_id::text || u.sale_id, u.n) INTO v_numbers FROM unnest(p_batch, p_id, p_n) AS u (batch_id, sale_id, n);
    RETURN QUERY
    WITH calls AS MATERIALIZED (
        SELECT c.* FROM jsonb_to_recordset(p_calls) AS c (
            batch_id uuid, claimed_at timestamptz, duration_ms int, request_id text, error_code text, error_category text)
        WHERE c.batch_id = ANY (v_alive)
    ),
    outcomes AS MATERIALIZED (
        SELECT row_number() OVER () AS outcome_no, o.* FROM jsonb_to_recordset(p_outcomes) AS o (
            batch_id uuid, n int, status text, code text, category text, error text, request_id text, at_least interval,
            counts boolean, duplicate boolean, confirm_after interval)
    ),
    written AS (
        UPDATE public.offline_conversion_queue q
        SET status = CASE WHEN u.status = 'RETRY' AND u.counts AND q.retry_count >= p_retries THEN 'FAILED' ELSE u.status END,
            updated_at = v_now,
            uploaded_at = CASE WHEN u.status = 'COMPLETED' THEN v_now END,
            provider_request_id = coalesce(u.request_id, q.provider_request_id),
            provider_error_code = u.code, provider_error_category = u.category,
            last_error = CASE WHEN u.status = 'RETRY' AND u.counts AND q.retry_count >= p_retries
                THEN format('%s Failed attempts: %s.', coalesce(u.error, 'The call failed.'), q.retry_count + 1)
                ELSE u.error END,
            code_times = CASE WHEN u.code = q.provider_error_code THEN q.code_times + 1 ELSE (u.code IS NOT NULL)::int END,
            -- Full jitter: rows that failed together are not retried together.
            next_retry_at = CASE WHEN u.status = 'RETRY' THEN v_now + coalesce(u.at_least, '0') + random() * CASE
                WHEN u.counts THEN least(p_longest, p_first * power(2, least(q.retry_count, 20))) ELSE INTERVAL '10 seconds' END END,
            retry_count = q.retry_count + coalesce(u.counts, false)::int,
            duplicate = coalesce(u.duplicate, false),
            confirmation = CASE WHEN u.confirm_after IS NOT NULL THEN 'AWAITED' END
        -- By the index of PROCESSING rows: all rows of a batch have one claimed_at, and no others have it.
        FROM calls c JOIN outcomes u ON u.batch_id = c.batch_id
        WHERE q.claimed_at = c.claimed_at AND q.status = 'PROCESSING' AND q.batch_id = c.batch_id
          AND u.n = CASE WHEN v_numbers IS NULL THEN 0 ELSE coalesce((v_numbers ->> (q.batch_id::text || q.sale_id))::int, 0) END
        RETURNING u.outcome_no, q.status
    ),
    counted_outcomes AS MATERIALIZED (
        SELECT w.outcome_no, count(*) FILTER (WHERE w.status = 'COMPLETED') AS completed,
               count(*) FILTER (WHERE w.status = 'FAILED') AS failed, count(*) FILTER (WHERE w.status = 'RETRY') AS retry
        FROM written w GROUP BY w.outcome_no
    ),
    counted AS MATERIALIZED (
        SELECT u.batch_id, sum(e.completed)::bigint AS completed, sum(e.failed)::bigint AS failed, sum(e.retry)::bigint AS retry
        FROM counted_outcomes e JOIN outcomes u USING (outcome_no) GROUP BY u.batch_id
    ),
    awaited AS (
        INSERT INTO confirmations AS c (site_id, provider_key, request_id, workspace_id, rows, due_at)
        SELECT l.site_id, l.provider_key, u.request_id, l.workspace_id, sum(e.completed + e.failed + e.retry), v_now + min(u.confirm_after)
        FROM counted_outcomes e
        JOIN outcomes u USING (outcome_no)
        JOIN public.provider_upload_attempts l ON l.batch_id = u.batch_id AND l.phase = 'STARTED'
        WHERE u.confirm_after IS NOT NULL AND u.request_id IS NOT NULL
        GROUP BY 1, 2, 3, 4
        ON CONFLICT (site_id, provider_key, request_id) DO UPDATE SET rows = c.rows + excluded.rows
    ),
    finished AS (
        INSERT INTO public.provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, completed_count,
                                              failed_count, retry_count, duration_ms, provider_request_id, error_code,
                                              error_category)
        SELECT l.workspace_id, l.site_id, l.provider_key, l.batch_id, 'FINISHED', coalesce(n.completed, 0),
               coalesce(n.failed, 0), coalesce(n.retry, 0), c.duration_ms, c.request_id, c.error_code, c.error_category
        FROM calls c
        JOIN public.provider_upload_attempts l ON l.batch_id = c.batch_id AND l.phase = 'STARTED'
        LEFT JOIN counted n ON n.batch_id = c.batch_id
        RETURNING site_id, provider_key, workspace_id, completed_count, failed_count, retry_count
    ),
    metered AS (
        INSERT INTO public.provider_upload_metrics AS m (site_id, provider_key, workspace_id, attempts_total, completed_total,
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
        JOIN public.provider_upload_attempts l ON l.batch_id = (c ->> 'batch_id')::uuid AND l.phase = 'STARTED'
        LEFT JOIN public.provider_health_state h USING (site_id, provider_key)
        WHERE l.batch_id = ANY (v_alive)
          AND (NOT (c ->> 'success')::boolean OR h.state <> 'CLOSED' OR h.failure_count > 0)
        ORDER BY l.site_id, l.provider_key
    LOOP
        PERFORM public.record_provider_outcome(v_call.site_id, v_call.provider_key, v_call.success, v_call.transient);
        IF v_call.refused THEN
            PERFORM refuse_credentials(v_call.site_id, v_call.provider_key, v_call.credentials, v_call.code);
        END IF;
    END LOOP;
    -- Rows that groups share are locked after all groups, or two settlements could deadlock.
    FOR v_call IN
        SELECT l.provider_key, max((c ->> 'pause_seconds')::float8) AS pause_seconds,
               bool_or((c ->> 'unclassified')::boolean) AS unclassified,
               max(c ->> 'error_code') FILTER (WHERE (c ->> 'unclassified')::boolean) AS code
        FROM jsonb_array_elements(p_calls) c
        JOIN public.provider_upload_attempts l ON l.batch_id = (c ->> 'batch_id')::uuid AND l.phase = 'STARTED'
        WHERE l.batch_id = ANY (v_alive) AND ((c ->> 'unclassified')::boolean OR c ->> 'pause_seconds' IS NOT NULL)
        GROUP BY l.provider_key ORDER BY l.provider_key
    LOOP
        IF v_call.unclassified THEN
            PERFORM raise_alert('provider_unclassified', v_call.provider_key, 'WARNING',
                format('[DELIVERY] %s returned the unknown error %s for conversions: they are retried',
                       v_call.provider_key, coalesce(v_call.code, 'without a code')));
        END IF;
        -- SKIP LOCKED: another settlement is just writing a pause, perhaps one of another workspace.
        UPDATE providers k
        SET paused_until = greatest(k.paused_until, v_now + v_call.pause_seconds * INTERVAL '1 second')
        WHERE k.ctid = ANY (ARRAY(SELECT o.ctid FROM providers o WHERE o.provider_key = v_call.provider_key
                                  FOR NO KEY UPDATE SKIP LOCKED)) AND v_call.pause_seconds > 0;
    END LOOP;
END $$;
REVOKE ALL ON FUNCTION weighbridge.settle_conversions(jsonb, jsonb, uuid[], uuid[], int[], int, interval, interval) FROM
    PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.settle_conversions(jsonb, jsonb, uuid[], uuid[], int[], int, interval, interval) TO
    weighbridge_deliver;

-- The ledger is append-only.
CREATE OR REPLACE FUNCTION weighbridge.append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION '% is a ledger: rows cannot be changed or deleted', TG_TABLE_NAME USING ERRCODE = 'WB002';
END $$;
REVOKE ALL ON FUNCTION weighbridge.append_only() FROM PUBLIC;
CREATE OR REPLACE TRIGGER append_only BEFORE UPDATE OR DELETE ON public.provider_upload_attempts
    FOR EACH ROW EXECUTE FUNCTION weighbridge.append_only();

-- Recovery ---------------------------------------------------------------------------------------------------

-- Rows of a call that was never settled: it is unknown whether the provider has them. They are sent again under the
-- same order id, and a provider that has them reports a duplicate. The caller has locked them. Rows that crashed their
-- workers too often fail.
CREATE OR REPLACE FUNCTION weighbridge.recover_deliveries(p_rows tid[], p_max_crashes int) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_now timestamptz := weighbridge.now();
    v_count bigint;
    v_sites uuid[]; -- of the calls that end now
    v_providers text[];
    v_failed int[];
    v_retry int[];
BEGIN
    WITH recovered AS (
        UPDATE public.offline_conversion_queue q
        SET status = CASE WHEN q.crashes + 1 > p_max_crashes THEN 'FAILED' ELSE 'RETRY' END,
            next_retry_at = NULL, crashes = q.crashes + 1, updated_at = v_now,
            last_error = CASE WHEN q.crashes + 1 > p_max_crashes
                THEN 'WORKER_CRASHED: Workers stopped repeatedly during calls with this conversion. It is not known whether the provider has it.'
                ELSE 'UNKNOWN_OUTCOME: The worker stopped during the call. The conversion is sent again under the same order id.' END,
            provider_error_code = CASE WHEN q.crashes + 1 > p_max_crashes THEN 'WORKER_CRASHED' ELSE 'UNKNOWN_OUTCOME' END,
            provider_error_category = 'TRANSIENT', code_times = 1
        WHERE q.ctid = ANY (p_rows) AND (q.status = 'PROCESSING') IS TRUE
        RETURNING q.batch_id, q.status
    ),
    counted AS (
        SELECT r.batch_id, count(*) FILTER (WHERE r.status = 'FAILED') AS failed,
               count(*) FILTER (WHERE r.status = 'RETRY') AS retry
        FROM recovered r GROUP BY r.batch_id
    ),
    finished AS (
        INSERT INTO public.provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, completed_count,
                                              failed_count, retry_count, duration_ms, error_code, error_category)
        SELECT l.workspace_id, l.site_id, l.provider_key, l.batch_id, 'FINISHED', 0, n.failed, n.retry,
               least(EXTRACT(EPOCH FROM v_now - l.created_at) * 1000, 2147483647), 'UNKNOWN_OUTCOME', 'TRANSIENT'
        FROM counted n JOIN public.provider_upload_attempts l ON l.batch_id = n.batch_id AND l.phase = 'STARTED'
        ON CONFLICT DO NOTHING
        RETURNING site_id, provider_key, failed_count, retry_count
    )
    SELECT (SELECT count(*) FROM recovered), array_agg(f.site_id), array_agg(f.provider_key), array_agg(f.failed_count),
           array_agg(f.retry_count)
    INTO v_count, v_sites, v_providers, v_failed, v_retry FROM finished f;
    PERFORM add_provider_metrics(v_sites, v_providers, array_fill(1, ARRAY[coalesce(cardinality(v_sites), 0)]), NULL, v_failed,
                                 v_retry);
    IF v_count > 0 THEN
        PERFORM pg_notify('weighbridge_deliver', '');
    END IF;
    RETURN v_count;
END $$;
REVOKE ALL ON FUNCTION weighbridge.recover_deliveries(tid[], int) FROM PUBLIC;

-- Locks the rows of batches and the counters of their groups, without waiting. Returns the batches of which it has all.
CREATE OR REPLACE FUNCTION weighbridge.lock_batches(p_batches uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_rows tid[];
    v_groups text[];
BEGIN
    v_rows := ARRAY(SELECT q.ctid FROM public.offline_conversion_queue q
                    WHERE q.status = 'PROCESSING' AND q.batch_id = ANY (p_batches) ORDER BY q.sale_id FOR UPDATE SKIP LOCKED);
    v_groups := ARRAY(
        SELECT m.site_id || m.provider_key FROM public.provider_upload_metrics m
        WHERE (m.site_id, m.provider_key) IN (SELECT l.site_id, l.provider_key FROM public.provider_upload_attempts l
                                              WHERE l.batch_id = ANY (p_batches) AND l.phase = 'STARTED')
        ORDER BY m.site_id, m.provider_key FOR UPDATE SKIP LOCKED);
    RETURN ARRAY(
        SELECT b.id FROM unnest(p_batches) AS b (id)
        WHERE NOT EXISTS (SELECT FROM public.offline_conversion_queue q
                          WHERE q.status = 'PROCESSING' AND q.batch_id = b.id AND q.ctid <> ALL (v_rows))
          AND NOT EXISTS (SELECT FROM public.provider_upload_attempts l
                          JOIN public.provider_upload_metrics m USING (site_id, provider_key)
                          WHERE l.batch_id = b.id AND l.phase = 'STARTED' AND m.site_id || m.provider_key <> ALL (v_groups)));
END $$;
REVOKE ALL ON FUNCTION weighbridge.lock_batches(uuid[]) FROM PUBLIC;

-- Writes FINISHED for calls that have lost their rows: no row is left whose outcome they could report.
CREATE OR REPLACE FUNCTION weighbridge.close_ledger(p_batches uuid[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        INSERT INTO public.provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, completed_count,
                                              failed_count, retry_count, error_code, error_category)
        SELECT l.workspace_id, l.site_id, l.provider_key, l.batch_id, 'FINISHED', 0, 0, 0, 'UNKNOWN_OUTCOME', 'TRANSIENT'
        FROM public.provider_upload_attempts l WHERE l.batch_id = ANY (p_batches) AND l.phase = 'STARTED'
        ON CONFLICT DO NOTHING
    $$;
REVOKE ALL ON FUNCTION weighbridge.close_ledger(uuid[]) FROM PUBLIC;

-- Selects rows by claimed_at and ignores leases: a worker that still has such a row loses it, and its settlement changes nothing.
CREATE OR REPLACE FUNCTION public.recover_stuck_offline_conversion_jobs(p_min_age_minutes int DEFAULT 15) RETURNS int
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_before timestamptz := weighbridge.now() - make_interval(mins => p_min_age_minutes);
    v_attempts uuid[];
    v_rows tid[];
    v_count int;
BEGIN
    -- Attempts first, in the order of locks. A call that is being settled right now is not stuck.
    SELECT array_agg(l.lease_token) INTO v_attempts FROM (
        SELECT a.lease_token FROM attempts a
        WHERE a.queue = 'deliveries' AND a.closed_at IS NULL AND a.lease_token IN (
            SELECT q.batch_id FROM public.offline_conversion_queue q
            WHERE q.status = 'PROCESSING' AND coalesce(q.claimed_at, q.updated_at) < v_before)
        ORDER BY a.lease_token FOR UPDATE SKIP LOCKED) l;
    v_attempts := lock_batches(v_attempts);
    SELECT array_agg(s.tid) INTO v_rows FROM (
        SELECT q.ctid AS tid FROM public.offline_conversion_queue q
        WHERE q.status = 'PROCESSING' AND coalesce(q.claimed_at, q.updated_at) < v_before
          AND (q.batch_id = ANY (v_attempts) OR NOT EXISTS (
                   SELECT FROM attempts a WHERE a.lease_token = q.batch_id AND a.closed_at IS NULL))
        ORDER BY q.sale_id FOR UPDATE SKIP LOCKED) s;
    UPDATE attempts a SET closed_at = weighbridge.now(), outcome = 'expired' WHERE a.lease_token = ANY (v_attempts);
    v_count := coalesce(recover_deliveries(v_rows, 2147483646), 0);
    PERFORM close_ledger(v_attempts);
    RETURN v_count;
END $$;
REVOKE ALL ON FUNCTION public.recover_stuck_offline_conversion_jobs(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION public.recover_stuck_offline_conversion_jobs(int) TO weighbridge_deliver;

-- Expiry -----------------------------------------------------------------------------------------------------

-- Refuses waiting rows that have expired, at most p_limit of them, and returns how many. Raises an alert about rows that will
-- expire within p_ahead although they have waited for a while.
CREATE OR REPLACE FUNCTION weighbridge.watch_deliveries(p_ahead interval, p_limit int) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_now timestamptz := weighbridge.now();
    v_refused bigint;
    v_sites uuid[]; -- of the refused rows
    v_providers text[];
    v_soon bigint;
    v_first timestamptz;
BEGIN
    WITH expiring AS MATERIALIZED (
        SELECT q.ctid AS tid, q.site_id, q.provider_key FROM public.offline_conversion_queue q
        WHERE q.status IN ('QUEUED', 'RETRY') AND q.expires_at <= v_now
        ORDER BY q.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ),
    counters AS MATERIALIZED (
        SELECT m.site_id, m.provider_key FROM public.provider_upload_metrics m
        WHERE (m.site_id, m.provider_key) IN (SELECT e.site_id, e.provider_key FROM expiring e)
        ORDER BY m.site_id, m.provider_key FOR NO KEY UPDATE SKIP LOCKED
    ),
    -- Another transaction has locked the counters of these groups: their rows are refused later.
    uncounted AS MATERIALIZED (
        SELECT m.site_id, m.provider_key
        FROM (SELECT DISTINCT e.site_id, e.provider_key FROM expiring e) g
        JOIN public.provider_upload_metrics m ON m.site_id = g.site_id AND m.provider_key = g.provider_key
        WHERE (m.site_id, m.provider_key) NOT IN (SELECT k.site_id, k.provider_key FROM counters k)
    ),
    refused AS (
        UPDATE public.offline_conversion_queue q
        SET status = 'FAILED', last_error = expired_text(q.provider_key), provider_error_code = 'EXPIRED',
            provider_error_category = 'VALIDATION', updated_at = v_now
        WHERE q.ctid = ANY (ARRAY(SELECT e.tid FROM expiring e
                                  WHERE (e.site_id, e.provider_key) NOT IN (SELECT u.site_id, u.provider_key FROM uncounted u)))
        RETURNING q.site_id, q.provider_key
    )
    SELECT count(*), array_agg(r.site_id), array_agg(r.provider_key) INTO v_refused, v_sites, v_providers FROM refused r;
    PERFORM count_failed_deliveries(v_sites, v_providers);
    -- No later event ends these alerts: they are closed after a day.
    UPDATE alerts SET closed_at = v_now
    WHERE closed_at IS NULL AND opened_at < v_now - INTERVAL '1 day'
      AND condition IN ('conversions_expired', 'conversions_unconfirmed', 'provider_unclassified');
    IF v_refused > 0 THEN
        PERFORM raise_alert('conversions_expired', to_char(v_now, 'YYYY-MM-DD'), 'ERROR',
            '[DELIVERY] Conversions expired before they could be sent: they are FAILED with the code EXPIRED');
    END IF;
    SELECT count(*), min(s.expires_at) INTO v_soon, v_first FROM (
        SELECT q.expires_at FROM public.offline_conversion_queue q
        WHERE q.status IN ('QUEUED', 'RETRY') AND q.expires_at > v_now AND q.expires_at <= v_now + p_ahead
          AND q.created_at < v_now - INTERVAL '15 minutes'
        ORDER BY q.expires_at LIMIT 10000) s;
    IF v_soon > 0 THEN
        PERFORM raise_alert('conversions_expiring', '', 'WARNING',
            format('[DELIVERY] %s%s queued conversions will expire, the first at %s', v_soon,
                   CASE WHEN v_soon = 10000 THEN ' or more' ELSE '' END,
                   to_char(v_first AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"')));
    ELSE
        PERFORM withdraw_alert('conversions_expiring', '', '[DELIVERY] No queued conversion is about to expire');
    END IF;
    RETURN v_refused;
END $$;
REVOKE ALL ON FUNCTION weighbridge.watch_deliveries(interval, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.watch_deliveries(interval, int) TO weighbridge_deliver;

-- Confirmations ----------------------------------------------------------------------------------------------

-- Requests whose result is to be asked for now. Claiming postpones them: if the caller stops, another asks later.
CREATE OR REPLACE FUNCTION weighbridge.claim_confirmations(p_limit int)
    RETURNS TABLE (site_id uuid, provider_key text, request_id text, rows int, tries int)
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        WITH head AS MATERIALIZED (
            SELECT c.site_id, c.provider_key, c.request_id FROM confirmations c
            WHERE c.state = 'AWAITED' AND c.due_at <= (SELECT weighbridge.now())
            ORDER BY c.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
        UPDATE confirmations c SET due_at = weighbridge.now() + INTERVAL '10 minutes', tries = c.tries + 1
        FROM head h WHERE (c.site_id, c.provider_key, c.request_id) = (h.site_id, h.provider_key, h.request_id)
        RETURNING c.site_id, c.provider_key, c.request_id, c.rows, c.tries
    $$;
REVOKE ALL ON FUNCTION weighbridge.claim_confirmations(int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.claim_confirmations(int) TO weighbridge_deliver;

-- The provider's result of a request. It counts rows and does not name them: where it refused some, all are PARTIAL.
CREATE OR REPLACE FUNCTION weighbridge.settle_confirmation(
    p_site uuid, p_provider text, p_request text, p_state text, p_reasons jsonb
) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_rows bigint;
BEGIN
    UPDATE confirmations c SET state = p_state, reasons = p_reasons
    WHERE c.site_id = p_site AND c.provider_key = p_provider AND c.request_id = p_request AND c.state = 'AWAITED';
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    UPDATE public.offline_conversion_queue q
    SET confirmation = p_state, confirmed_at = CASE WHEN p_state = 'CONFIRMED' THEN weighbridge.now() END,
        updated_at = weighbridge.now()
    WHERE q.provider_request_id = p_request AND q.confirmation = 'AWAITED'
      AND q.site_id = p_site AND q.provider_key = p_provider;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    IF p_state IN ('PARTIAL', 'REFUSED', 'UNKNOWN') THEN
        PERFORM raise_alert('conversions_unconfirmed', p_site || '/' || p_provider || '/' || p_request, 'WARNING',
            format('[DELIVERY] %s accepted request %s of site %s and confirmed %s of its %s conversions: %s', p_provider,
                   p_request, p_site, CASE p_state WHEN 'PARTIAL' THEN 'only some' ELSE 'none' END, v_rows,
                   coalesce(nullif((SELECT string_agg(key || ' ' || value, ', ' ORDER BY key) FROM jsonb_each_text(p_reasons)), ''),
                            'no reason given')));
    END IF;
    RETURN v_rows;
END $$;
REVOKE ALL ON FUNCTION weighbridge.settle_confirmation(uuid, text, text, text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.settle_confirmation(uuid, text, text, text, jsonb) TO weighbridge_deliver;

-- Operators --------------------------------------------------------------------------------------------------

-- The workspace of a site. NULL: no such site, or the transaction acts for another workspace.
CREATE OR REPLACE FUNCTION weighbridge.workspace_of_site(p_site uuid) RETURNS uuid
    LANGUAGE sql STABLE
    AS $$
        SELECT s.workspace_id FROM public.sites s WHERE s.id = p_site
          AND (weighbridge.workspace() IS NULL OR s.workspace_id = weighbridge.workspace())
    $$;
REVOKE ALL ON FUNCTION weighbridge.workspace_of_site(uuid) FROM PUBLIC;

-- Sets or replaces credentials. p_version is from credential_versions: a row that was sealed earlier, even one that was removed
-- since, can never replace a later one.
CREATE OR REPLACE FUNCTION weighbridge.set_credentials(
    p_site uuid, p_provider text, p_version int, p_key_id text, p_nonce bytea, p_ciphertext bytea, p_actor text
) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid := workspace_of_site(p_site);
BEGIN
    IF v_workspace IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO public.provider_credentials AS c (site_id, provider_key, workspace_id, version, key_id, nonce, ciphertext)
    VALUES (p_site, p_provider, v_workspace, p_version, p_key_id, p_nonce, p_ciphertext)
    ON CONFLICT (site_id, provider_key) DO UPDATE
    SET version = excluded.version, key_id = excluded.key_id, nonce = excluded.nonce, ciphertext = excluded.ciphertext,
        refused_at = NULL, refused_code = NULL, updated_at = weighbridge.now()
    WHERE c.version < excluded.version;
    IF NOT FOUND THEN
        RETURN false; -- a later version was stored first
    END IF;
    PERFORM withdraw_alert('credentials_refused', p_site || '/' || p_provider,
                           format('[DELIVERY] %s of site %s has new credentials', p_provider, p_site));
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_workspace, p_actor, 'credentials.set', p_site, jsonb_build_object('provider_key', p_provider, 'version', p_version));
    PERFORM pg_notify('weighbridge_deliver', '');
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION weighbridge.set_credentials(uuid, text, int, text, bytea, bytea, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.set_credentials(uuid, text, int, text, bytea, bytea, text) TO weighbridge_deliver;

-- The same values under another key of the vault.
CREATE OR REPLACE FUNCTION weighbridge.reseal_credentials(
    p_site uuid, p_provider text, p_version int, p_key_id text, p_nonce bytea, p_ciphertext bytea
) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    UPDATE public.provider_credentials c SET key_id = p_key_id, nonce = p_nonce, ciphertext = p_ciphertext
    WHERE c.site_id = p_site AND c.provider_key = p_provider AND c.version = p_version;
    RETURN FOUND;
END $$;
REVOKE ALL ON FUNCTION weighbridge.reseal_credentials(uuid, text, int, text, bytea, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.reseal_credentials(uuid, text, int, text, bytea, bytea) TO weighbridge_deliver;

-- Queues failed conversions again: those of some sales, or of a group, of an error category or code, or all. Locked ones are
-- skipped: a transaction that changes sales locks their rows in any order.
CREATE OR REPLACE FUNCTION weighbridge.requeue_deliveries(
    p_workspace uuid, p_sales uuid[], p_site uuid, p_provider text, p_category text, p_code text, p_actor text
) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_count bigint;
BEGIN
    WITH found AS MATERIALIZED (
        SELECT q.ctid AS tid FROM public.offline_conversion_queue q
        WHERE q.status = 'FAILED' AND q.workspace_id = p_workspace
          AND (p_sales IS NULL OR q.sale_id = ANY (p_sales)) AND (p_site IS NULL OR q.site_id = p_site)
          AND (p_provider IS NULL OR q.provider_key = p_provider)
          AND (p_category IS NULL OR q.provider_error_category = p_category)
          AND (p_code IS NULL OR q.provider_error_code = p_code)
          AND q.provider_error_code IS DISTINCT FROM 'SALE_CANCELED'
        FOR UPDATE SKIP LOCKED
    )
    UPDATE public.offline_conversion_queue q
    SET status = 'QUEUED', next_retry_at = NULL, retry_count = 0, crashes = 0, code_times = 0, updated_at = weighbridge.now()
    WHERE q.ctid = ANY (ARRAY(SELECT tid FROM found));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count > 0 THEN
        INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
        VALUES (p_workspace, p_actor, 'deliveries.requeue', p_site, jsonb_strip_nulls(jsonb_build_object(
            'rows', v_count, 'provider_key', p_provider, 'category', p_category, 'code', p_code)));
        PERFORM pg_notify('weighbridge_deliver', '');
    END IF;
    RETURN v_count;
END $$;
REVOKE ALL ON FUNCTION weighbridge.requeue_deliveries(uuid, uuid[], uuid, text, text, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.requeue_deliveries(uuid, uuid[], uuid, text, text, text, text) TO weighbridge_deliver;

-- Closes a breaker and lets refused credentials be used again. For operators, after the cause is fixed.
CREATE OR REPLACE FUNCTION weighbridge.reset_provider(p_site uuid, p_provider text, p_actor text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_workspace uuid := workspace_of_site(p_site);
BEGIN
    IF v_workspace IS NULL THEN
        RETURN false;
    END IF;
    -- Rows that wait for the breaker or after a transient failure are due now. Locked ones keep their time: a transaction that
    -- changes sales locks their rows in any order.
    WITH postponed AS MATERIALIZED (
        SELECT q.ctid AS tid FROM public.offline_conversion_queue q
        WHERE q.site_id = p_site AND q.provider_key = p_provider AND q.status IN ('QUEUED', 'RETRY')
          AND (q.last_error = 'CIRCUIT_OPEN' OR q.provider_error_category IN ('TRANSIENT', 'RATE_LIMIT'))
        FOR UPDATE SKIP LOCKED
    )
    UPDATE public.offline_conversion_queue q SET next_retry_at = NULL, updated_at = weighbridge.now()
    WHERE q.ctid = ANY (ARRAY(SELECT tid FROM postponed));
    PERFORM public.record_provider_outcome(p_site, p_provider, true);
    UPDATE public.provider_credentials c SET refused_at = NULL, refused_code = NULL
    WHERE c.site_id = p_site AND c.provider_key = p_provider;
    PERFORM withdraw_alert('credentials_refused', p_site || '/' || p_provider,
                           format('[DELIVERY] %s of site %s was reset', p_provider, p_site));
    INSERT INTO audit_log (workspace_id, actor, action, subject, detail)
    VALUES (v_workspace, p_actor, 'provider.reset', p_site, jsonb_build_object('provider_key', p_provider));
    PERFORM pg_notify('weighbridge_deliver', '');
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION weighbridge.reset_provider(uuid, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.reset_provider(uuid, text, text) TO weighbridge_deliver;
