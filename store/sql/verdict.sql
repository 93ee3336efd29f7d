SELECT json FROM verdicts
WHERE run_id = $run_id AND candidate_id = $candidate_id
ORDER BY seq DESC
LIMIT 1;
