-- What was spent from the start to the end of each iteration, and why its topology is what it is.
SELECT iteration, calls, minutes, tokens, cost, decomposition_id, cause, reason
FROM iterations
WHERE run_id = $run_id
ORDER BY iteration;
