-- name: credentials_of_site
-- Metadata of a site's credentials, never their values.
SELECT site_id, provider_key, version, key_id, refused_at, refused_code, updated_at FROM public.provider_credentials
WHERE site_id = %s ORDER BY provider_key

-- name: next_version
SELECT greatest(nextval('weighbridge.credential_versions'), max(version) + 1) FROM public.provider_credentials
WHERE site_id = %s AND provider_key = %s

-- name: set_credentials
SELECT weighbridge.set_credentials(%s, %s, %s, %s, %s, %s, %s)

-- name: remove_credentials
WITH removed AS (
    DELETE FROM public.provider_credentials c
    WHERE c.workspace_id = %(workspace)s AND c.site_id = %(site)s AND c.provider_key = %(provider)s
    RETURNING c.workspace_id, c.site_id, c.provider_key, c.version
),
audited AS (
    INSERT INTO weighbridge.audit_log (workspace_id, actor, action, subject, detail)
    SELECT r.workspace_id, %(actor)s, 'credentials.remove', r.site_id,
           jsonb_build_object('provider_key', r.provider_key, 'version', r.version)
    FROM removed r
)
SELECT weighbridge.withdraw_alert('credentials_refused', r.site_id || '/' || r.provider_key,
                                  format('[DELIVERY] %%s of site %%s no longer has credentials', r.provider_key, r.site_id))
FROM removed r

-- name: credentials_of_groups
SELECT c.site_id, c.provider_key, c.version, c.key_id, c.nonce, c.ciphertext
FROM unnest(%s::uuid[], %s::text[]) AS w (site_id, provider_key)
JOIN public.provider_credentials c USING (site_id, provider_key)

-- name: credentials_of_provider
SELECT site_id, provider_key, version, key_id, nonce, ciphertext FROM public.provider_credentials
WHERE provider_key = %s AND refused_at IS NULL ORDER BY site_id

-- name: refuse_credentials
SELECT weighbridge.refuse_credentials(%s, %s, %s, %s)

-- name: sealed_with_other_keys
SELECT site_id, provider_key, version, key_id, nonce, ciphertext FROM public.provider_credentials
WHERE key_id <> %(key)s
  AND (%(site)s::uuid IS NULL OR (site_id, provider_key) > (%(site)s::uuid, %(provider)s::text))
ORDER BY site_id, provider_key LIMIT %(limit)s
FOR UPDATE -- a transaction that replaces one of them waits

-- name: reseal_credentials
SELECT weighbridge.reseal_credentials(%s, %s, %s, %s, %s, %s)

-- name: keys_in_use
SELECT key_id, count(*) FROM public.provider_credentials GROUP BY key_id ORDER BY key_id
