-- Order of arrival: files that may have the same rows are promoted in the order in which they arrived.

CREATE SEQUENCE weighbridge.arrivals AS bigint;
GRANT USAGE ON SEQUENCE weighbridge.arrivals TO weighbridge_intake, weighbridge_promote;

ALTER TABLE public.data_uploads
    -- Later files have higher positions. An operator can give an upload a new one, behind all others.
    ADD COLUMN position bigint,
    -- Files with the same lane may have the same rows. NULL: the order of files does not matter. `db migrate` fills it for
    -- earlier uploads.
    ADD COLUMN lane text,
    -- It has rows in production, also from a run before an operator's retry.
    ADD COLUMN has_rows boolean NOT NULL DEFAULT false;
UPDATE public.data_uploads d SET position = n.position, has_rows = d.watermark_entity <> ''
FROM (SELECT id, row_number() OVER (ORDER BY created_at, id) AS position FROM public.data_uploads) n WHERE n.id = d.id;
SELECT setval('weighbridge.arrivals', coalesce(max(position), 0) + 1, false) FROM public.data_uploads;
ALTER TABLE public.data_uploads
    ALTER COLUMN position SET DEFAULT nextval('weighbridge.arrivals'),
    ALTER COLUMN position SET NOT NULL;

-- The files of a lane: all, those that have not ended, and those among them whose promotion has begun.
CREATE INDEX data_uploads_lane ON public.data_uploads (workspace_id, lane, position) WHERE lane IS NOT NULL;
CREATE INDEX data_uploads_lane_active ON public.data_uploads (workspace_id, lane, position)
    WHERE lane IS NOT NULL AND status IN ('pending', 'processing', 'staging_complete', 'promoting');
CREATE INDEX data_uploads_lane_begun ON public.data_uploads (workspace_id, lane, position)
    WHERE lane IS NOT NULL AND (status = 'promoting'
                                OR watermark_entity <> '' AND status IN ('pending', 'processing', 'staging_complete'));

-- Rows that were not staged because they were in production already.
ALTER TABLE weighbridge.staging_groups ADD COLUMN skipped boolean NOT NULL DEFAULT false;
