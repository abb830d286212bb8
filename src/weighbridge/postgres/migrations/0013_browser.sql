-- What a browser holds instead of a key is signed: a session of the console, and a token that may only upload.
-- All processes sign with the same secret, made here once from Postgres's own strong randomness. No role but the
-- owner may read it. Another row in its place ends every session and token, as soon as the API is started anew.

CREATE TABLE weighbridge.signing (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    secret bytea NOT NULL DEFAULT sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea)
        CHECK (length(secret) = 32)
);
INSERT INTO weighbridge.signing DEFAULT VALUES;
REVOKE ALL ON weighbridge.signing FROM PUBLIC;
