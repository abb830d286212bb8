-- Order of arrival: files that may have the same rows are promoted in the order in which they arrived.

CREATE SEQUENCE weighbridge.arrivals AS bigint;

ALTER TABLE public.data_uploads
    -- Later files have higher positions. An operator can give an upload a new one, behind all others.
    ADD COLUMN position bigint NOT NULL DEFAULT nextval('weighbridge.arrivals'),
    -- Files with the same lane may have the same rows. NULL: the order of files does not matter.
    ADD COLUMN lane text;

-- The files of a lane that have not ended, and all of them.
CREATE INDEX data_uploads_lane_active ON public.data_uploads (workspace_id, lane, position)
    WHERE lane IS NOT NULL AND status IN ('pending', 'processing', 'staging_complete', 'promoting');
CREATE INDEX data_uploads_lane ON public.data_uploads (workspace_id, lane, position) WHERE lane IS NOT NULL;

-- Rows that were not staged because they were in production already.
ALTER TABLE weighbridge.staging_groups ADD COLUMN skipped boolean NOT NULL DEFAULT false;

GRANT USAGE ON SEQUENCE weighbridge.arrivals TO weighbridge_intake, weighbridge_promote;
