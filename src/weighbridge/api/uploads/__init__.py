"""Routes of uploads: send, list, retry, preview, rejects, resumable uploads, live updates."""
