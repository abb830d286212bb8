-- Rows of 200 workspaces, in every table that work reads: `many` of them per workspace in the large ones.
SET session_replication_role = replica; -- no triggers, no foreign keys
CREATE TEMP TABLE w AS
SELECT n, lpad(to_hex(n * 20000000::bigint), 8, '0') || '-0000-4000-8000-000000000000' AS text FROM generate_series(1, 200) AS n;
ALTER TABLE w ADD id uuid GENERATED ALWAYS AS (text::uuid) STORED;

INSERT INTO projects (workspace_id, id, name, grouped_at) SELECT w.id, p, 'p', now() FROM w, generate_series(1, 20) AS p;
INSERT INTO sites (id, workspace_id, name, providers)
SELECT md5(w.text || p)::uuid, w.id, 'site ' || p, '{google_ads}' FROM w, generate_series(1, 20) AS p;
CREATE TEMP TABLE s AS SELECT * FROM sites WHERE name LIKE 'site %%';

INSERT INTO data_uploads (id, workspace_id, platform, source, pipeline, filename, file_url, content_sha256, byte_size, status,
                          created_at, started_at, finished_at, project_id, promoted_rows, total_rows, storage_status)
SELECT md5(w.text || 'u' || p)::uuid, w.id, 'meta', 'api', CASE WHEN p %% 3 = 0 THEN 'keywords' ELSE 'ads' END, 'other.csv', 'file:///x',
       sha256(p::text::bytea), 10, CASE WHEN p %% 20 = 0 THEN 'failed' ELSE 'completed' END, now() - p * INTERVAL '1 hour',
       now() - p * INTERVAL '1 hour', now() - p * INTERVAL '1 hour', CASE WHEN p %% 3 = 0 THEN p %% 5 + 1 END, 10, 10, 'stored'
FROM w, generate_series(1, %(many)s / 20) AS p;
CREATE TEMP TABLE d AS SELECT * FROM data_uploads WHERE filename = 'other.csv';
INSERT INTO weighbridge.attempts (queue, subject, workspace_id, worker, opened_at, progressed_at, lease_until, closed_at, outcome)
SELECT 'uploads', d.id, d.workspace_id, 'w', d.created_at, d.created_at, d.created_at, d.created_at, 'done' FROM d;
INSERT INTO weighbridge.events (id, workspace_id, upload_id, type, payload)
SELECT d.id, d.workspace_id, d.id, 'IngestionCompleteEvent', '{}' FROM d;
INSERT INTO weighbridge.event_deliveries (event_id, workspace_id, consumer, delivered_at)
SELECT d.id, d.workspace_id, 'audit_log', now() FROM d;
INSERT INTO weighbridge.audit_log (workspace_id, actor, action, subject)
SELECT d.workspace_id, 'key', 'upload', d.id FROM d;
INSERT INTO upload_rejections (upload_id, workspace_id, row_index, line, stage, code, message)
SELECT d.id, d.workspace_id, p, p, 'parse', 'bad_number', 'x' FROM d, generate_series(1, 3) AS p;
INSERT INTO upload_warnings (upload_id, workspace_id, row_index, line, code, message)
SELECT d.id, d.workspace_id, p, p, 'x', 'x' FROM d, generate_series(1, 3) AS p;
INSERT INTO upload_duplicates (upload_id, workspace_id, filename) SELECT d.id, d.workspace_id, '' FROM d;
INSERT INTO weighbridge.upload_fixes (upload_id, workspace_id, row_index, original_upload, original_row)
SELECT d.id, d.workspace_id, 1, d.id, 1 FROM d;
INSERT INTO weighbridge.counted_blobs (workspace_id, blob_key, user_id, bytes)
SELECT d.workspace_id, d.id::text, d.workspace_id, 10 FROM d;
INSERT INTO storage_usage (workspace_id, user_id) SELECT w.id, md5(w.text || p)::uuid FROM w, generate_series(1, 5) AS p;

CREATE TEMP TABLE e AS
SELECT w.id AS workspace_id, weighbridge.entity_id(k.kind, w.text, '', 'meta', p::text) AS id, k.kind, p
FROM w, (VALUES ('campaign', 100), ('ad_set', 50), ('ad', 20)) AS k (kind, part), generate_series(1, %(many)s / k.part) AS p;
INSERT INTO campaigns (workspace_id, id, platform, external_id, upload_id, line, created_at, updated_at)
SELECT workspace_id, id, 'meta', p::text, id, 1, now(), now() FROM e WHERE kind = 'campaign';
INSERT INTO ad_sets (workspace_id, id, platform, external_id, upload_id, line, created_at, updated_at)
SELECT workspace_id, id, 'meta', p::text, id, 1, now(), now() FROM e WHERE kind = 'ad_set';
INSERT INTO ads (workspace_id, id, platform, external_id, upload_id, line, created_at, updated_at)
SELECT workspace_id, id, 'meta', p::text, id, 1, now(), now() FROM e WHERE kind = 'ad';
INSERT INTO daily_metrics (workspace_id, platform, metric_date, campaign_id, ad_set_id, ad_id, impressions, upload_id, line,
                           created_at, updated_at)
