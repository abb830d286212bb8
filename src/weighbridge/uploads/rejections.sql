-- name: add_rejection
INSERT INTO public.upload_rejections (upload_id, workspace_id, row_index, line, stage, column_name, code, message, raw, more)
VALUES (%(upload)s, %(workspace)s, %(row_index)s, %(line)s, %(stage)s, %(column_name)s, %(code)s, %(message)s, %(raw)s,
        %(more)s)
ON CONFLICT DO NOTHING

-- name: add_warning
INSERT INTO public.upload_warnings (upload_id, workspace_id, row_index, line, code, message)
VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING

-- name: rejections_without_raw
SELECT row_index FROM public.upload_rejections WHERE upload_id = %s AND stage = 'promote' AND raw IS NULL

-- name: set_raw
UPDATE public.upload_rejections SET raw = %s WHERE upload_id = %s AND row_index = %s AND stage = 'promote'
