SELECT s.*, (SELECT count(*) FROM entries AS e WHERE e.run_id = s.run_id) AS entries
FROM sources AS s;