SELECT e.workspace_id, 'meta', DATE '2025-12-31' + d, NULL, NULL, e.id, 1, e.id, 1, now(), now()
FROM e, generate_series(1, 20) AS d WHERE e.kind = 'ad';
INSERT INTO weighbridge.receipts (workspace_id, target, scope, group_key, upload_id, digest, complete)
SELECT w.id, 'daily_metrics', '|meta', (DATE '2025-12-31' + d)::text, w.id, '\x00', true FROM w, generate_series(1, %(many)s / 20) AS d;

INSERT INTO staging.ads_daily_metric (upload_id, workspace_id, seq, row_index, line, metric_date)
SELECT w.id, w.id, p, p, p, '2026-01-01' FROM w, generate_series(1, %(many)s / 4) AS p;
INSERT INTO staging.ads_ad (upload_id, workspace_id, seq, row_index, line, id, natural_key_hash, external_id)
SELECT w.id, w.id, p, p, p, md5(p::text)::uuid, '\x00', p::text FROM w, generate_series(1, %(many)s / 10) AS p;
INSERT INTO staging_id_resolution (upload_id, workspace_id, entity_type, natural_key_hash, production_id)
SELECT e.workspace_id, e.workspace_id, e.kind, '\x00', e.id FROM e;
INSERT INTO weighbridge.staging_groups (upload_id, workspace_id, group_key, first_seq, last_seq, digest)
SELECT w.id, w.id, d::text, d, d, '\x00' FROM w, generate_series(1, %(many)s / 20) AS d;

INSERT INTO plaintiffs (workspace_id, id, dedupe_key, name)
SELECT w.id, weighbridge.entity_id('plaintiff', w.text, p::text), p::text, 'x' FROM w, generate_series(1, %(many)s / 20) AS p;
INSERT INTO judgments (workspace_id, case_number, plaintiff_name) SELECT w.id, p::text, 'x' FROM w, generate_series(1, %(many)s / 4) AS p;

INSERT INTO keywords (workspace_id, project_id, keyword_normalized, tokens, volume, upload_id, line, created_at, updated_at)
SELECT w.id, 1, 'word ' || p, p::text, p, w.id, 1, now(), now() FROM w, generate_series(1, %(many)s / 4) AS p;
INSERT INTO keyword_groups (workspace_id, project_id, id, signature, parent)
SELECT w.id, 1, md5(p::text)::uuid, p::text, 'word ' || p FROM w, generate_series(1, %(many)s / 4) AS p;
INSERT INTO group_keywords (workspace_id, project_id, keyword_normalized, group_id)
SELECT w.id, 1, 'word ' || p, md5(p::text)::uuid FROM w, generate_series(1, %(many)s / 4) AS p;
INSERT INTO token_merges (workspace_id, project_id, token, into_token) SELECT w.id, 1, 'a' || p, 'b' FROM w, generate_series(1, 20) AS p;

INSERT INTO sales (workspace_id, id, site_id, client_id, order_id, occurred_at, gclid)
SELECT s.workspace_id, md5(s.id::text || p)::uuid, s.id, s.id, 'other ' || p, now(), 'g' FROM s, generate_series(1, %(many)s / 100) AS p;
INSERT INTO offline_conversion_queue (sale_id, provider_key, workspace_id, site_id, status, order_id, click_type, click_id, occurred_at,
                                      uploaded_at, provider_request_id)
SELECT s.id, 'google_ads', s.workspace_id, s.site_id, 'COMPLETED', s.order_id, 'gclid', 'g', now(), now(), 'r' FROM sales s WHERE s.order_id LIKE 'other %%';
INSERT INTO provider_upload_metrics (site_id, provider_key, workspace_id) SELECT id, 'google_ads', workspace_id FROM s;
INSERT INTO provider_health_state (site_id, provider_key, workspace_id) SELECT id, 'google_ads', workspace_id FROM s;
INSERT INTO provider_upload_attempts (workspace_id, site_id, provider_key, batch_id, phase, claimed_count)
SELECT s.workspace_id, s.id, 'google_ads', md5(s.id::text || p)::uuid, 'STARTED', 1 FROM s, generate_series(1, %(many)s / 100) AS p;
DROP TABLE d, e, s, w;
RESET session_replication_role;
