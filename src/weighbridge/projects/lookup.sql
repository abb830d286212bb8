-- Keywords and groups by name. Only keys are compared, along an index and in the order of the lists, and reading stops at
-- the end of the page.

-- name: keywords_with
-- Keywords that contain a text, of the project or of one group.
SELECT w.keyword_normalized FROM public.keywords w
WHERE w.workspace_id = %(workspace)s AND w.project_id = %(project)s AND w.keyword_normalized > %(after)s
  AND strpos(w.keyword_normalized, %(text)s) > 0
  AND (%(group)s::uuid IS NULL OR EXISTS (
      SELECT FROM public.group_keywords e
      WHERE e.workspace_id = %(workspace)s AND e.project_id = %(project)s
        AND e.keyword_normalized = w.keyword_normalized AND e.group_id = %(group)s))
ORDER BY w.keyword_normalized LIMIT %(limit)s

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
