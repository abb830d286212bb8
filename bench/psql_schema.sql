-- The ads tables as one would write them by hand: the columns and keys of ours, random ids, ordinary foreign keys.

CREATE TABLE campaigns (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    name text,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id)
);

CREATE TABLE ad_sets (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    campaign_id uuid REFERENCES campaigns,
    name text,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id)
);

CREATE TABLE ads (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    workspace_id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    campaign_id uuid REFERENCES campaigns,
    ad_set_id uuid REFERENCES ad_sets,
    name text,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, external_id)
);

CREATE TABLE daily_metrics (
    workspace_id uuid NOT NULL,
    client_id uuid,
    platform text COLLATE "C" NOT NULL,
    metric_date date NOT NULL,
    campaign_id uuid REFERENCES campaigns,
    ad_set_id uuid REFERENCES ad_sets,
    ad_id uuid REFERENCES ads,
    impressions bigint CHECK (impressions >= 0),
    clicks bigint CHECK (clicks >= 0),
    spend numeric(18,6),
    currency text,
    conversions numeric(18,6),
    conversion_value numeric(18,6),
    reach bigint CHECK (reach >= 0),
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (workspace_id, client_id, platform, metric_date, campaign_id, ad_set_id, ad_id)
);
