-- A view over the journals: deleting the file loses nothing. Absent is NULL, never NaN, 0 or ''.

CREATE TABLE meta (format VARCHAR);

-- What has been read of each journal, written in the same transaction as the rows.
CREATE TABLE sources (
  run_id VARCHAR, file_id VARCHAR, size BIGINT, modified_ns BIGINT, seq BIGINT, finished BOOLEAN
);

CREATE TABLE runs (
  run_id VARCHAR, folder VARCHAR, problem VARCHAR, preset VARCHAR, phase VARCHAR, phase_detail VARCHAR,
  doing VARCHAR, iteration INTEGER, iterations INTEGER, best_iteration INTEGER, best_speedup DOUBLE,
  best_estimate DOUBLE, swapped_speedup DOUBLE, swapped_estimate DOUBLE, end_to_end_ok BOOLEAN, parts_correct INTEGER, parts_failing INTEGER,
  parts_new INTEGER, calls INTEGER, calls_planned INTEGER, other_calls INTEGER, tokens BIGINT, cost DOUBLE,
  judged INTEGER, minutes DOUBLE, started_at DOUBLE, updated_at DOUBLE, next_by DOUBLE, device VARCHAR,
  finished VARCHAR, baseline_ms DOUBLE, fallback VARCHAR, seq BIGINT, unreadable VARCHAR
);

CREATE TABLE entries (run_id VARCHAR, seq BIGINT, "at" DOUBLE, kind VARCHAR, sentence VARCHAR, json VARCHAR);

CREATE TABLE lanes (run_id VARCHAR, subproblem_id VARCHAR, lane INTEGER);

CREATE TABLE tree (
  run_id VARCHAR, iteration INTEGER, position INTEGER, subproblem_id VARCHAR, name VARCHAR, title VARCHAR,
  state VARCHAR, outcome VARCHAR, detail VARCHAR, speedup DOUBLE, estimate DOUBLE, time_ms DOUBLE,
  baseline_ms DOUBLE, pinned BOOLEAN, swapped BOOLEAN, budget INTEGER, used INTEGER, calls INTEGER,
  candidates INTEGER, candidate_id VARCHAR, author VARCHAR, instances INTEGER, since INTEGER,
  parents VARCHAR, declined VARCHAR
);

CREATE TABLE edges (
  run_id VARCHAR, from_iteration INTEGER, from_id VARCHAR, to_iteration INTEGER, to_id VARCHAR, cause VARCHAR
);

CREATE TABLE iterations (
  run_id VARCHAR, iteration INTEGER, calls INTEGER, minutes DOUBLE, tokens BIGINT, cost DOUBLE,
  decomposition_id VARCHAR, cause VARCHAR, reason VARCHAR
);

CREATE TABLE candidates (
  run_id VARCHAR, seq BIGINT, "at" DOUBLE, candidate_id VARCHAR, subproblem_id VARCHAR, parent_id VARCHAR,
  author VARCHAR, iteration INTEGER, source_sha VARCHAR, note VARCHAR
);

CREATE TABLE verdicts (
  run_id VARCHAR, seq BIGINT, "at" DOUBLE, candidate_id VARCHAR, outcome VARCHAR, detail VARCHAR,
  speedup DOUBLE, estimate DOUBLE, reward DOUBLE, time_ms DOUBLE, low_ms DOUBLE, high_ms DOUBLE,
  samples INTEGER, baseline VARCHAR, baseline_ms DOUBLE, estimate_ms DOUBLE, estimate_target VARCHAR,
  max_error DOUBLE, cases_passed INTEGER, cases INTEGER, kernelbench_rule BOOLEAN, registers INTEGER,
  spills INTEGER, shared_bytes INTEGER, shared_limit INTEGER, device VARCHAR, isolation VARCHAR,
  flags VARCHAR, seconds DOUBLE, json VARCHAR
);

-- What is true of a candidate now, beside its verdict; candidates of which nothing is true have no row.
CREATE TABLE standing (
  run_id VARCHAR, candidate_id VARCHAR, in_beam BOOLEAN, chosen BOOLEAN, swapped BOOLEAN, pinned BOOLEAN,
  lowered_to VARCHAR, lowered_why VARCHAR
);

CREATE TABLE end_to_end (
  run_id VARCHAR, seq BIGINT, "at" DOUBLE, iteration INTEGER, after VARCHAR, decomposition_id VARCHAR,
  outcome VARCHAR, detail VARCHAR, speedup DOUBLE, estimate DOUBLE, time_ms DOUBLE, low_ms DOUBLE,
  high_ms DOUBLE, samples INTEGER, baseline VARCHAR, baseline_ms DOUBLE, max_error DOUBLE, device VARCHAR,
  missing VARCHAR, codebase_sha VARCHAR, json VARCHAR
);

CREATE TABLE commands (
  run_id VARCHAR, position INTEGER, command_id VARCHAR, kind VARCHAR, subproblem_ids VARCHAR,
  candidate_id VARCHAR, text VARCHAR, status VARCHAR, detail VARCHAR, iteration INTEGER
);

CREATE TABLE budgets (
  run_id VARCHAR, seq BIGINT, iteration INTEGER, subproblem_id VARCHAR, calls INTEGER, reason VARCHAR
);

CREATE TABLE shares (
  run_id VARCHAR, seq BIGINT, iteration INTEGER, after VARCHAR, name VARCHAR, time_ms DOUBLE, calls INTEGER
);
