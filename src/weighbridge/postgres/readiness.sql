-- name: installed_pipelines
SELECT name, fingerprint FROM weighbridge.pipelines
