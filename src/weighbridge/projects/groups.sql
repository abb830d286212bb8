-- Grouping, in one transaction: each ungrouped keyword gets the group of its signature.

-- name: prepare
-- Right after a load the planner has no statistics for these tables. A nested loop over a million rows would never end;
-- hash joins do in any case. Where a lookup by key is right, OFFSET 0 enforces it.
SELECT set_config('enable_nestloop', 'off', true), set_config('work_mem', %s, true), set_config('statement_timeout', %s, true)

-- name: make_ungrouped
-- Collected once, so that the planner knows how many there are: three in a million, or all of them.
CREATE TEMP TABLE ungrouped (keyword_normalized text COLLATE "C", signature text COLLATE "C", volume bigint) ON COMMIT DROP

-- name: collect_ungrouped
WITH merges AS MATERIALIZED (
    SELECT array_agg(token) AS tokens, jsonb_object_agg(token, into_token) AS map
    FROM public.token_merges WHERE workspace_id = %(workspace)s AND project_id = %(project)s
)
INSERT INTO pg_temp.ungrouped (keyword_normalized, signature, volume)
SELECT k.keyword_normalized,
       CASE WHEN string_to_array(k.tokens, ' ') && (SELECT tokens FROM merges)
            THEN weighbridge.signature(k.tokens, (SELECT map FROM merges)) ELSE k.tokens END,
       k.volume
FROM public.keywords k
WHERE k.workspace_id = %(workspace)s AND k.project_id = %(project)s
  AND NOT EXISTS (SELECT FROM public.group_keywords m
                  WHERE m.workspace_id = %(workspace)s AND m.project_id = %(project)s
                    AND m.keyword_normalized = k.keyword_normalized)

-- name: analyze_ungrouped
ANALYZE pg_temp.ungrouped

-- name: make_groups
-- A group for every signature that has none; its parent by volume, then length, then alphabet.
INSERT INTO public.keyword_groups (workspace_id, project_id, signature, parent)
SELECT DISTINCT ON (u.signature) %(workspace)s::uuid, %(project)s::bigint, u.signature, u.keyword_normalized
FROM pg_temp.ungrouped u
ORDER BY u.signature, coalesce(u.volume, 0) DESC, length(u.keyword_normalized), u.keyword_normalized
ON CONFLICT (workspace_id, project_id, signature) WHERE NOT confirmed DO UPDATE SET stale = true

-- name: join_groups
INSERT INTO public.group_keywords (workspace_id, project_id, keyword_normalized, group_id)
SELECT %(workspace)s, %(project)s, u.keyword_normalized, g.id
FROM pg_temp.ungrouped u
JOIN public.keyword_groups g ON g.workspace_id = %(workspace)s AND g.project_id = %(project)s
 AND g.signature = u.signature AND NOT g.confirmed
ORDER BY u.keyword_normalized

-- name: drop_empty_groups
DELETE FROM public.keyword_groups g
WHERE g.workspace_id = %(workspace)s AND g.project_id = %(project)s AND g.stale
  AND NOT EXISTS (SELECT FROM public.group_keywords m
                  WHERE m.workspace_id = %(workspace)s AND m.project_id = %(project)s AND m.group_id = g.id OFFSET 0)

-- name: find_parents
-- For groups whose keywords changed.
UPDATE public.keyword_groups g
SET stale = false, parent = (
    SELECT k.keyword_normalized
    FROM (SELECT m.keyword_normalized FROM public.group_keywords m
          WHERE m.workspace_id = %(workspace)s AND m.project_id = %(project)s AND m.group_id = g.id OFFSET 0) m
    CROSS JOIN LATERAL (
        SELECT k.keyword_normalized, k.volume FROM public.keywords k
        WHERE k.workspace_id = %(workspace)s AND k.project_id = %(project)s
          AND k.keyword_normalized = m.keyword_normalized OFFSET 0) k
    ORDER BY coalesce(k.volume, 0) DESC, length(k.keyword_normalized), k.keyword_normalized LIMIT 1)
WHERE g.workspace_id = %(workspace)s AND g.project_id = %(project)s AND g.stale

-- Edits: removing keywords from a group marks it stale; the statements above do the rest.

