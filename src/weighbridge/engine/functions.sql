-- The engine: attempts with leases for every queue, recovery, the outbox and alerts.
--
-- Tables
--   attempts          one row per attempt with its worker and lease, for every queue
--   turns             when each workspace last got a slot of a worker
--   unbroken          upload attempts that began after the last crash of the server
--   events            the outbox; event_deliveries has a row per consumer of an event
--   alerts            one row per condition and episode
--   audit_log         actions of operators
--
-- The life of an attempt. A claim (claim_upload, claim_project, claim_job, claim_replays, claim_conversions,
-- claim_event_deliveries) opens it with a new lease_token. Every later write happens in a transaction that first calls
-- enter(token) or, for the final write, fence(token). heartbeat(tokens) renews the lease. The final write of an attempt
-- (finish_…, fail_…, release_…) closes it; recover() closes attempts whose lease expired and returns their
-- work to the queue.
--
-- The fence takes a KEY SHARE lock on the attempt and recover() takes FOR UPDATE, so no attempt is taken over in the
-- middle of a fenced transaction, while heartbeats (an ordinary UPDATE) are not blocked. A worker that lost its lease
-- can change nothing.
--
-- The life of an event. It is inserted in the transaction that it reports, with one delivery per consumer. A worker
-- claims deliveries (queue 'outbox'), calls the consumer without an open transaction, and finishes or fails each of
-- them.
--
-- The life of an alert. A condition is raised and withdrawn in the transaction that finds it, so a crash loses no
-- alert. Both add an event for the consumer 'alerts', so an unreachable webhook blocks nothing.
--
-- Calls of higher packages. recover() settles the expired attempts of every queue in one statement, so it calls
-- batch_name and recover_upload (uploads), recover_replay (storage), lock_batches, recover_deliveries and close_ledger
-- (delivery).
-- recover() and recover_abandoned() also read the view orphans (uploads). docs/decisions.md has the reason.
--
-- Lock order: attempts, then projects, then data_uploads, then events, then data tables. Delivery has its own order after
-- attempts (delivery/functions.sql).
--   advisory lock 5   one transaction opens an alert: tried, never waited for

-- Leases -----------------------------------------------------------------------------------------------------

