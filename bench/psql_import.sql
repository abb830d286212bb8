-- A Meta daily export on standard input → the four tables. Nothing is validated beyond what the types refuse.

BEGIN;

CREATE TEMP TABLE export (
    line int GENERATED ALWAYS AS IDENTITY,
    day date,
    campaign_name text,
    campaign_id text COLLATE "C",
    ad_set_name text,
    ad_set_id text COLLATE "C",
    ad_name text,
    ad_id text COLLATE "C",
    reach bigint,
    impressions bigint,
    clicks bigint,
    spend numeric(18,6),
    purchases numeric(18,6),
    value numeric(18,6)
) ON COMMIT DROP;

\copy export (day, campaign_name, campaign_id, ad_set_name, ad_set_id, ad_name, ad_id, reach, impressions, clicks, spend, purchases, value) FROM pstdin WITH (FORMAT csv, HEADER)

DELETE FROM export WHERE day IS NULL; -- the totals row
ANALYZE export;

INSERT INTO campaigns (workspace_id, platform, external_id, name, upload_id, line)
SELECT DISTINCT ON (campaign_id) :'workspace'::uuid, 'meta', campaign_id, campaign_name, :'upload'::uuid, line
FROM export
ORDER BY campaign_id, line DESC
ON CONFLICT (workspace_id, client_id, platform, external_id) DO UPDATE
SET name = excluded.name, upload_id = excluded.upload_id, line = excluded.line, updated_at = excluded.updated_at;

INSERT INTO ad_sets (workspace_id, platform, external_id, campaign_id, name, upload_id, line)
SELECT DISTINCT ON (e.ad_set_id) c.workspace_id, 'meta', e.ad_set_id, c.id, e.ad_set_name, :'upload'::uuid, e.line
FROM export e
JOIN campaigns c ON c.workspace_id = :'workspace' AND c.platform = 'meta' AND c.external_id = e.campaign_id
ORDER BY e.ad_set_id, e.line DESC
ON CONFLICT (workspace_id, client_id, platform, external_id) DO UPDATE
SET campaign_id = excluded.campaign_id, name = excluded.name,
    upload_id = excluded.upload_id, line = excluded.line, updated_at = excluded.updated_at;

INSERT INTO ads (workspace_id, platform, external_id, campaign_id, ad_set_id, name, upload_id, line)
SELECT DISTINCT ON (e.ad_id) s.workspace_id, 'meta', e.ad_id, s.campaign_id, s.id, e.ad_name, :'upload'::uuid, e.line
FROM export e
JOIN ad_sets s ON s.workspace_id = :'workspace' AND s.platform = 'meta' AND s.external_id = e.ad_set_id
ORDER BY e.ad_id, e.line DESC
ON CONFLICT (workspace_id, client_id, platform, external_id) DO UPDATE
SET campaign_id = excluded.campaign_id, ad_set_id = excluded.ad_set_id, name = excluded.name,
    upload_id = excluded.upload_id, line = excluded.line, updated_at = excluded.updated_at;

ANALYZE campaigns, ad_sets, ads;

INSERT INTO daily_metrics (workspace_id, platform, metric_date, campaign_id, ad_set_id, ad_id, impressions, clicks,
                           spend, currency, conversions, conversion_value, reach, upload_id, line)
SELECT a.workspace_id, 'meta', e.day, a.campaign_id, a.ad_set_id, a.id, e.impressions, e.clicks,
       e.spend, 'USD', e.purchases, e.value, e.reach, :'upload'::uuid, e.line
FROM export e
JOIN ads a ON a.workspace_id = :'workspace' AND a.platform = 'meta' AND a.external_id = e.ad_id
ON CONFLICT (workspace_id, client_id, platform, metric_date, campaign_id, ad_set_id, ad_id) DO UPDATE
SET impressions = excluded.impressions, clicks = excluded.clicks, spend = excluded.spend,
    currency = excluded.currency, conversions = excluded.conversions,
    conversion_value = excluded.conversion_value, reach = excluded.reach,
    upload_id = excluded.upload_id, line = excluded.line, updated_at = excluded.updated_at;

COMMIT;

SELECT count(*) FROM daily_metrics;
