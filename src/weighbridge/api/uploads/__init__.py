"""Routes of uploads.

models       request and response models
recognise    detects the pipeline and platform of a file
upload_route receives files in one request; multipart_parser reads its form, describe documents it in OpenAPI
resumable    receives a file in parts; tus_headers reads its headers, exclusive_requests admits one
             request at a time
fields       the fields of an upload, checked in the same way for both
manage       list, inspect and retry uploads
live         live updates: server-sent events and a WebSocket
preview      the changes of an upload on hold; promote or discard it
rejects      the rejected rows as CSV
"""
