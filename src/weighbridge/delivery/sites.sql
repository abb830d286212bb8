-- name: make_site
-- No row if the name is taken.
INSERT INTO public.sites (workspace_id, name, providers)
VALUES (%(workspace)s, %(name)s, coalesce(%(providers)s::text[], '{google_datamanager}'))
ON CONFLICT (workspace_id, name) DO NOTHING
RETURNING id, workspace_id, name, providers, created_at

-- name: change_site
UPDATE public.sites s
SET name = coalesce(%(name)s, s.name), providers = coalesce(%(providers)s::text[], s.providers)
WHERE s.workspace_id = %(workspace)s AND s.id = %(id)s
RETURNING s.id, s.workspace_id, s.name, s.providers, s.created_at

-- name: get_sites
SELECT id, workspace_id, name, providers, created_at FROM public.sites
WHERE (%(workspace)s::uuid IS NULL OR workspace_id = %(workspace)s) AND (%(id)s::uuid IS NULL OR id = %(id)s)
  AND name > %(after)s
ORDER BY name LIMIT %(limit)s

-- name: known_providers
SELECT provider_key FROM weighbridge.providers ORDER BY provider_key

-- name: existing_sites
SELECT id FROM public.sites WHERE workspace_id = %s AND id = ANY (%s)

-- name: sites_named
SELECT id, workspace_id, name, providers, created_at FROM public.sites
WHERE name = %(name)s AND (%(workspace)s::uuid IS NULL OR workspace_id = %(workspace)s)
ORDER BY workspace_id LIMIT 2

-- name: site_names
SELECT DISTINCT name FROM public.sites
WHERE %(workspace)s::uuid IS NULL OR workspace_id = %(workspace)s
ORDER BY name LIMIT 1000