-- name: ungroup_changed
-- Keywords that would now be grouped differently, except confirmed ones and those moved by hand. With tokens: only
-- keywords with one of them; with a group: only its own.
WITH merges AS MATERIALIZED (
    SELECT array_agg(token) AS tokens, jsonb_object_agg(token, into_token) AS map
    FROM public.token_merges WHERE workspace_id = %(workspace)s AND project_id = %(project)s
), removed AS (
    DELETE FROM public.group_keywords m USING public.keyword_groups g, public.keywords k
    WHERE m.workspace_id = %(workspace)s AND m.project_id = %(project)s
      AND g.workspace_id = %(workspace)s AND g.project_id = %(project)s AND g.id = m.group_id
      AND k.workspace_id = %(workspace)s AND k.project_id = %(project)s AND k.keyword_normalized = m.keyword_normalized
      AND (%(tokens)s::text[] IS NULL OR string_to_array(k.tokens, ' ') && %(tokens)s::text[])
      AND (%(group)s::uuid IS NULL OR g.id = %(group)s)
      AND NOT g.confirmed AND NOT m.by_hand
      AND g.signature IS DISTINCT FROM CASE
          WHEN string_to_array(k.tokens, ' ') && (SELECT tokens FROM merges)
          THEN weighbridge.signature(k.tokens, (SELECT map FROM merges)) ELSE k.tokens END
    RETURNING m.group_id
)
UPDATE public.keyword_groups g SET stale = true
WHERE g.workspace_id = %(workspace)s AND g.project_id = %(project)s AND g.id IN (SELECT group_id FROM removed)

-- name: forget_manual_moves
-- Treats keywords that were moved by hand as automatic again, except in confirmed groups.
UPDATE public.group_keywords m SET by_hand = false
FROM public.keyword_groups g
WHERE m.workspace_id = %(workspace)s AND m.project_id = %(project)s AND m.by_hand
  AND g.workspace_id = %(workspace)s AND g.project_id = %(project)s AND g.id = m.group_id AND NOT g.confirmed

-- name: merged_into
-- The token that a token is merged into; itself if it is not merged.
SELECT coalesce((SELECT into_token FROM public.token_merges
                 WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND token = %(token)s), %(token)s)

-- name: merge_tokens
-- Tokens that were merged into one of these follow it. Returns all tokens whose merge changed.
WITH redirected AS (
    UPDATE public.token_merges SET into_token = %(into)s
    WHERE workspace_id = %(workspace)s AND project_id = %(project)s
      AND into_token = ANY (%(tokens)s::text[]) AND token <> ALL (%(tokens)s::text[])
    RETURNING token
), merged AS (
    INSERT INTO public.token_merges AS t (workspace_id, project_id, token, into_token)
    SELECT %(workspace)s, %(project)s, one.token, %(into)s FROM unnest(%(tokens)s::text[]) AS one (token)
    ON CONFLICT (workspace_id, project_id, token) DO UPDATE SET into_token = excluded.into_token
    WHERE t.into_token <> excluded.into_token
    RETURNING t.token
)
SELECT token FROM redirected UNION SELECT token FROM merged

-- name: unmerge_tokens
DELETE FROM public.token_merges
WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND token = ANY (%(tokens)s::text[])
RETURNING token

-- name: rename_group
UPDATE public.keyword_groups SET name = %(name)s
WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND id = %(group)s

-- name: confirm_group
UPDATE public.keyword_groups SET confirmed = true
WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND id = %(group)s

-- name: merge_into_confirmed
-- A group with the signature of a confirmed one that was created meanwhile: its keywords move to the confirmed one, and
-- it becomes stale and empty.
WITH merged AS (
    UPDATE public.keyword_groups t SET stale = true, signature = NULL
    FROM public.keyword_groups g
    WHERE g.workspace_id = %(workspace)s AND g.project_id = %(project)s AND g.id = %(group)s AND g.confirmed
      AND t.workspace_id = %(workspace)s AND t.project_id = %(project)s AND t.signature = g.signature
      AND NOT t.confirmed AND t.id <> g.id
    RETURNING t.id
)
UPDATE public.group_keywords m SET group_id = %(group)s
WHERE m.workspace_id = %(workspace)s AND m.project_id = %(project)s AND m.group_id IN (SELECT id FROM merged)

-- name: unconfirm_group
UPDATE public.keyword_groups SET confirmed = false, stale = true
WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND id = %(group)s

-- name: make_group
INSERT INTO public.keyword_groups (workspace_id, project_id, name, stale)
VALUES (%(workspace)s, %(project)s, %(name)s, true)
RETURNING id

-- name: unknown_keywords
SELECT w.keyword FROM unnest(%(keywords)s::text[]) WITH ORDINALITY AS w (keyword, place)
WHERE NOT EXISTS (SELECT FROM public.keywords k
                  WHERE k.workspace_id = %(workspace)s AND k.project_id = %(project)s AND k.keyword_normalized = w.keyword)
ORDER BY w.place

