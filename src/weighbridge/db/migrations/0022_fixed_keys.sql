-- Promotion compares a fixed record with what the upload that it is from has loaded.
GRANT SELECT ON weighbridge.upload_fixes TO weighbridge_promote;
