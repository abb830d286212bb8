-- The keywords pipeline (S2): keywords of a project, and their groups.
--
-- keywords        what files say: one row per keyword of a project. Only promotion writes it
-- keyword_groups  keywords of one meaning: the same canonical tokens, or put together by hand
-- group_keywords  which keyword is in which group; one that is not here is ungrouped
-- token_merges    tokens that count as another: sneaker → shoe
--
-- Grouping (db/sql/grouping.sql) gives each ungrouped keyword the group of its signature: its tokens, with merges applied,
-- distinct and sorted. A confirmed group is never touched: keywords that come later with its signature get a group beside
-- it. So the groups depend on the keywords alone, not on the order in which they came.

CREATE TABLE public.keywords (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    keyword_normalized text COLLATE "C" NOT NULL CHECK (keyword_normalized <> ''),
    keyword text COLLATE "C",
    tokens text COLLATE "C" NOT NULL CHECK (tokens <> ''), -- joined by a space
    volume bigint CHECK (volume >= 0),
    difficulty numeric(18,6),
    cpc numeric(18,6),
    clicks bigint,
    impressions bigint,
    upload_id uuid NOT NULL,
    line int NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, project_id, keyword_normalized)
);

CREATE TABLE public.keyword_groups (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    signature text COLLATE "C", -- NULL: made by hand
    name text COLLATE "C" CHECK (length(name) BETWEEN 1 AND 200), -- given by hand; else it goes by its parent
    parent text COLLATE "C", -- the keyword_normalized of its head: highest volume, then shortest, then first by alphabet
    confirmed boolean NOT NULL DEFAULT false,
    stale boolean NOT NULL DEFAULT false, -- its keywords changed: the parent is to be found again
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (workspace_id, project_id, id)
) WITH (fillfactor = 80); -- stale comes and goes without touching an index
CREATE UNIQUE INDEX keyword_groups_signature ON public.keyword_groups (workspace_id, project_id, signature)
    WHERE NOT confirmed;
CREATE INDEX keyword_groups_parent ON public.keyword_groups (workspace_id, project_id, parent, id);

-- No foreign keys: checking them doubles the time that grouping a million keywords takes. Rows come and go only with
-- what they name (db/sql/grouping.sql); a test compares both sides after every kind of edit.
CREATE TABLE public.group_keywords (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    keyword_normalized text COLLATE "C" NOT NULL,
    group_id uuid NOT NULL,
    by_hand boolean NOT NULL DEFAULT false, -- moved by somebody: grouping leaves it where it is
    PRIMARY KEY (workspace_id, project_id, keyword_normalized)
);
CREATE INDEX group_keywords_group ON public.group_keywords (workspace_id, project_id, group_id);

CREATE TABLE public.token_merges (
    workspace_id uuid NOT NULL,
    project_id bigint NOT NULL,
    token text COLLATE "C" NOT NULL,
    into_token text COLLATE "C" NOT NULL CHECK (into_token <> token), -- never one that is merged itself
    created_at timestamptz NOT NULL DEFAULT weighbridge.now(),
    PRIMARY KEY (workspace_id, project_id, token)
);

-- What decides the group of a keyword: its tokens, each as what it counts as. `p_merges` is token → token.
CREATE FUNCTION weighbridge.signature(p_tokens text, p_merges jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT string_agg(DISTINCT coalesce(p_merges ->> t.token, t.token) COLLATE "C", ' '
                          ORDER BY coalesce(p_merges ->> t.token, t.token) COLLATE "C")
        FROM unnest(string_to_array(p_tokens, ' ')) AS t (token)
    $$;

-- A volume that changes may make another keyword the head of its group; of a confirmed one it does not.
CREATE FUNCTION weighbridge.note_volumes() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    UPDATE keyword_groups g SET stale = true
    FROM after_it a
    JOIN before_it b USING (workspace_id, project_id, keyword_normalized)
    JOIN group_keywords m USING (workspace_id, project_id, keyword_normalized)
    WHERE a.volume IS DISTINCT FROM b.volume
      AND g.workspace_id = m.workspace_id AND g.project_id = m.project_id AND g.id = m.group_id
      AND NOT g.confirmed AND NOT g.stale;
    RETURN NULL;
END $$;
CREATE TRIGGER note_volumes AFTER UPDATE ON public.keywords
    REFERENCING OLD TABLE AS before_it NEW TABLE AS after_it
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.note_volumes();

-- A keyword that is deleted leaves its group, whoever deletes it.
CREATE FUNCTION weighbridge.leave_groups() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = weighbridge, public, pg_temp
    AS $$
BEGIN
    WITH left_behind AS (
        DELETE FROM group_keywords m USING before_it b
        WHERE m.workspace_id = b.workspace_id AND m.project_id = b.project_id AND m.keyword_normalized = b.keyword_normalized
        RETURNING m.*
    )
    UPDATE keyword_groups g SET stale = true FROM left_behind l
    WHERE g.workspace_id = l.workspace_id AND g.project_id = l.project_id AND g.id = l.group_id AND NOT g.stale;
    RETURN NULL;
END $$;
CREATE TRIGGER leave_groups AFTER DELETE ON public.keywords
    REFERENCING OLD TABLE AS before_it FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.leave_groups();

DO $$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['keywords', 'keyword_groups', 'group_keywords', 'token_merges'] LOOP
        EXECUTE format('ALTER TABLE public.%I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY workspace ON public.%I USING (workspace_id = (SELECT weighbridge.workspace()))', t);
        EXECUTE format('GRANT SELECT ON public.%I TO weighbridge_tenant', t);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE ON public.keywords TO weighbridge_promote;
GRANT SELECT ON public.keywords TO weighbridge_group;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.keyword_groups, public.group_keywords, public.token_merges TO weighbridge_group;
CREATE TRIGGER void_receipts AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON public.keywords
    FOR EACH STATEMENT EXECUTE FUNCTION weighbridge.void_receipts();
-- Grouping collects what it is about to group in a temporary table.
DO $$ BEGIN EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO weighbridge_group', current_database()); END $$;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA weighbridge FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.now(), weighbridge.workspace(), weighbridge.natural_key_hash(text[]),
    weighbridge.entity_id(text[]), weighbridge.job_status(text) TO PUBLIC;
GRANT EXECUTE ON FUNCTION weighbridge.signature(text, jsonb) TO weighbridge_group;