-- name: leave_groups
WITH removed AS (
    DELETE FROM public.group_keywords m
    WHERE m.workspace_id = %(workspace)s AND m.project_id = %(project)s AND m.keyword_normalized = ANY (%(keywords)s::text[])
    RETURNING m.group_id
)
UPDATE public.keyword_groups g SET stale = true
WHERE g.workspace_id = %(workspace)s AND g.project_id = %(project)s AND g.id IN (SELECT group_id FROM removed)

-- name: enter_group
WITH joined AS (
    INSERT INTO public.group_keywords (workspace_id, project_id, keyword_normalized, group_id, by_hand)
    SELECT DISTINCT %(workspace)s::uuid, %(project)s::bigint, one.keyword, %(group)s::uuid, true
    FROM unnest(%(keywords)s::text[]) AS one (keyword)
)
UPDATE public.keyword_groups SET stale = true
WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND id = %(group)s

-- Reading. Groups are ordered by parent, keywords alphabetically; both bytewise. OFFSET 0 fixes the order of the
-- joins: right after a load the planner has no statistics.

-- name: groups
-- One page, or one group. Two branches, so that each has its own index in every plan.
SELECT g.id, coalesce(g.name, head.keyword, g.parent, '') AS name, g.name IS NOT NULL AS renamed, g.parent,
       g.signature AS tokens, g.confirmed, g.created_at, sums.keywords, sums.volume
FROM (
    (SELECT * FROM public.keyword_groups
     WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND %(group)s::uuid IS NULL
       AND (parent, id) > (%(parent)s, %(id)s)
     ORDER BY parent, id LIMIT %(limit)s)
    UNION ALL
    SELECT * FROM public.keyword_groups
    WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND id = %(group)s
) g
LEFT JOIN LATERAL (
    SELECT k.keyword FROM public.keywords k
    WHERE k.workspace_id = g.workspace_id AND k.project_id = g.project_id AND k.keyword_normalized = g.parent OFFSET 0
) head ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS keywords, coalesce(sum(k.volume), 0)::bigint AS volume
    FROM (SELECT m.keyword_normalized FROM public.group_keywords m
          WHERE m.workspace_id = g.workspace_id AND m.project_id = g.project_id AND m.group_id = g.id OFFSET 0) m
    CROSS JOIN LATERAL (
        SELECT k.volume FROM public.keywords k
        WHERE k.workspace_id = g.workspace_id AND k.project_id = g.project_id
          AND k.keyword_normalized = m.keyword_normalized OFFSET 0) k
) sums
ORDER BY g.parent, g.id

-- name: members
-- The keywords of some groups.
SELECT one.id, k.keyword
FROM unnest(%(groups)s::uuid[]) AS one (id)
CROSS JOIN LATERAL (
    SELECT m.keyword_normalized FROM public.group_keywords m
    WHERE m.workspace_id = %(workspace)s AND m.project_id = %(project)s AND m.group_id = one.id OFFSET 0
) m
CROSS JOIN LATERAL (
    SELECT coalesce(k.keyword, k.keyword_normalized) AS keyword FROM public.keywords k
    WHERE k.workspace_id = %(workspace)s AND k.project_id = %(project)s
      AND k.keyword_normalized = m.keyword_normalized OFFSET 0
) k
ORDER BY one.id, m.keyword_normalized

-- name: keyword_page
SELECT keyword_normalized FROM public.keywords
WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND keyword_normalized > %(after)s
ORDER BY keyword_normalized LIMIT %(limit)s

-- name: keyword_page_of_group
SELECT keyword_normalized FROM public.group_keywords
WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND group_id = %(group)s AND keyword_normalized > %(after)s
ORDER BY keyword_normalized LIMIT %(limit)s

-- name: get_keywords
SELECT k.keyword_normalized, coalesce(k.keyword, k.keyword_normalized) AS keyword, k.tokens, k.volume, k.difficulty, k.cpc,
       k.clicks, k.impressions, m.group_id, coalesce(m.by_hand, false) AS by_hand, k.upload_id, k.line
FROM unnest(%(keywords)s::text[]) AS one (keyword_normalized)
CROSS JOIN LATERAL (
    SELECT * FROM public.keywords k
    WHERE k.workspace_id = %(workspace)s AND k.project_id = %(project)s
      AND k.keyword_normalized = one.keyword_normalized OFFSET 0
) k
LEFT JOIN LATERAL (
    SELECT m.group_id, m.by_hand FROM public.group_keywords m
    WHERE m.workspace_id = %(workspace)s AND m.project_id = %(project)s
      AND m.keyword_normalized = one.keyword_normalized OFFSET 0
) m ON true
ORDER BY k.keyword_normalized

-- name: merges
SELECT token, into_token FROM public.token_merges
WHERE workspace_id = %(workspace)s AND project_id = %(project)s
ORDER BY into_token, token
