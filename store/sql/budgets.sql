-- Kernel-writing calls as they were allocated; the last allocation of an iteration holds.
SELECT iteration, subproblem_id, calls, reason FROM budgets
WHERE run_id = $run_id
QUALIFY row_number() OVER (PARTITION BY iteration, subproblem_id ORDER BY seq DESC) = 1
ORDER BY iteration, subproblem_id;
