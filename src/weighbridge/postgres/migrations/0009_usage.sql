-- Usage and quota (S5, FU-136), and how long blobs are kept.
--
-- storage_usage         S5's counters, one row per workspace and user; only the functions here move them
-- counted_blobs         what those counters are the sum of: one row per blob, whoever names it and however often
-- storage_limits        limits of one workspace or user, where they differ from the settings
-- storage_reservations  bytes set aside for files that are on their way
--
-- A file on its way: reserve_storage sets its bytes aside or refuses it; count_blob, in the transaction that records the
-- upload, turns the reservation into usage. Whoever looks sees one or the other, never both and never neither.
--
-- Lock order: data_uploads, then a workspace's counting (4), then counted_blobs, then storage_usage.
--   advisory lock 3   one reservation of a workspace at a time: each sees what the one before has set aside
--   advisory lock 4   shared by whoever counts in a workspace, exclusive to a recount, which must see none half done

CREATE FUNCTION weighbridge.billing_month() RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT to_char(weighbridge.now() AT TIME ZONE 'UTC', 'YYYY-MM') $$;

-- When the month's counters begin anew.
CREATE FUNCTION weighbridge.next_month() RETURNS timestamptz
    LANGUAGE sql STABLE
    AS $$ SELECT (date_trunc('month', weighbridge.now() AT TIME ZONE 'UTC') + INTERVAL '1 month') AT TIME ZONE 'UTC' $$;

-- The workspace that this transaction acts for, which must be one.
CREATE FUNCTION weighbridge.acting_workspace() RETURNS uuid
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    IF weighbridge.workspace() IS NULL THEN
        RAISE EXCEPTION 'the transaction acts for no workspace' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN weighbridge.workspace();
END $$;

-- A blob within its workspace: date and content. Where the store is, is no part of it: a store can be moved.
-- No regular expression: one takes 40 µs, and a recount asks for all.
CREATE FUNCTION weighbridge.blob_key(p_file_url text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN right(p_file_url, 76) LIKE '/____/__/__/%' THEN right(p_file_url, 75) ELSE p_file_url END $$;

-- Tables ----------------------------------------------------------------------------------------------------

CREATE TABLE public.storage_usage (
    workspace_id uuid NOT NULL,
    user_id uuid NOT NULL,
    total_bytes bigint NOT NULL DEFAULT 0 CHECK (total_bytes >= 0),
    total_sources integer NOT NULL DEFAULT 0 CHECK (total_sources >= 0),
    last_calculated timestamptz NOT NULL DEFAULT weighbridge.now(),
    interpretation_count_month integer NOT NULL DEFAULT 0,
    interpretation_limit_month integer NOT NULL DEFAULT 100 CHECK (interpretation_limit_month >= 0),
    billing_month text NOT NULL DEFAULT weighbridge.billing_month(), -- to which the month's counters belong
    month_bytes bigint NOT NULL DEFAULT 0, -- stored in that month, whether still there or not
    PRIMARY KEY (workspace_id, user_id)
) WITH (fillfactor = 70);
COMMENT ON TABLE public.storage_usage IS 'What each user has stored and had read again (S5). Only functions move the counters.';
ALTER TABLE public.storage_usage ENABLE ROW LEVEL SECURITY;
CREATE POLICY workspace ON public.storage_usage USING (workspace_id = (SELECT weighbridge.workspace()));

CREATE TABLE weighbridge.counted_blobs (
    workspace_id uuid NOT NULL,
    blob_key text NOT NULL,
    user_id uuid NOT NULL, -- whose upload came first
    bytes bigint NOT NULL,
    counted_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (workspace_id, blob_key) -- counted once
);

CREATE TABLE weighbridge.storage_limits (
    workspace_id uuid NOT NULL,
    user_id uuid, -- NULL: the workspace as a whole
    month_bytes bigint CHECK (month_bytes >= -1), -- NULL: as the settings say; -1: no limit
    total_bytes bigint CHECK (total_bytes >= -1),
    UNIQUE NULLS NOT DISTINCT (workspace_id, user_id)
);

CREATE TABLE weighbridge.storage_reservations (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    user_id uuid NOT NULL,
    bytes bigint NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id)
);
CREATE INDEX storage_reservations_expiring ON weighbridge.storage_reservations (until);

