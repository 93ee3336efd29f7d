DELETE FROM runs WHERE run_id = $run_id;
DELETE FROM lanes WHERE run_id = $run_id;
DELETE FROM tree WHERE run_id = $run_id;
DELETE FROM edges WHERE run_id = $run_id;
DELETE FROM iterations WHERE run_id = $run_id;
DELETE FROM standing WHERE run_id = $run_id;
DELETE FROM commands WHERE run_id = $run_id;
DELETE FROM sources WHERE run_id = $run_id;
