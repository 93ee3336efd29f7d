-- All candidates of a subproblem (NULL: of the run), the best first. What a reviewer or the engineer lowered
-- has no speedup.
SELECT c.candidate_id, c.parent_id, c.subproblem_id, c.author, c.iteration,
  CASE WHEN v.outcome = 'correct' THEN coalesce(s.lowered_to, v.outcome) ELSE v.outcome END AS outcome,
  CASE WHEN s.lowered_to IS NOT NULL THEN s.lowered_why ELSE v.detail END AS detail,
  CASE WHEN s.lowered_to IS NULL THEN v.speedup END AS speedup,
  CASE WHEN s.lowered_to IS NULL THEN v.estimate END AS estimate,
  v.time_ms, v.low_ms, v.high_ms, v.samples, v.baseline_ms, v.estimate_ms, v.max_error, v.cases_passed,
  v.cases, v.registers, v.spills, v.shared_bytes, v.shared_limit, v.device, v.flags, v.seconds, c.note,
  coalesce(s.in_beam, false) AS in_beam, coalesce(s.chosen, false) AS chosen,
  coalesce(s.swapped, false) AS swapped, coalesce(s.pinned, false) AS pinned, c.source_sha, c.seq, c."at"
FROM candidates AS c
LEFT JOIN (
  SELECT * FROM verdicts
  WHERE run_id = $run_id
  QUALIFY row_number() OVER (PARTITION BY candidate_id ORDER BY seq DESC) = 1
) AS v USING (candidate_id)
LEFT JOIN (SELECT * FROM standing WHERE run_id = $run_id) AS s USING (candidate_id)
WHERE c.run_id = $run_id AND ($subproblem_id IS NULL OR c.subproblem_id = $subproblem_id)
ORDER BY
  CASE WHEN s.lowered_to IS NULL THEN nullif(v.reward, 0) END DESC NULLS LAST, c.seq;
