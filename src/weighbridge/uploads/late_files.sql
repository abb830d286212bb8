-- name: later_uploads
SELECT id, client_id, platform, project_id, column_report, groups FROM weighbridge.later_uploads(%s)
