-- What the calls of each role took in all runs of the folder; replays asked nobody.
SELECT c.role, count(*) AS calls, sum(c.tokens_in)::BIGINT AS tokens_in, sum(c.tokens_out)::BIGINT AS tokens_out
FROM llm_calls AS c
JOIN runs AS r USING (run_id)
WHERE c.failure IS NULL AND c.tokens_in > 0 AND r.replay IS NULL
GROUP BY c.role
ORDER BY c.role;
