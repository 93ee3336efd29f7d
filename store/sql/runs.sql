-- All runs, the newest first; an unreadable one is a row with its reason.
SELECT * FROM runs ORDER BY started_at DESC NULLS LAST, run_id DESC;
