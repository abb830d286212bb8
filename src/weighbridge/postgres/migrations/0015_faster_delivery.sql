-- Faster delivery: what a claim and a settlement cost, without a change in what they do.
--
-- A row that waits says what its sale says: the triggers of sales keep it so. Only where that may not be, because the row was
-- in a call, was refused, or was queued for a sale that may have been changing, does the claim look at the sale again.
-- A claim gives each of its batches a claimed_at of its own, a microsecond apart: a settlement finds its rows by the index of
-- PROCESSING rows, and no others. Neither is compiled (jit): the planner expects far more rows than there are.

ALTER TABLE public.offline_conversion_queue ADD COLUMN fresh boolean NOT NULL DEFAULT false;
ALTER TABLE public.offline_conversion_queue ALTER COLUMN fresh SET DEFAULT true;
COMMENT ON COLUMN public.offline_conversion_queue.fresh IS
    'It says what its sale says. False: the claim reads the sale again.';

-- What a provider takes has changed: rows that are older say what it took before. An hour, for those being written then.
ALTER TABLE weighbridge.providers ADD COLUMN changed_at timestamptz;

-- AFTER: before the update each row would be locked once more, and due_at worked out anew, to see what never happens.
DROP TRIGGER guard_delivery ON public.offline_conversion_queue;
CREATE TRIGGER guard_delivery AFTER UPDATE OF status ON public.offline_conversion_queue
    FOR EACH ROW WHEN (OLD.status = 'COMPLETED' AND NEW.status <> 'COMPLETED')
    EXECUTE FUNCTION weighbridge.guard_delivery();

-- A sale that is gone: the claim sees that it is.
CREATE FUNCTION weighbridge.forget_sales() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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
CREATE TRIGGER queue_deleted AFTER DELETE ON public.sales REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.forget_sales();
CREATE TRIGGER queue_truncated AFTER TRUNCATE ON public.sales
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.forget_sales();
REVOKE EXECUTE ON FUNCTION weighbridge.forget_sales() FROM PUBLIC;

