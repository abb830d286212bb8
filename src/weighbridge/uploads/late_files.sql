-- name: later_files
SELECT id, client_id, platform, project_id, column_report, groups FROM weighbridge.later_uploads(%s)
