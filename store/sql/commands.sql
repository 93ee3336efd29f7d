-- The engineer's requests, oldest first: queued, accepted, applied, refused or withdrawn.
SELECT command_id, kind, subproblem_ids, candidate_id, text, status, detail, iteration
FROM commands
WHERE run_id = $run_id
ORDER BY position;