-- Every final write of an attempt happens in a transaction that called this first. WB001: the lease is lost.
CREATE OR REPLACE FUNCTION weighbridge.fence(p_token uuid) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
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
REVOKE ALL ON FUNCTION weighbridge.fence(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.fence(uuid) TO weighbridge_parse, weighbridge_promote, weighbridge_announce;

-- Every step of an attempt happens in a transaction that called this first: it holds the lease, and its earlier commits
-- still exist. WB003: the server crashed since the attempt began.
CREATE OR REPLACE FUNCTION weighbridge.enter(p_token uuid) RETURNS uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_subject uuid := fence(p_token);
BEGIN
    IF NOT EXISTS (SELECT FROM unbroken u WHERE u.lease_token = p_token)
       AND EXISTS (SELECT FROM attempts a WHERE a.lease_token = p_token AND a.queue = 'uploads') THEN
        RAISE EXCEPTION 'the server crashed during lease %', p_token USING ERRCODE = 'WB003',
            HINT = 'Commits that did not wait for the disk may be undone. Start again from the state in the tables.';
    END IF;
    RETURN v_subject;
END $$;
REVOKE ALL ON FUNCTION weighbridge.enter(uuid) FROM PUBLIC;

-- Renews leases and returns the tokens that are still alive. A run without progress is not kept alive past the ceiling; the
-- progress of a job counts as progress of its project's run.
CREATE OR REPLACE FUNCTION weighbridge.heartbeat(p_tokens uuid[], p_lease interval, p_ceiling interval) RETURNS SETOF uuid
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        UPDATE attempts a
        SET lease_until = least(weighbridge.now() + p_lease, p_ceiling + greatest(
                a.progressed_at, (SELECT max(j.progressed_at) FROM attempts j WHERE j.under = a.lease_token))),
            renewed_at = weighbridge.now()
        WHERE a.lease_token = ANY (p_tokens) AND a.closed_at IS NULL
        RETURNING a.lease_token
    $$;
REVOKE ALL ON FUNCTION weighbridge.heartbeat(uuid[], interval, interval) FROM PUBLIC;

-- Opens an attempt at each of the subjects, whose rows the caller has locked; none at a subject with an open attempt. Attempts
-- at uploads need a slot (open_attempt), and deliveries open theirs with the claim.
CREATE OR REPLACE FUNCTION weighbridge.open_attempts(
    p_queue text, p_subjects uuid[], p_workspaces uuid[], p_worker text, p_lease interval
) RETURNS TABLE (lease_token uuid, subject uuid)
    LANGUAGE sql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
        INSERT INTO attempts AS a (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until)
        SELECT p_queue, s.id, s.workspace_id, p_worker, n.now, n.now, n.now + p_lease
        FROM unnest(p_subjects, p_workspaces) AS s (id, workspace_id), (SELECT weighbridge.now()) AS n (now)
        ON CONFLICT DO NOTHING
        RETURNING a.lease_token, a.subject
    $$;
REVOKE ALL ON FUNCTION weighbridge.open_attempts(text, uuid[], uuid[], text, interval) FROM PUBLIC;

-- Turns ------------------------------------------------------------------------------------------------------

-- Live attempts that occupy a slot of a worker, by workspace: uploads and runs of projects, with their jobs counted once.
CREATE OR REPLACE FUNCTION weighbridge.running_work() RETURNS TABLE (workspace_id uuid, attempts bigint)
    LANGUAGE sql STABLE
    AS $$
        SELECT a.workspace_id, count(*) FROM weighbridge.attempts a
        WHERE a.queue IN ('uploads', 'projects') AND a.closed_at IS NULL AND a.under IS NULL
        GROUP BY a.workspace_id
    $$;
REVOKE ALL ON FUNCTION weighbridge.running_work() FROM PUBLIC;

-- When a workspace last got a slot of a worker.
CREATE OR REPLACE FUNCTION weighbridge.served_at(p_workspace uuid) RETURNS timestamptz
    LANGUAGE sql STABLE
    AS $$
        SELECT coalesce((SELECT t.served_at FROM weighbridge.turns t WHERE t.workspace_id = p_workspace), '-infinity')
    $$;
REVOKE ALL ON FUNCTION weighbridge.served_at(uuid) FROM PUBLIC;

-- Notes that a workspace gets a slot. The lock is tried, not waited for: another claim for the same workspace notes it now.
CREATE OR REPLACE FUNCTION weighbridge.note_turn(p_workspace uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    IF pg_try_advisory_xact_lock(hashtextextended(p_workspace::text, 7)) THEN
        INSERT INTO turns AS t (workspace_id, served_at) VALUES (p_workspace, weighbridge.now())
        ON CONFLICT (workspace_id) DO UPDATE SET served_at = excluded.served_at;
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.note_turn(uuid) FROM PUBLIC;

-- Progress of an attempt: the ceiling of its lease is counted from here.
CREATE OR REPLACE FUNCTION weighbridge.note_progress(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    UPDATE attempts SET progressed_at = weighbridge.now() WHERE lease_token = p_token;
END $$;
REVOKE ALL ON FUNCTION weighbridge.note_progress(uuid) FROM PUBLIC;

-- Ends an attempt with its outcome. WB001: the lease is lost.
CREATE OR REPLACE FUNCTION weighbridge.close_attempt(p_token uuid, p_outcome text, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    UPDATE attempts SET closed_at = weighbridge.now(), outcome = p_outcome, error = p_error
    WHERE lease_token = p_token AND closed_at IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease % is lost', p_token USING ERRCODE = 'WB001';
    END IF;
    DELETE FROM unbroken WHERE lease_token = p_token;
END $$;
REVOKE ALL ON FUNCTION weighbridge.close_attempt(uuid, text, text) FROM PUBLIC;

-- Recovery ---------------------------------------------------------------------------------------------------

-- Locks the rows that recovery of an attempt changes, without waiting. False: a transaction holds one of them, and the next
-- recovery tries again.
CREATE OR REPLACE FUNCTION weighbridge.lock_for_recovery(p_queue text, p_subject uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_upload uuid := CASE p_queue WHEN 'uploads' THEN p_subject
                                  WHEN 'storage' THEN (SELECT q.payload_submission_id FROM public.upload_queue q WHERE q.id = p_subject) END;
BEGIN
    CASE p_queue
        WHEN 'outbox' THEN
            PERFORM FROM event_deliveries d WHERE d.id = p_subject FOR NO KEY UPDATE SKIP LOCKED;
            RETURN FOUND OR NOT EXISTS (SELECT FROM event_deliveries d WHERE d.id = p_subject);
        WHEN 'deliveries' THEN
            RETURN cardinality(lock_batches(ARRAY[p_subject])) > 0;
        WHEN 'storage' THEN
            PERFORM FROM public.upload_queue q WHERE q.id = p_subject FOR NO KEY UPDATE SKIP LOCKED;
            IF NOT FOUND AND EXISTS (SELECT FROM public.upload_queue q WHERE q.id = p_subject) THEN
                RETURN false;
            END IF;
        ELSE NULL;
    END CASE;
    PERFORM FROM public.data_uploads d WHERE d.id = v_upload FOR NO KEY UPDATE SKIP LOCKED;
    RETURN FOUND OR NOT EXISTS (SELECT FROM public.data_uploads d WHERE d.id = v_upload);
END $$;
REVOKE ALL ON FUNCTION weighbridge.lock_for_recovery(text, uuid) FROM PUBLIC;

-- Closes every attempt whose lease expired, returns its work to the queue, and does the same for uploads that are under way
-- without an attempt. Work that crashed its workers too often fails instead (gave_up).
CREATE OR REPLACE FUNCTION weighbridge.recover(p_max_crashes int)
    RETURNS TABLE (queue text, subject uuid, worker text, opened_at timestamptz, hours double precision, batch text,
                   gave_up boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_dead record;
    v_any boolean := false;
    v_batches uuid[] := '{}';
BEGIN
    -- A frozen worker may hold its fence: end its session, as its lease has expired.
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
        -- Every claim calls this: an open transaction of one workspace must not block the claims of all.
        CONTINUE WHEN NOT lock_for_recovery(v_dead.queue, v_dead.subject);
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
            SELECT batch_name(d) INTO batch FROM public.data_uploads d WHERE d.id = v_dead.subject;
            gave_up := recover_upload(v_dead.subject, batch, v_dead.lease_token::text, hours, p_max_crashes);
        END IF;
        IF v_dead.queue = 'outbox' THEN
            gave_up := recover_event_delivery(v_dead.subject);
        END IF;
        IF v_dead.queue = 'storage' THEN
            gave_up := recover_replay(v_dead.subject);
        END IF;
        IF v_dead.queue = 'deliveries' THEN
            v_batches := v_batches || v_dead.subject;
        END IF;
        v_any := true;
        RETURN NEXT;
    END LOOP;

    -- All batches together: rows, metrics and ledger are locked in one order, as in settle_conversions.
    IF v_batches <> '{}' THEN
        PERFORM recover_deliveries(
            ARRAY(SELECT q.ctid FROM public.offline_conversion_queue q
                  WHERE q.status = 'PROCESSING' AND q.batch_id = ANY (v_batches) ORDER BY q.sale_id FOR UPDATE),
            p_max_crashes);
        PERFORM close_ledger(v_batches);
    END IF;

    FOR v_dead IN
        SELECT o.* FROM orphans o JOIN public.data_uploads d ON d.id = o.id
        WHERE d.status IN ('processing', 'promoting')
        FOR UPDATE OF d SKIP LOCKED
    LOOP
        -- Another worker may have claimed it between the query and the lock: its attempt is visible now.
        CONTINUE WHEN EXISTS (SELECT FROM attempts a
                              WHERE a.queue = 'uploads' AND a.subject = v_dead.id AND a.closed_at IS NULL);
        queue := 'uploads';
        subject := v_dead.id;
        worker := 'unknown';
        opened_at := v_dead.started_at;
        hours := v_dead.hours_stale;
        batch := v_dead.source_batch_id;
        gave_up := recover_upload(v_dead.id, batch, v_now::text, hours, p_max_crashes);
        v_any := true;
        RETURN NEXT;
    END LOOP;
    IF v_any THEN
        PERFORM pg_notify('weighbridge_work', '');
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.recover(int) FROM PUBLIC;

-- Called by claims, so that abandoned work can be claimed immediately: recover(), if there may be something to recover. Returns
-- its rows as JSON; NULL: nothing was recovered.
CREATE OR REPLACE FUNCTION weighbridge.recover_abandoned(p_max_crashes int) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
BEGIN
    IF EXISTS (SELECT FROM attempts a WHERE a.closed_at IS NULL AND a.lease_until < weighbridge.now())
       OR EXISTS (SELECT FROM orphans) THEN
        RETURN (SELECT jsonb_agg(to_jsonb(r)) FROM recover(p_max_crashes) r);
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION weighbridge.recover_abandoned(int) FROM PUBLIC;

-- Outbox -----------------------------------------------------------------------------------------------------

-- Adds an event with a delivery for each consumer. False: nothing was added, as a unique index says that it was emitted.
CREATE OR REPLACE FUNCTION weighbridge.emit(
    p_workspace uuid, p_upload uuid, p_type text, p_payload jsonb, p_consumers text[], p_alert uuid DEFAULT NULL
) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_event uuid;
BEGIN
    INSERT INTO events (workspace_id, upload_id, type, payload, alert_id)
    VALUES (p_workspace, p_upload, p_type, p_payload, p_alert)
    ON CONFLICT DO NOTHING
    RETURNING id INTO v_event;
    IF v_event IS NULL THEN
        RETURN false;
    END IF;
    INSERT INTO event_deliveries (event_id, workspace_id, consumer)
    SELECT v_event, p_workspace, c FROM unnest(p_consumers) c;
    PERFORM pg_notify('weighbridge_work', '');
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION weighbridge.emit(uuid, uuid, text, jsonb, text[], uuid) FROM PUBLIC;

-- Claims deliveries that are due, for consumers that the calling worker has: another worker may have a hook that this one
-- lacks. The end of an alert is not delivered before its beginning. The workspaces take turns: one delivery of each, those
-- with the fewest under way first, until p_limit are claimed.
CREATE OR REPLACE FUNCTION weighbridge.claim_event_deliveries(p_worker text, p_consumers text[], p_lease interval, p_limit int)
    RETURNS TABLE (lease_token uuid, delivery_id uuid, event_id uuid, consumer text, failures int, type text, payload jsonb,
                   workspace_id uuid, heard text[])
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    -- Other joins would read all events.
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
BEGIN
    RETURN QUERY
    WITH RECURSIVE waiting (consumer, workspace_id) AS ( -- one probe per consumer and workspace, as in claim_waiting_upload
        SELECT c.name, (SELECT d.workspace_id FROM event_deliveries d
                        WHERE d.delivered_at IS NULL AND d.gave_up_at IS NULL AND d.consumer = c.name
                        ORDER BY d.workspace_id LIMIT 1)
        FROM unnest(p_consumers) AS c (name)
        UNION ALL
        SELECT w.consumer, (SELECT d.workspace_id FROM event_deliveries d
                            WHERE d.delivered_at IS NULL AND d.gave_up_at IS NULL AND d.consumer = w.consumer
                              AND d.workspace_id > w.workspace_id
                            ORDER BY d.workspace_id LIMIT 1)
        FROM waiting w WHERE w.workspace_id IS NOT NULL
    ), under_way AS MATERIALIZED (
        SELECT a.workspace_id, count(*) AS attempts FROM attempts a
        WHERE a.queue = 'outbox' AND a.closed_at IS NULL GROUP BY a.workspace_id
    ), turn AS MATERIALIZED (
        SELECT head.id FROM waiting w
        LEFT JOIN under_way u USING (workspace_id)
        CROSS JOIN LATERAL (
            SELECT d.id, d.run_after, row_number() OVER (ORDER BY d.run_after, d.id) AS turn FROM (
                SELECT d.id, d.run_after FROM event_deliveries d
                WHERE d.delivered_at IS NULL AND d.gave_up_at IS NULL AND d.consumer = w.consumer
                  AND d.workspace_id = w.workspace_id AND d.run_after <= v_now
                  AND NOT EXISTS (SELECT FROM attempts a
                                  WHERE a.queue = 'outbox' AND a.subject = d.id AND a.closed_at IS NULL)
                  AND NOT EXISTS (SELECT FROM events mine
                                  JOIN events earlier ON earlier.alert_id = mine.alert_id AND earlier.type = 'Alert'
                                  JOIN event_deliveries e ON e.event_id = earlier.id AND e.consumer = d.consumer
                                  WHERE mine.id = d.event_id AND mine.type = 'AlertRecovered'
                                    AND e.delivered_at IS NULL AND e.gave_up_at IS NULL)
                ORDER BY d.run_after, d.id LIMIT 4 * p_limit) d
        ) head
        -- random(): where more workspaces wait than can be served, none is always the last. More than can be claimed, as other
        -- workers claim the first ones now.
        ORDER BY coalesce(u.attempts, 0) + head.turn, head.run_after, random() LIMIT 4 * p_limit
    ), due AS MATERIALIZED (
        SELECT d.* FROM turn t CROSS JOIN LATERAL (
            SELECT d.* FROM event_deliveries d
            WHERE d.id = t.id AND d.delivered_at IS NULL AND d.gave_up_at IS NULL
            FOR UPDATE SKIP LOCKED) d
        LIMIT p_limit
    ), opened AS MATERIALIZED (
        SELECT o.* FROM (SELECT array_agg(d.id) AS ids, array_agg(d.workspace_id) AS workspaces FROM due d) a
        CROSS JOIN LATERAL open_attempts('outbox', a.ids, a.workspaces, p_worker, p_lease) o
    )
    SELECT o.lease_token, d.id, d.event_id, d.consumer, d.failures, e.type, e.payload, d.workspace_id, d.heard
    FROM opened o JOIN due d ON d.id = o.subject JOIN events e ON e.id = d.event_id;
END $$;
REVOKE ALL ON FUNCTION weighbridge.claim_event_deliveries(text, text[], interval, int) FROM PUBLIC;

-- The consumer has received the event.
CREATE OR REPLACE FUNCTION weighbridge.finish_event_delivery(p_token uuid) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_delivery uuid := fence(p_token);
BEGIN
    PERFORM close_attempt(p_token, 'done', NULL);
    UPDATE event_deliveries SET delivered_at = weighbridge.now(), last_error = NULL WHERE id = v_delivery;
END $$;
REVOKE ALL ON FUNCTION weighbridge.finish_event_delivery(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.finish_event_delivery(uuid) TO weighbridge_announce;

-- A NULL delay gives up: the row stays, with its last error, for an operator.
CREATE OR REPLACE FUNCTION weighbridge.fail_event_delivery(p_token uuid, p_delay interval, p_error text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
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
REVOKE ALL ON FUNCTION weighbridge.fail_event_delivery(uuid, interval, text) FROM PUBLIC;

-- The worker stopped while it delivered the event: counts as a failure. True: it was the last try.
CREATE OR REPLACE FUNCTION weighbridge.recover_event_delivery(p_delivery uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_gave_up boolean;
BEGIN
    UPDATE event_deliveries d
    SET failures = d.failures + 1, last_error = 'The worker stopped while delivering the event.',
        gave_up_at = CASE WHEN d.failures + 1 > 10 THEN weighbridge.now() END
    WHERE d.id = p_delivery AND d.delivered_at IS NULL
    RETURNING d.gave_up_at IS NOT NULL INTO v_gave_up;
    RETURN coalesce(v_gave_up, false);
END $$;
REVOKE ALL ON FUNCTION weighbridge.recover_event_delivery(uuid) FROM PUBLIC;

-- Alerts -----------------------------------------------------------------------------------------------------

-- Adds the event that an alert opened or closed.
CREATE OR REPLACE FUNCTION weighbridge.announce_alert(p_type text, p_alert weighbridge.alerts, p_message text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_no_workspace uuid := '00000000-0000-0000-0000-000000000000'; -- alerts are for operators and belong to no workspace
BEGIN
    PERFORM emit(v_no_workspace, NULL, p_type, jsonb_build_object(
        'condition', p_alert.condition, 'severity', p_alert.severity, 'message', p_message, 'alert_id', p_alert.id),
        ARRAY['alerts'], p_alert.id);
END $$;
REVOKE ALL ON FUNCTION weighbridge.announce_alert(text, weighbridge.alerts, text) FROM PUBLIC;

-- Opens an alert, once per episode: nothing happens while it is open, or while another transaction opens it. It does not wait
-- for that one: alerts about a provider or the service are shared by all workspaces.
CREATE OR REPLACE FUNCTION weighbridge.raise_alert(p_condition text, p_subject text, p_severity text, p_message text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
    AS $$
DECLARE
    v_alert alerts;
BEGIN
    IF EXISTS (SELECT FROM alerts a WHERE a.condition = p_condition AND a.subject = p_subject AND a.closed_at IS NULL)
       OR NOT pg_try_advisory_xact_lock(hashtextextended(p_condition || '/' || p_subject, 5)) THEN
        RETURN;
    END IF;
    INSERT INTO alerts (condition, subject, severity, message) VALUES (p_condition, p_subject, p_severity, p_message)
    ON CONFLICT DO NOTHING RETURNING * INTO v_alert;
    IF FOUND THEN
        PERFORM announce_alert('Alert', v_alert, p_message);
    END IF;
END $$;
REVOKE ALL ON FUNCTION weighbridge.raise_alert(text, text, text, text) FROM PUBLIC;

-- Closes an alert; nothing happens where none is open.
CREATE OR REPLACE FUNCTION weighbridge.withdraw_alert(p_condition text, p_subject text, p_message text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, pg_temp
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
REVOKE ALL ON FUNCTION weighbridge.withdraw_alert(text, text, text) FROM PUBLIC;
