-- Retention of history: attempts, events, the audit log, rejected rows and others are removed when their time is over.

-- When a process last looked for old records, so that one of many does it.
CREATE TABLE weighbridge.retention_run (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    ran_at timestamptz NOT NULL DEFAULT weighbridge.now() -- a new database has nothing to remove
);
INSERT INTO weighbridge.retention_run DEFAULT VALUES;
