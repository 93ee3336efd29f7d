-- Every evaluation of the whole; the same parts measured after a swap are apart from the iteration's.
SELECT iteration, after, outcome, detail, speedup, estimate, missing, time_ms, low_ms, high_ms, samples,
  baseline, baseline_ms, max_error, device, decomposition_id, codebase_sha, seq, "at"
FROM end_to_end
WHERE run_id = $run_id
ORDER BY seq;
