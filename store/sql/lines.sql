-- A point for each subproblem and iteration, and for the whole ('e2e'; after the final swap 'e2e swapped').
WITH whole AS (
  SELECT CASE WHEN after = 'swap' THEN 'e2e swapped' ELSE 'e2e' END AS subproblem_id, iteration, speedup,
    estimate, coalesce(outcome, 'missing') AS outcome
  FROM end_to_end
  WHERE run_id = $run_id
  QUALIFY row_number() OVER (PARTITION BY after = 'swap', iteration ORDER BY seq DESC) = 1
), parts AS (
  SELECT subproblem_id, iteration, speedup, estimate, outcome FROM tree
  WHERE run_id = $run_id AND outcome IS NOT NULL
), points AS (
  SELECT * FROM whole UNION ALL SELECT * FROM parts
)
SELECT p.subproblem_id, p.iteration, i.calls, i.minutes, i.tokens, i.cost, p.speedup, p.estimate, p.outcome
FROM points AS p
JOIN iterations AS i ON i.run_id = $run_id AND i.iteration = p.iteration
ORDER BY p.subproblem_id, p.iteration;
