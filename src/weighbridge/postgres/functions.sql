-- Functions that table definitions call: time, workspace, ids, checks.
--
-- Defaults, CHECK constraints and row-level security policies need these functions, so this file is applied before
-- the migrations, as soon as the schema weighbridge exists, and again with the files of the other subjects after
-- them. Bodies are not checked when a function is created: now() reads weighbridge.clock, which the first migration
-- creates.
--
-- Rules for every functions.sql:
--   * The files are the source of truth. `weighbridge db migrate` applies all of them when one has changed, and drops
--     functions of the schemas weighbridge and ingest that no file defines.
--   * CREATE OR REPLACE keeps the rights that a function has. Those of our roles in these two schemas are revoked before
--     the files are applied, and each function is followed by its REVOKE and GRANT: afterwards only the grants of the
--     files remain.
--   * A function with other parameter types is another function, and the old one is dropped. One that returns another
--     type, or renames a parameter, has to be dropped by a migration first: Postgres does not replace it.
--   * Functions that change tables are SECURITY DEFINER with a fixed search_path. Roles may execute them and cannot
--     write to the tables otherwise. The path does not contain public, where others may create objects: names of that
--     schema are qualified.
--
-- Own SQLSTATEs: WB001 the lease is lost, WB002 not an allowed transition, WB003 the server crashed during the lease,
-- WB004 the project is being processed, WB005 there is no such project, WB009 a dry run rolls back.

-- Time -------------------------------------------------------------------------------------------------------

-- The only clock. Tests move it with UPDATE weighbridge.clock SET shift = …
CREATE OR REPLACE FUNCTION weighbridge.now() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT clock_timestamp() + shift FROM weighbridge.clock $$;
GRANT EXECUTE ON FUNCTION weighbridge.now() TO PUBLIC;

-- The month to which usage counters belong, in UTC.
CREATE OR REPLACE FUNCTION weighbridge.billing_month() RETURNS text
    LANGUAGE sql STABLE
    AS $$ SELECT to_char(weighbridge.now() AT TIME ZONE 'UTC', 'YYYY-MM') $$;
REVOKE ALL ON FUNCTION weighbridge.billing_month() FROM PUBLIC;

-- Workspace --------------------------------------------------------------------------------------------------

-- The workspace that this transaction acts for; row-level security compares with it. NULL: none.
CREATE OR REPLACE FUNCTION weighbridge.workspace() RETURNS uuid
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('weighbridge.workspace_id', true), '')::uuid $$;
GRANT EXECUTE ON FUNCTION weighbridge.workspace() TO PUBLIC;

-- The same, where the transaction must act for a workspace.
CREATE OR REPLACE FUNCTION weighbridge.acting_workspace() RETURNS uuid
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    IF weighbridge.workspace() IS NULL THEN
        RAISE EXCEPTION 'the transaction acts for no workspace' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN weighbridge.workspace();
END $$;
REVOKE ALL ON FUNCTION weighbridge.acting_workspace() FROM PUBLIC;

-- Ids --------------------------------------------------------------------------------------------------------

-- SHA-256 of the parts of a natural key: entity, workspace, scope, key columns; '' replaces NULL.
CREATE OR REPLACE FUNCTION weighbridge.natural_key_hash(VARIADIC parts text[]) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT sha256(convert_to(array_to_string(parts, E'\x1f', ''), 'UTF8')) $$;
GRANT EXECUTE ON FUNCTION weighbridge.natural_key_hash(text[]) TO PUBLIC;

-- The id of a dimension row: a version 8 UUID derived from that hash, so that any program can compute it.
CREATE OR REPLACE FUNCTION weighbridge.entity_id(VARIADIC parts text[]) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT encode(set_byte(set_byte(h, 6, (get_byte(h, 6) & 15) | 128), 8, (get_byte(h, 8) & 63) | 128), 'hex')::uuid
        FROM (SELECT substring(weighbridge.natural_key_hash(VARIADIC parts) FROM 1 FOR 16)) AS cut (h)
    $$;
GRANT EXECUTE ON FUNCTION weighbridge.entity_id(text[]) TO PUBLIC;

-- The id of a sale. It begins with the time: sales that are received together are close together in every index, also in
-- that of the queue, which gets a new entry with each change of status. A random id would touch another page for each row.
CREATE OR REPLACE FUNCTION weighbridge.new_id() RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$
        SELECT encode(overlay(uuid_send(gen_random_uuid()) PLACING
                              substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1), 'hex')::uuid
    $$;
GRANT EXECUTE ON FUNCTION weighbridge.new_id() TO PUBLIC;

-- Checks -----------------------------------------------------------------------------------------------------

-- True where every value is a SHA-256 digest: no e-mail address and no phone number can be stored.
CREATE OR REPLACE FUNCTION weighbridge.only_digests(p_people jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
        SELECT jsonb_typeof(p_people) = 'object' AND (SELECT coalesce(bool_and(value ~ '^[0-9a-f]{64}$'), true)
                                                      FROM jsonb_each_text(p_people))
    $$;
GRANT EXECUTE ON FUNCTION weighbridge.only_digests(jsonb) TO PUBLIC;
