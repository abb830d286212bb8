-- Fair turns: every queue gives its next slot to the workspace that has the fewest.

-- When each workspace last got a slot of a worker. The slot after that goes to another workspace with waiting work.
CREATE TABLE weighbridge.turns (
    workspace_id uuid PRIMARY KEY,
    served_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Waiting files of one machine, by workspace.
CREATE INDEX upload_queue_turn ON public.upload_queue (spool_id, workspace_id, next_retry_at, id)
    WHERE retry_count < max_retries;

-- Waiting deliveries of one consumer, by workspace. It replaces an index without them.
CREATE INDEX event_deliveries_turn ON weighbridge.event_deliveries (consumer, workspace_id, run_after, id)
    WHERE delivered_at IS NULL AND gave_up_at IS NULL;
DROP INDEX weighbridge.event_deliveries_waiting;
