-- name: write_sales
-- Writes sales in one statement; its triggers create the queue rows. An existing sale keeps values that the new one
-- lacks, except a click time that would now be after the sale. Returned rows were created or changed.
INSERT INTO public.sales AS t (workspace_id, site_id, client_id, order_id, conversation_id, occurred_at, clicked_at, value,
                               currency, gclid, wbraid, gbraid, fbclid, ttclid, user_data)
SELECT %(workspace)s, n.site_id, n.site_id, n.order_id, n.conversation_id, n.occurred_at, n.clicked_at, n.value, n.currency,
       n.gclid, n.wbraid, n.gbraid, n.fbclid, n.ttclid, n.user_data
FROM jsonb_to_recordset(%(sales)s) AS n (
    site_id uuid, order_id text, conversation_id uuid, occurred_at timestamptz, clicked_at timestamptz, value numeric,
    currency text, gclid text, wbraid text, gbraid text, fbclid text, ttclid text, user_data jsonb)
ORDER BY n.site_id, n.order_id COLLATE "C" -- two requests with the same sales must not wait for each other
ON CONFLICT (workspace_id, client_id, order_id) DO UPDATE
SET conversation_id = coalesce(excluded.conversation_id, t.conversation_id), occurred_at = excluded.occurred_at,
    clicked_at = coalesce(excluded.clicked_at, CASE WHEN t.clicked_at <= excluded.occurred_at THEN t.clicked_at END),
    value = coalesce(excluded.value, t.value), currency = coalesce(excluded.currency, t.currency),
    gclid = coalesce(excluded.gclid, t.gclid), wbraid = coalesce(excluded.wbraid, t.wbraid),
    gbraid = coalesce(excluded.gbraid, t.gbraid), fbclid = coalesce(excluded.fbclid, t.fbclid),
    ttclid = coalesce(excluded.ttclid, t.ttclid), user_data = t.user_data || excluded.user_data,
    updated_at = weighbridge.now()
WHERE (t.conversation_id, t.occurred_at, t.clicked_at, t.value, t.currency, t.gclid, t.wbraid, t.gbraid, t.fbclid, t.ttclid,
       t.user_data)
      IS DISTINCT FROM
      (coalesce(excluded.conversation_id, t.conversation_id), excluded.occurred_at,
       coalesce(excluded.clicked_at, CASE WHEN t.clicked_at <= excluded.occurred_at THEN t.clicked_at END),
       coalesce(excluded.value, t.value), coalesce(excluded.currency, t.currency), coalesce(excluded.gclid, t.gclid),
       coalesce(excluded.wbraid, t.wbraid), coalesce(excluded.gbraid, t.gbraid), coalesce(excluded.fbclid, t.fbclid),
       coalesce(excluded.ttclid, t.ttclid), t.user_data || excluded.user_data)
RETURNING t.site_id, t.order_id, xmax = 0 AS created

-- name: sale_ids
SELECT s.site_id, s.order_id, s.id
FROM unnest(%(sites)s::uuid[], %(orders)s::text[]) AS n (site_id, order_id)
JOIN public.sales s ON s.workspace_id = %(workspace)s AND s.client_id = n.site_id AND s.order_id = n.order_id

-- name: deliveries_of
SELECT sale_id, provider_key, status FROM public.offline_conversion_queue
WHERE sale_id = ANY (%s) ORDER BY sale_id, provider_key
