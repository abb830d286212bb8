-- Running it: alerts, takeovers, dead letters, and what metrics are read from.
--
-- alerts   one row per condition and episode; opening and closing one puts an event in the outbox
--
-- A condition is raised and withdrawn in the transaction that finds it, so no crash loses an alert, and sent by whoever
-- announces, so no dead webhook holds anything up.

-- Alerts ----------------------------------------------------------------------------------------------------

CREATE TABLE weighbridge.alerts (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    condition text NOT NULL, -- ingest_failure, stale_takeover, dead_letters, backlog
    subject text NOT NULL DEFAULT '', -- the upload, where it is about one
    severity text NOT NULL CHECK (severity IN ('ERROR', 'WARNING')),
    message text NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    closed_at timestamptz
);
CREATE UNIQUE INDEX alerts_open ON weighbridge.alerts (condition, subject) WHERE closed_at IS NULL;

-- Events that are not about one upload, or several about the same.
ALTER TABLE weighbridge.events ALTER COLUMN upload_id DROP NOT NULL;
ALTER TABLE weighbridge.events DROP CONSTRAINT events_upload_id_type_key;
CREATE UNIQUE INDEX events_once ON weighbridge.events (upload_id, type) WHERE type = 'IngestionCompleteEvent';
CREATE INDEX events_upload ON weighbridge.events (upload_id);
ALTER TABLE weighbridge.events ADD COLUMN alert_id uuid; -- which alert it opens or closes
CREATE INDEX events_alert ON weighbridge.events (alert_id) WHERE alert_id IS NOT NULL;
-- Addresses that have taken it, where one consumer has several.
ALTER TABLE weighbridge.event_deliveries ADD COLUMN heard text[] NOT NULL DEFAULT '{}';

-- As before, and: the end of an alert is not told before its beginning, however often that has to be tried.
DROP FUNCTION weighbridge.claim_deliveries(text, text[], interval, int);
CREATE FUNCTION weighbridge.claim_deliveries(p_worker text, p_consumers text[], p_lease interval, p_limit int)
    RETURNS TABLE (lease_token uuid, delivery_id uuid, event_id uuid, consumer text, failures int, type text, payload jsonb,
                   workspace_id uuid, heard text[])
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

