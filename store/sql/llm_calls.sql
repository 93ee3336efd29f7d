-- What language models were asked, in order: of one subproblem, of the run's own calls ('': those of no
-- subproblem), or all (NULL). `cached` is the share of the prompt that came from the provider's cache.
SELECT seq, "at", slot, role, subproblem_id, candidate_id, provider, model, tokens_in, tokens_cached,
  CASE WHEN tokens_in > 0 THEN tokens_cached / tokens_in END AS cached,
  tokens_out, cost, seconds, first_token, stop, attempts, template, reask, prompt_sha, reply_sha, failure, reason
FROM llm_calls
WHERE run_id = $run_id
  AND ($subproblem_id IS NULL OR coalesce(subproblem_id, '') = $subproblem_id)
ORDER BY seq;
