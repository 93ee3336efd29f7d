-- Each part's share of the whole's time, measured, or modelled where nothing is measured.
SELECT iteration, after, name, time_ms, calls, time_ms / nullif(sum(time_ms) OVER (PARTITION BY seq), 0) AS share
FROM shares
WHERE run_id = $run_id
ORDER BY seq, time_ms DESC NULLS LAST;
