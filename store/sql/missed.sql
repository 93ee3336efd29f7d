-- Kernel-writing calls that gave no candidate, in order; NULL: of all subproblems.
SELECT m.candidate_id, m.subproblem_id, b.iteration, m.outcome, m.reason, m.seq, m."at"
FROM missed AS m
ASOF LEFT JOIN budgets AS b
  ON b.run_id = m.run_id AND b.subproblem_id = m.subproblem_id AND b.seq <= m.seq
WHERE m.run_id = $run_id AND ($subproblem_id IS NULL OR m.subproblem_id = $subproblem_id)
ORDER BY m.seq;