CREATE FUNCTION weighbridge.announce_alert(p_type text, p_alert weighbridge.alerts, p_message text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Once per episode: nothing happens while the alert is open.
CREATE FUNCTION weighbridge.raise_alert(p_condition text, p_subject text, p_severity text, p_message text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

CREATE FUNCTION weighbridge.withdraw_alert(p_condition text, p_subject text, p_message text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- What a batch is called in logs and alerts: as its sender called it, or by its upload. Never the file's name.
CREATE FUNCTION weighbridge.batch_name(p_upload public.data_uploads) RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT coalesce(p_upload.source_batch_id, p_upload.id::text) $$;

-- Failures and recoveries of uploads, wherever the status comes from (S3 §5.2).
CREATE FUNCTION weighbridge.alert_on_status() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_takeover alerts;
BEGIN
    IF NEW.status = 'failed' THEN
        PERFORM raise_alert('ingest_failure', NEW.id::text, 'ERROR',
            format('[INGEST FAILURE] %s: %s', batch_name(NEW), coalesce(NEW.error_code, 'unknown')));
    ELSE
        PERFORM withdraw_alert('ingest_failure', NEW.id::text, format('[INGEST RECOVERED] %s: %s', batch_name(NEW), NEW.status));
    END IF;
    SELECT * INTO v_takeover FROM alerts
    WHERE condition = 'stale_takeover' AND subject LIKE NEW.id || '/%' AND closed_at IS NULL
    ORDER BY opened_at DESC LIMIT 1; -- one word for all of them
    UPDATE alerts SET closed_at = weighbridge.now()
    WHERE condition = 'stale_takeover' AND subject LIKE NEW.id || '/%' AND closed_at IS NULL;
    IF FOUND AND NEW.status <> 'failed' THEN
        PERFORM announce_alert('AlertRecovered', v_takeover,
            format('[STALE TAKEOVER RECOVERED] %s: %s', batch_name(NEW), NEW.status));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER alert_on_status AFTER UPDATE OF status ON public.data_uploads
    FOR EACH ROW WHEN (NEW.status IN ('completed', 'partial', 'failed') AND OLD.status <> NEW.status)
    EXECUTE FUNCTION weighbridge.alert_on_status();

-- Dead letters: failed uploads that no operator has looked at.
ALTER TABLE public.data_uploads ADD COLUMN dismissed_at timestamptz;
CREATE INDEX data_uploads_dead ON public.data_uploads (finished_at) WHERE status = 'failed' AND (dismissed_at IS NULL OR dismissed_at < finished_at);

CREATE FUNCTION weighbridge.dismiss_upload(p_upload uuid, p_actor text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- The two conditions that are about all uploads together. Any number of workers may ask at once: an alert is open
-- once. Returns what it counted.
CREATE FUNCTION weighbridge.watch_queues(p_dead_letters int, p_backlog int) RETURNS TABLE (dead_letters bigint, backlog bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    SELECT count(*) INTO dead_letters FROM data_uploads WHERE status = 'failed' AND (dismissed_at IS NULL OR dismissed_at < finished_at);
    SELECT (SELECT count(*) FROM data_uploads WHERE status IN ('pending', 'staging_complete'))
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

-- Takeovers -------------------------------------------------------------------------------------------------

-- Runs whose attempt is gone: a restored backup, a hand in psql. Nobody will ever take them back but us.
CREATE INDEX data_uploads_under_way ON public.data_uploads (started_at) WHERE status IN ('processing', 'promoting');
CREATE VIEW weighbridge.orphans AS
SELECT s.id, s.source_batch_id, s.started_at, s.hours_stale::double precision
FROM ingest.v_stale_runs s
WHERE NOT EXISTS (SELECT FROM weighbridge.attempts a
                  WHERE a.queue = 'uploads' AND a.subject = s.id AND a.closed_at IS NULL);

-- Gives an upload back that its worker left. A rescue counts as a crash; an upload that crashes its workers too often
-- fails instead of going round for ever: then the answer is true.
CREATE FUNCTION weighbridge.rescue(p_upload uuid, p_batch text, p_episode text, p_hours double precision, p_max_crashes int)
    RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
DECLARE
    v_gave_up boolean;
BEGIN
    IF p_batch IS NULL THEN -- the upload itself is gone
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

-- Closes every attempt whose lease ran out and gives its upload back, and every upload that has no attempt any more.
DROP FUNCTION weighbridge.recover(int);
CREATE FUNCTION weighbridge.recover(p_max_crashes int)
    RETURNS TABLE (queue text, subject uuid, worker text, opened_at timestamptz, hours double precision, batch text,
                   gave_up boolean)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := weighbridge.now();
    v_dead record;
    v_any boolean := false;
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
        gave_up := coalesce(gave_up, false);
        v_any := true;
        RETURN NEXT;
    END LOOP;

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

-- The next upload whose turn it is. In the same statement what was abandoned goes back to its queue first, so that it
-- can be claimed again at once; a live run has a lease that has not run out, and is not touched (S3 §2).
CREATE FUNCTION weighbridge.take_up(
    p_worker text, p_from text[], p_pipelines text[], p_lease interval, p_per_workspace int, p_max_crashes int
) RETURNS TABLE (upload_id uuid, lease_token uuid, abandoned jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- A run that nobody works on, given back or given up by hand.
CREATE FUNCTION weighbridge.abandon(p_upload uuid, p_fail boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
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

-- Figures ---------------------------------------------------------------------------------------------------

-- What has ended. Not what waits: a claim finds that by its turn, and an index by state would only mislead it.
CREATE INDEX data_uploads_ended ON public.data_uploads (workspace_id, status, finished_at) INCLUDE (started_at)
    WHERE status IN ('completed', 'partial', 'failed');

-- S3 §6 for the workspace that asks. A definer: attempts, which say what is stale, are closed to tenants.
CREATE FUNCTION weighbridge.workspace_figures() RETURNS TABLE (
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
        SELECT -- in two, as there are two partial indexes
               (SELECT count(*) FROM data_uploads d WHERE d.workspace_id = (SELECT id FROM mine)
                AND d.status IN ('pending', 'staging_complete'))
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

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA weighbridge, ingest FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ingest.run_status(text) TO PUBLIC; -- whoever may read import_runs needs it
GRANT EXECUTE ON FUNCTION weighbridge.now(), weighbridge.workspace(), weighbridge.natural_key_hash(text[]),
    weighbridge.entity_id(text[]) TO PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.workspace_figures() TO weighbridge_tenant;
