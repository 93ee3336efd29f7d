-- The newest entries first, a sentence each.
SELECT seq, "at", kind, sentence FROM entries
WHERE run_id = $run_id
ORDER BY seq DESC
LIMIT $count;
