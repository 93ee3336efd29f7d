-- One row for each iteration and subproblem, as of the end of that iteration (the running one: as of now).
SELECT t.iteration, l.lane, t.* EXCLUDE (run_id, iteration)
FROM tree AS t
JOIN lanes AS l USING (run_id, subproblem_id)
WHERE t.run_id = $run_id
ORDER BY t.iteration, t.position;
