-- name: page_of_rejected_rows
-- Rejected rows after a position in the file, in file order: the open ones, or all.
SELECT row_index, line, stage, column_name, code, message, raw, more
FROM public.upload_rejections
WHERE upload_id = %s AND (row_index, stage) > (%s, %s) AND (%s OR fixed_by IS NULL)
ORDER BY row_index, stage
LIMIT %s

-- name: page_of_warnings
-- Warnings about loaded rows, after a position in the file; row -1 is the file as a whole.
SELECT row_index, line, code, message
FROM public.upload_warnings
WHERE upload_id = %s AND (row_index, code) > (%s, %s)
ORDER BY row_index, code
LIMIT %s

-- name: reasons
-- Reasons for rejections, most frequent first, with the first line of each.
SELECT code, column_name, count(*), (array_agg(line ORDER BY line))[1], (array_agg(message ORDER BY line))[1]
FROM public.upload_rejections
WHERE upload_id = %s
GROUP BY code, column_name
ORDER BY count(*) DESC, code, column_name
LIMIT %s

-- name: trace
-- The timeline of an upload: received, its states, attempts, events, deliveries, operators' actions.
SELECT at, what, detail FROM (
    SELECT d.created_at AS at, 'received' AS what,
           format('%%s, %%s bytes, %%s', d.source, d.byte_size, coalesce(d.filename, 'no name')) AS detail, 0 AS rank
    FROM public.data_uploads d WHERE d.id = %(upload)s
    UNION ALL
    -- Sorted before its effects: both have the same time, and the operator's action is written last.
    SELECT l.at - INTERVAL '20 ms', l.action || CASE WHEN (l.detail ->> 'force_partial')::boolean THEN ', by force' ELSE '' END,
           coalesce((SELECT format('%%s (%%s)', k.name, l.actor) FROM weighbridge.api_keys k WHERE l.actor = 'key ' || k.id),
                    l.actor), 1
    FROM weighbridge.audit_log l WHERE l.subject = %(upload)s
    UNION ALL
    SELECT a.opened_at, 'attempt opened', a.worker, 2 FROM weighbridge.attempts a WHERE a.subject = %(upload)s
    UNION ALL
    SELECT s.at, s.status, s.why, 3
    FROM public.data_uploads d, LATERAL (
        SELECT state ->> 0 AS status, (state ->> 1)::timestamptz AS at, coalesce(state ->> 2, '') AS why
        FROM jsonb_array_elements(d.states) AS state
        UNION ALL
        SELECT d.status, d.finished_at, concat_ws(': ', d.error_code, d.error_text)
        WHERE d.states = '[]' AND d.finished_at IS NOT NULL
    ) AS s
    WHERE d.id = %(upload)s
    UNION ALL
    SELECT a.closed_at, 'attempt ' || a.outcome, concat_ws(': ', a.worker, a.error), 4
    FROM weighbridge.attempts a WHERE a.subject = %(upload)s AND a.closed_at IS NOT NULL
    UNION ALL
    SELECT e.created_at, e.type, '', 5 FROM weighbridge.events e WHERE e.upload_id = %(upload)s
    UNION ALL
    SELECT coalesce(v.delivered_at, v.gave_up_at), CASE WHEN v.delivered_at IS NULL THEN 'not delivered' ELSE 'delivered' END,
           concat_ws(': ', v.consumer, v.last_error), 6
    FROM weighbridge.events e
    CROSS JOIN LATERAL (SELECT * FROM weighbridge.event_deliveries v WHERE v.event_id = e.id OFFSET 0) v
    WHERE e.upload_id = %(upload)s AND coalesce(v.delivered_at, v.gave_up_at) IS NOT NULL
) AS moments
ORDER BY at, rank
