-- Keywords and groups by name. They are read along their keys in the order of the lists, and reading stops at the end
-- of the page: no row is read twice, and none beyond the page.

-- name: keywords_with
-- Keywords that contain a text, of the project or of one group. Only keys are compared; matches are then read in full.
SELECT k.keyword_normalized, coalesce(k.keyword, k.keyword_normalized) AS keyword, k.tokens, k.volume, k.difficulty, k.cpc,
       k.clicks, k.impressions, m.group_id, coalesce(m.by_hand, false) AS by_hand, k.upload_id, k.line
FROM (
    SELECT w.keyword_normalized FROM public.keywords w
    WHERE w.workspace_id = %(workspace)s AND w.project_id = %(project)s AND w.keyword_normalized > %(after)s
      AND strpos(w.keyword_normalized, %(text)s) > 0
      AND (%(group)s::uuid IS NULL OR EXISTS (
          SELECT FROM public.group_keywords e
          WHERE e.workspace_id = %(workspace)s AND e.project_id = %(project)s
            AND e.keyword_normalized = w.keyword_normalized AND e.group_id = %(group)s))
    ORDER BY w.keyword_normalized LIMIT %(limit)s
) f
CROSS JOIN LATERAL (
    SELECT * FROM public.keywords k
    WHERE k.workspace_id = %(workspace)s AND k.project_id = %(project)s
      AND k.keyword_normalized = f.keyword_normalized OFFSET 0
) k
LEFT JOIN LATERAL (
    SELECT m.group_id, m.by_hand FROM public.group_keywords m
    WHERE m.workspace_id = %(workspace)s AND m.project_id = %(project)s
      AND m.keyword_normalized = f.keyword_normalized OFFSET 0
) m ON true
ORDER BY k.keyword_normalized

-- name: groups_with
-- Groups whose parent or own name contains a text.
SELECT id FROM public.keyword_groups
WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND (parent, id) > (%(parent)s, %(id)s)
  AND (strpos(parent, %(text)s) > 0 OR strpos(lower(name), lower(%(typed)s)) > 0)
ORDER BY parent, id LIMIT %(limit)s

-- name: groups_called
-- By exact parent or own name.
SELECT id FROM public.keyword_groups
WHERE workspace_id = %(workspace)s AND project_id = %(project)s AND (parent = %(text)s OR name = %(typed)s)
ORDER BY parent, id LIMIT 2

-- name: group_names
SELECT g.id, coalesce(g.name, head.keyword, g.parent, '')
FROM unnest(%(groups)s::uuid[]) AS one (id)
CROSS JOIN LATERAL (
    SELECT * FROM public.keyword_groups g
    WHERE g.workspace_id = %(workspace)s AND g.project_id = %(project)s AND g.id = one.id OFFSET 0
) g
LEFT JOIN LATERAL (
    SELECT k.keyword FROM public.keywords k
    WHERE k.workspace_id = g.workspace_id AND k.project_id = g.project_id AND k.keyword_normalized = g.parent OFFSET 0
) head ON true
