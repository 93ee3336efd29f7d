-- Tries to fuse the finished codebase into one file, in order.
SELECT ordinal, outcome, detail, speedup, estimate, time_ms, low_ms, high_ms, samples, baseline, baseline_ms,
  max_error, device, note, source_sha, seq, "at"
FROM postfused
WHERE run_id = $run_id
ORDER BY seq;
