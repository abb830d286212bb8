-- Claims return less of each row, settlements count by outcome and not by row, and no claim reads a whole table: a plan that was
-- made when there were few rows must not be one for few rows. Otherwise both do what they did.

GRANT EXECUTE ON FUNCTION weighbridge.new_id() TO PUBLIC; -- whoever may write sales

-- Claims of several groups at once, the first rows of each in S4's order: a batch each, with its attempt and its STARTED
-- where p_worker is given. A group may stand there once. What has expired or was canceled is refused on the way: such rows
-- are not `live`, and come first. The first row of all says when it was: claimed_at of a batch is that and a microsecond for
-- each place before its own.
CREATE OR REPLACE FUNCTION weighbridge.claim_conversions(
    p_worker text, p_lease interval, p_batches uuid[], p_sites uuid[], p_providers text[], p_limits int[]
) RETURNS TABLE (place bigint, live boolean, sale_id uuid, order_id text, click_type text, click_id text, occurred_at timestamptz,
                 value numeric, currency text, user_data jsonb, clicked_at timestamptz, tries int, code text, code_times int,
                 claimed_at timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp SET jit = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
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
