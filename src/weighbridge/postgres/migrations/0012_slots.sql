-- Slots (S4, PR11): how many calls to a provider are under way at once, per site and per provider, where there is no Redis.
--
-- A slot is a leased row, not a count: who gives back deletes rows of its own, so that giving back twice frees nobody
-- else's, and the row of one who died is in nobody's way once its time is over. Rows are numbered from 1: more of a key than
-- its limit cannot be written. Rows of the dead stay until their key is wanted again.
--
-- Lock order. acquire_slots takes an advisory lock per key, in the order of their hashes, and then waits for nothing more:
-- rows that somebody is just giving back are still taken. release_slots takes no such lock; it locks rows, in the order of
-- the primary key, and the only ones who hold any are others like it and acquire_slots, which does not wait for them.
-- A process that freezes before its commit is cut off after two seconds; who waits for it waits three.

-- Unlogged: nothing waits for the disk. A crash of the server empties the table, as does a change to its replica, while calls
-- may be under way: for as long as these last there may be more than the limit, which is a matter of politeness to the
-- provider. Whether a row is sent twice does not hang on it.
CREATE UNLOGGED TABLE weighbridge.slots (
    key text NOT NULL,
    slot int NOT NULL CHECK (slot > 0),
    token uuid NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (key, slot),
    UNIQUE (token, key)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);
COMMENT ON TABLE weighbridge.slots IS 'Calls to providers that are under way, by S4''s keys; empty where Redis counts them.';
ALTER TABLE weighbridge.slots ENABLE ROW LEVEL SECURITY; -- and no policy: these functions alone

-- A slot of both keys, or of neither, for each of the tokens in their order. Returns the tokens that have one. p_per_provider
-- 0: there is no limit for all sites.
CREATE FUNCTION weighbridge.acquire_slots(
    p_site_keys text[], p_global_keys text[], p_tokens uuid[], p_per_site int, p_per_provider int, p_ttl interval
) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp SET lock_timeout = '3s'
    -- The table is small and its dead rows are many: the planner must not take it for one to be read as a whole.
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

-- What is not held any more is passed over.
CREATE FUNCTION weighbridge.release_slots(p_tokens uuid[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp SET lock_timeout = '3s'
    SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
    AS $$
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '2s', true);
    DELETE FROM slots s
    WHERE (s.key, s.slot, s.token) IN (SELECT o.key, o.slot, o.token FROM slots o
                                       WHERE o.token = ANY (p_tokens)
                                       ORDER BY o.key, o.slot FOR UPDATE);
END $$;

-- Who may do what -------------------------------------------------------------------------------------------

REVOKE EXECUTE ON FUNCTION weighbridge.acquire_slots(text[], text[], uuid[], int, int, interval),
    weighbridge.release_slots(uuid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.acquire_slots(text[], text[], uuid[], int, int, interval),
    weighbridge.release_slots(uuid[]) TO weighbridge_deliver;