ALTER TABLE public.data_uploads ADD COLUMN blob_removed_at timestamptz; -- storage_status 'removed', and it is done
-- Which uploads name a blob: they have its content.
CREATE INDEX data_uploads_blob ON public.data_uploads (workspace_id, content_sha256);

-- What is stored already.
INSERT INTO weighbridge.counted_blobs (workspace_id, blob_key, user_id, bytes, counted_at)
SELECT DISTINCT ON (d.workspace_id, weighbridge.blob_key(d.file_url))
       d.workspace_id, weighbridge.blob_key(d.file_url),
       coalesce(d.created_by, '00000000-0000-0000-0000-000000000000'), d.byte_size, d.created_at
FROM public.data_uploads d WHERE d.file_url IS NOT NULL AND d.storage_status = 'stored'
ORDER BY d.workspace_id, weighbridge.blob_key(d.file_url), d.created_at, d.id;
INSERT INTO public.storage_usage (workspace_id, user_id, total_bytes, total_sources, month_bytes)
SELECT b.workspace_id, b.user_id, sum(b.bytes), count(*),
       coalesce(sum(b.bytes) FILTER (WHERE to_char(b.counted_at AT TIME ZONE 'UTC', 'YYYY-MM') = weighbridge.billing_month()), 0)
FROM weighbridge.counted_blobs b GROUP BY b.workspace_id, b.user_id;

-- Counters --------------------------------------------------------------------------------------------------

