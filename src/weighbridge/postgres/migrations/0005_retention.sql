-- Retention of history: attempts, events, the audit log, rejected rows and others are removed when their time is over.

-- When the records of each kind were last looked through, so that one process of many does it.
CREATE TABLE weighbridge.retention_runs (
    kind text PRIMARY KEY,
    ran_at timestamptz NOT NULL
);
