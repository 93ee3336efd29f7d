-- What became of a subproblem from one iteration to the next, where it changed.
SELECT from_iteration, from_id, to_iteration, to_id, cause
FROM edges
WHERE run_id = $run_id
ORDER BY from_iteration, from_id, to_id;
