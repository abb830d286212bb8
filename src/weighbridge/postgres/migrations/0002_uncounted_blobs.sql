-- Blobs that could not be counted when their uploads were recorded: a worker counts them again until it succeeds.
CREATE TABLE weighbridge.uncounted_blobs (
    upload_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    user_id uuid NOT NULL,
    bytes bigint NOT NULL,
    reservation uuid, -- of its bytes, which then ends
    since timestamptz NOT NULL DEFAULT weighbridge.now()
);