-- A file more, or with negative bytes one less: what it was in its month it has been. Whoever is first in a new month
-- begins it; one that began to wait before the month turned must not turn it back.
CREATE FUNCTION weighbridge.increment_storage_usage(p_user_id uuid, p_bytes bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

CREATE FUNCTION weighbridge.increment_interpretation_count(p_user_id uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Counts that files of a user are read again: all of them or, where that is limited and would be too many, none. No row:
-- counted.
CREATE FUNCTION weighbridge.take_interpretations(p_user uuid, p_number int, p_limited boolean)
    RETURNS TABLE (used int, allowed int, resets_at timestamptz, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Counts the blob of an upload, unless it is counted; ends the reservation, as its bytes are accounted for now.
CREATE FUNCTION weighbridge.count_blob(p_user uuid, p_bytes bigint, p_file_url text, p_grant uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Limits ----------------------------------------------------------------------------------------------------

-- Sets the bytes of a file aside, or says over which limit they would go: then this is the only row. The total comes
-- before the month: waiting for the next one would not help. The defaults are the settings'.
CREATE FUNCTION weighbridge.reserve_storage(
    p_grant uuid, p_user uuid, p_bytes bigint, p_lasts interval, p_workspace_month bigint, p_workspace_total bigint,
    p_user_month bigint, p_user_total bigint, p_consumers text[]
) RETURNS TABLE (whose text, span text, used bigint, allowed bigint, resets_at timestamptz, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Told once a month for each limit, however many files are refused.
CREATE UNIQUE INDEX events_quota ON weighbridge.events
    (workspace_id, (payload ->> 'user_id'), (payload ->> 'billing_month'), (payload ->> 'span')) NULLS NOT DISTINCT
    WHERE type = 'quota.storage.exceeded';

CREATE FUNCTION weighbridge.release_storage(p_grant uuid) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$ DELETE FROM storage_reservations WHERE workspace_id = acting_workspace() AND id = p_grant $$;

-- Those that a killed process left. They count for nothing already.
CREATE FUNCTION weighbridge.sweep_reservations() RETURNS bigint
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        WITH gone AS (DELETE FROM storage_reservations WHERE until <= weighbridge.now() RETURNING id)
        SELECT count(*) FROM gone
    $$;

-- An operator's: limits of a workspace or, with a user, of that one. NULL leaves a limit as it is, -2 gives it back to
-- the settings.
CREATE FUNCTION weighbridge.set_storage_limit(
    p_user uuid, p_month bigint, p_total bigint, p_interpretations int, p_actor text
) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- How a workspace stands: the row without a user is the workspace itself.
-- A definer: queue, limits and reservations are closed to tenants.
CREATE FUNCTION weighbridge.storage_standing(
    p_workspace_month bigint, p_workspace_total bigint, p_user_month bigint, p_user_total bigint
) RETURNS TABLE (
        user_id uuid, total_bytes bigint, total_sources bigint, month_bytes bigint, waiting_bytes bigint,
        reserved_bytes bigint, month_limit bigint, total_limit bigint, last_calculated timestamptz,
        interpretation_count_month bigint, interpretation_limit_month int, billing_month text, resets_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Recount ---------------------------------------------------------------------------------------------------

-- Compares the counters of a workspace with its blobs, and mends them; in a dry run it only says what it would do.
--
-- The listing takes its time and uploads go on meanwhile, so it is no picture of one moment. It was begun at p_began, and:
-- what was counted after that is not judged by it; what was recorded before must be in it, as bytes are stored before they
-- are recorded and stay until their uploads say 'removed'. Nobody counts in the workspace while this runs.
CREATE FUNCTION weighbridge.recount_storage(p_keys text[], p_sizes bigint[], p_began timestamptz, p_dry boolean) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    SET enable_nestloop = off SET work_mem = '64MB' -- the planner takes a listing for ten rows; there may be a million
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

-- How long blobs are kept -----------------------------------------------------------------------------------

-- Can no file that is on its way come to lie under this key? Its date is at least two days back. A file gets the date of
-- the moment at which it is stored and is recorded right after; even one that came a moment before midnight has had a day
-- for that. A file that waits for the store keeps the key of the day on which it came: its row in upload_queue has it.
CREATE FUNCTION weighbridge.may_be_removed(p_workspace uuid, p_key text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
        SELECT p_key ~ '^[0-9]{4}/[0-9]{2}/[0-9]{2}/[0-9a-f]{64}$'
           AND left(p_key, 10) <= to_char((weighbridge.now() AT TIME ZONE 'UTC')::date - 2, 'YYYY/MM/DD')
           AND NOT EXISTS (SELECT FROM upload_queue q
                           WHERE q.workspace_id = p_workspace AND q.object_path = p_workspace || '/' || p_key)
    $$;

-- Marks the blob of an upload as removed, before it is: from then on nobody can open an upload that needs it. Returns the
-- key, or NULL where it has to stay: an upload that names it has not ended, or not long ago, or is in somebody's hands.
-- One that is marked is removed, whatever the age by now.
CREATE FUNCTION weighbridge.retire_blob(p_upload uuid, p_age interval) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- The blob is gone: it counts no more.
CREATE FUNCTION weighbridge.note_blob_removed(p_upload uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Who may do what -------------------------------------------------------------------------------------------

REVOKE EXECUTE ON FUNCTION weighbridge.billing_month(), weighbridge.next_month(), weighbridge.acting_workspace(),
    weighbridge.blob_key(text), weighbridge.increment_storage_usage(uuid, bigint),
    weighbridge.increment_interpretation_count(uuid), weighbridge.take_interpretations(uuid, int, boolean),
    weighbridge.count_blob(uuid, bigint, text, uuid),
    weighbridge.reserve_storage(uuid, uuid, bigint, interval, bigint, bigint, bigint, bigint, text[]),
    weighbridge.release_storage(uuid), weighbridge.sweep_reservations(),
    weighbridge.set_storage_limit(uuid, bigint, bigint, int, text),
    weighbridge.storage_standing(bigint, bigint, bigint, bigint),
    weighbridge.recount_storage(text[], bigint[], timestamptz, boolean), weighbridge.may_be_removed(uuid, text),
    weighbridge.retire_blob(uuid, interval), weighbridge.note_blob_removed(uuid) FROM PUBLIC;
GRANT SELECT ON public.storage_usage TO weighbridge_tenant;
GRANT EXECUTE ON FUNCTION weighbridge.storage_standing(bigint, bigint, bigint, bigint) TO weighbridge_tenant;
GRANT EXECUTE ON FUNCTION
    weighbridge.reserve_storage(uuid, uuid, bigint, interval, bigint, bigint, bigint, bigint, text[]),
    weighbridge.release_storage(uuid), weighbridge.count_blob(uuid, bigint, text, uuid),
    weighbridge.increment_storage_usage(uuid, bigint) TO weighbridge_intake;
GRANT EXECUTE ON FUNCTION weighbridge.retire_blob(uuid, interval), weighbridge.note_blob_removed(uuid),
    weighbridge.sweep_reservations() TO weighbridge_clean;
