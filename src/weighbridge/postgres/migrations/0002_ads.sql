-- The ads pipeline's production tables (S1 §3.5).
--
-- workspace_id leads every key, so that the tables can be sharded by it. The ids of dimension rows are cut from
-- their natural key's hash; the constraint keeps every writer to that, so a fact's ids need no look-up. Every row
-- says which upload and line wrote it last.

CREATE TABLE public.campaigns (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    name text,
    status text,
    objective text,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id),
    CONSTRAINT campaigns_id_from_key CHECK (id = weighbridge.entity_id(
        'campaign', workspace_id::text, coalesce(client_id::text, ''), platform, external_id))
);

CREATE TABLE public.ad_sets (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    campaign_id uuid,
    name text,
    status text,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id),
    FOREIGN KEY (workspace_id, campaign_id) REFERENCES public.campaigns (workspace_id, id),
    CONSTRAINT ad_sets_id_from_key CHECK (id = weighbridge.entity_id(
        'ad_set', workspace_id::text, coalesce(client_id::text, ''), platform, external_id))
);

CREATE TABLE public.ads (
    workspace_id uuid NOT NULL,
    id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    campaign_id uuid,
    ad_set_id uuid,
    name text,
    status text,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, id),
    UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id),
    FOREIGN KEY (workspace_id, campaign_id) REFERENCES public.campaigns (workspace_id, id),
    FOREIGN KEY (workspace_id, ad_set_id) REFERENCES public.ad_sets (workspace_id, id),
    CONSTRAINT ads_id_from_key CHECK (id = weighbridge.entity_id(
        'ad', workspace_id::text, coalesce(client_id::text, ''), platform, external_id))
);

-- No foreign keys: three of them triple the cost of an insert (docs/decisions.md). keep_dimension below does
-- their work from the other side. The natural key is the only index.
CREATE TABLE public.daily_metrics (
    workspace_id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    metric_date date NOT NULL,
    campaign_id uuid,
    ad_set_id uuid,
    ad_id uuid,
    impressions bigint CHECK (impressions >= 0),
    clicks bigint CHECK (clicks >= 0),
    spend numeric(18,6),
    currency text,
    conversions numeric(18,6),
    conversion_value numeric(18,6),
    reach bigint CHECK (reach >= 0),
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT daily_metrics_key UNIQUE NULLS NOT DISTINCT
        (workspace_id, client_id, platform, metric_date, campaign_id, ad_set_id, ad_id)
);

-- A dimension row stays while facts name it, or while a staged or promoting upload may still write such facts.
CREATE FUNCTION weighbridge.keep_dimension() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(OLD.workspace_id::text, 1));
    IF EXISTS (SELECT FROM data_uploads
               WHERE workspace_id = OLD.workspace_id
                 AND (status IN ('staging_complete', 'promoting')
                      OR status IN ('pending', 'processing') AND watermark_entity <> '')) -- to be staged again
       OR EXISTS (SELECT FROM daily_metrics f
                  WHERE f.workspace_id = OLD.workspace_id AND f.client_id IS NOT DISTINCT FROM OLD.client_id
                    AND f.platform = OLD.platform
                    AND CASE TG_TABLE_NAME WHEN 'campaigns' THEN f.campaign_id
                                           WHEN 'ad_sets' THEN f.ad_set_id ELSE f.ad_id END = OLD.id)
    THEN
        RAISE EXCEPTION '% % is in use by daily_metrics', TG_TABLE_NAME, OLD.id
            USING ERRCODE = 'foreign_key_violation',
                  HINT = 'Delete its daily_metrics first, while no upload of the workspace is being promoted.';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER keep_dimension BEFORE DELETE ON public.campaigns FOR EACH ROW EXECUTE FUNCTION weighbridge.keep_dimension();
CREATE TRIGGER keep_dimension BEFORE DELETE ON public.ad_sets FOR EACH ROW EXECUTE FUNCTION weighbridge.keep_dimension();
CREATE TRIGGER keep_dimension BEFORE DELETE ON public.ads FOR EACH ROW EXECUTE FUNCTION weighbridge.keep_dimension();
REVOKE EXECUTE ON FUNCTION weighbridge.keep_dimension() FROM PUBLIC;

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['campaigns', 'ad_sets', 'ads', 'daily_metrics'] LOOP
        EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY workspace ON public.%I USING (workspace_id = (SELECT weighbridge.workspace()))', t);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE ON public.%I TO weighbridge_promote', t);
        EXECUTE format('GRANT SELECT ON public.%I TO weighbridge_tenant', t);
    END LOOP;
END $$;

-- Whoever else writes to the facts makes their receipts worthless.
CREATE TRIGGER void_receipts AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON public.daily_metrics
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts();
