SELECT sum(rows) AS rows, sum(mark) AS mark FROM (
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM runs AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM entries AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM lanes AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM tree AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM edges AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM iterations AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM candidates AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM verdicts AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM standing AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM end_to_end AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM commands AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM budgets AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM shares AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM sources AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM llm_calls AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM missed AS t
  UNION ALL
  SELECT count(*) AS rows, sum(hash(t) % 1000) AS mark FROM postfused AS t
);