-- Claims of several groups at once, the first rows of each in S4's order: a batch each, with its attempt and its STARTED
-- where p_worker is given. A group may stand there once. What has expired or was canceled is refused on the way: such rows
-- are not `live`.
CREATE OR REPLACE FUNCTION weighbridge.claim_conversions(
    p_worker text, p_lease interval, p_batches uuid[], p_sites uuid[], p_providers text[], p_limits int[]
) RETURNS TABLE (place bigint, live boolean, sale_id uuid, order_id text, click_type text, click_id text, occurred_at timestamptz,
                 value numeric, currency text, user_data jsonb, clicked_at timestamptz, tries int, code text, code_times int,
                 claimed_at timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp SET jit = off
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
            SELECT q.ctid AS tid, q.workspace_id, q.sale_id, q.expires_at,
                   q.fresh AND q.provider_error_code IS NULL
                   AND (q.created_at > k.changed_at + INTERVAL '1 hour') IS NOT FALSE AS fresh
            FROM offline_conversion_queue q
            WHERE q.site_id = w.site_id AND q.provider_key = w.provider_key AND q.status IN ('QUEUED', 'RETRY')
              AND q.due_at <= v_now
            ORDER BY q.due_at, q.created_at, q.sale_id LIMIT w.wanted
            FOR UPDATE SKIP LOCKED) e
        WHERE p_worker IS NULL
           OR (b.state IS DISTINCT FROM 'OPEN' AND c.refused_at IS NULL AND (k.paused_until <= v_now) IS NOT FALSE)
    ),
    -- What is sent is what the sale says now: it may have changed, or been canceled, while the row was in other hands.
    mended AS MATERIALIZED (
        SELECT h.turn, s.status = 'CONFIRMED' AND d.click_id IS NOT NULL AS wanted,
               s.occurred_at, s.clicked_at, s.value, s.currency, s.user_data, d.click_type, d.click_id, d.expires_at
        FROM head h
        -- LIMIT: each by its key, however many the planner expects.
        LEFT JOIN LATERAL (
            SELECT * FROM sales e WHERE e.workspace_id = h.workspace_id AND e.id = h.sale_id LIMIT 1) s ON true
        LEFT JOIN LATERAL deliverable(s, h.provider_key) d ON true
        WHERE NOT h.fresh
    ),
    claimed AS (
        -- By where they lie: they are locked, and cannot have moved. ANY, or a planner that expects more reads the whole table.
        UPDATE offline_conversion_queue q
        SET status = CASE WHEN h.refusal IS NULL THEN 'PROCESSING' ELSE 'FAILED' END,
            updated_at = v_now, fresh = false,
            claimed_at = CASE WHEN h.refusal IS NULL THEN v_now + (h.place - 1) * INTERVAL '1 microsecond' ELSE q.claimed_at END,
            batch_id = CASE WHEN h.refusal IS NULL THEN h.batch_id ELSE q.batch_id END,
            attempt_count = q.attempt_count + (h.refusal IS NULL)::int,
            last_error = CASE h.refusal WHEN 'EXPIRED' THEN expired(q.provider_key) WHEN 'SALE_CANCELED' THEN canceled()
                                        ELSE q.last_error END,
            provider_error_code = coalesce(h.refusal, q.provider_error_code),
            provider_error_category = CASE WHEN h.refusal IS NULL THEN q.provider_error_category ELSE 'VALIDATION' END,
            click_type = coalesce(h.click_type, q.click_type), click_id = coalesce(h.click_id, q.click_id),
            occurred_at = coalesce(h.occurred_at, q.occurred_at),
            clicked_at = CASE WHEN h.fresh THEN q.clicked_at ELSE h.clicked_at END,
            value = CASE WHEN h.fresh THEN q.value ELSE h.value END,
            currency = CASE WHEN h.fresh THEN q.currency ELSE h.currency END,
            user_data = CASE WHEN h.fresh THEN q.user_data ELSE coalesce(h.user_data, '{}') END,
            expires_at = CASE WHEN h.fresh THEN q.expires_at ELSE h.expires_at END
        FROM (SELECT h.place, h.turn, h.batch_id, h.tid, h.fresh, m.occurred_at, m.clicked_at, m.value, m.currency, m.user_data,
                     m.click_type, m.click_id, m.expires_at,
                     CASE WHEN NOT h.fresh AND m.wanted IS NOT TRUE THEN 'SALE_CANCELED'
                          WHEN CASE WHEN h.fresh THEN h.expires_at ELSE m.expires_at END <= v_now THEN 'EXPIRED' END AS refusal
              FROM head h LEFT JOIN mended m USING (turn)) h
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
           c.currency, nullif(c.user_data, '{}'), c.clicked_at, c.attempt_count - 1, c.provider_error_code, c.code_times,
           v_now + (c.place - 1) * INTERVAL '1 microsecond' -- of the batch: that of a refused row is older
    FROM claimed c ORDER BY c.turn;
END $$;

-- What became of calls. p_calls has an object per call (batch_id, claimed_at, duration_ms, request_id, error_code,
-- error_category, success, transient, refused, credentials, pause_seconds, unclassified), p_outcomes one per outcome of a
-- call (batch_id, n, status, code, category, error, request_id, at_least, counts, duplicate, confirm_after). Every row of a
-- call has its outcome 0, but for the sales in p_id, which have the one in p_n. Rows, ledger, counters, breaker and attempt in
-- one transaction. A call that lost its lease changes nothing; the others come back with what became of their rows.
CREATE OR REPLACE FUNCTION weighbridge.settle_conversions(
    p_calls jsonb, p_outcomes jsonb, p_batch uuid[], p_id uuid[], p_n int[], p_retries int, p_first interval, p_longest interval
) RETURNS TABLE (batch_id uuid, completed bigint, failed bigint, retry bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp SET jit = off
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
        WHERE q.ctid = u.tid AND q.batch_id = u.batch_id
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

-- Sales of a site that came before it had a provider, to those that it has now, or to one of them. What has expired stays. A sale may
-- just be changing: it is read again by the claim.
CREATE OR REPLACE FUNCTION weighbridge.enqueue_conversions(
    p_workspace uuid, p_site uuid, p_provider text, p_since timestamptz, p_actor text
) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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
