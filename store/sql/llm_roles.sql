-- What each role took; calls that asked again are apart ('repair'). One unknown makes a sum unknown.
SELECT CASE WHEN reask > 0 THEN 'repair' ELSE role END AS role,
  string_agg(DISTINCT model, ', ' ORDER BY model) AS models,
  count(*) FILTER (failure IS NULL) AS calls,
  count(*) FILTER (failure IS NOT NULL) AS failed,
  CASE WHEN count(tokens_in) = count(*) THEN sum(tokens_in)::BIGINT END AS tokens_in,
  CASE WHEN count(tokens_in) = count(*) THEN sum(tokens_cached)::BIGINT END AS tokens_cached,
  CASE WHEN count(tokens_out) = count(*) THEN sum(tokens_out)::BIGINT END AS tokens_out,
  CASE WHEN count(cost) = count(*) THEN sum(cost) END AS cost,
  coalesce(sum(cost), 0) AS cost_known,
  count(*) - count(cost) AS cost_unknown,
  sum(seconds) AS seconds
FROM llm_calls
WHERE run_id = $run_id
GROUP BY 1
ORDER BY min(seq);
