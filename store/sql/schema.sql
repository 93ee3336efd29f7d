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
  parts_new INTEGER, calls INTEGER, calls_planned INTEGER, judged INTEGER, minutes DOUBLE, started_at DOUBLE,
  updated_at DOUBLE, next_by DOUBLE, device VARCHAR, finished VARCHAR, baseline_ms DOUBLE, fallback VARCHAR,
  agents VARCHAR, replay VARCHAR, llm_calls INTEGER, other_calls INTEGER, failed_calls INTEGER, tokens BIGINT,
  tokens_in BIGINT, tokens_cached BIGINT, tokens_out BIGINT, tokens_unknown INTEGER, cost DOUBLE,
  limit_usd DOUBLE, limit_calls INTEGER, limit_output_tokens BIGINT, limit_minutes DOUBLE,
  postfuse_tries INTEGER, postfused_speedup DOUBLE, postfused_estimate DOUBLE, seq BIGINT, unreadable VARCHAR
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

-- Replies and failures of language models. `tokens_in` holds the cached ones; NULL is unknown.
CREATE TABLE llm_calls (
  run_id VARCHAR, seq BIGINT, "at" DOUBLE, slot VARCHAR, role VARCHAR, subproblem_id VARCHAR,
  candidate_id VARCHAR, provider VARCHAR, model VARCHAR, tokens_in BIGINT, tokens_cached BIGINT,
  tokens_out BIGINT, cost DOUBLE, seconds DOUBLE, first_token DOUBLE, stop VARCHAR, attempts INTEGER,
  template VARCHAR, reask INTEGER, prompt_sha VARCHAR, reply_sha VARCHAR, failure VARCHAR, reason VARCHAR
);

-- Kernel-writing calls of which no candidate came.
CREATE TABLE missed (
  run_id VARCHAR, seq BIGINT, "at" DOUBLE, candidate_id VARCHAR, subproblem_id VARCHAR, outcome VARCHAR,
  reason VARCHAR
);

-- Tries to fuse the finished codebase into one file; what a reviewer lowered has no speedup.
CREATE TABLE postfused (
  run_id VARCHAR, seq BIGINT, "at" DOUBLE, ordinal INTEGER, source_sha VARCHAR, note VARCHAR,
  outcome VARCHAR, detail VARCHAR, speedup DOUBLE, estimate DOUBLE, time_ms DOUBLE, low_ms DOUBLE,
  high_ms DOUBLE, samples INTEGER, baseline VARCHAR, baseline_ms DOUBLE, max_error DOUBLE, device VARCHAR,
  json VARCHAR
);
