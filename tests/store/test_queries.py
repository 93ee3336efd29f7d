import pandas as pd
import pytest

from mkevolve_core import events as ev
from mkevolve_core.domain import Baseline, Candidate, Outcome, Timing, Verdict
from mkevolve_core.errors import ConfigError
from store import queries
from store.entry_rows import LOG_TABLES, candidate_of
from store.ingest import Ingest
from store.rows import VIEW_TABLES
from store.warehouse import Warehouse
from tests.store.llm_run import HOSTILE, MODEL, write_llm_run
from tests.store.sample_run import write_sample_run

RUN = "261118-101010-convvit"
TIME = Timing(1.0, 1.0, 1.0, 3)
ZERO = Verdict(
    Outcome.CORRECT, measured=Timing(0.0, 0.0, 0.0, 3), baselines=(Baseline("torch.compile", TIME),)
)
UNBASED = Verdict(Outcome.CORRECT, measured=TIME, baselines=(Baseline("torch.compile", None, "no GPU"),))
LATE = Verdict(Outcome.TIMEOUT, "5 minutes", measured=TIME, baselines=(Baseline("torch.compile", TIME),))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    """A measured run, with candidates at its end whose times are none."""
    runs_dir = tmp_path_factory.mktemp("runs")
    journal = write_sample_run(runs_dir, RUN, measured=True).journal()
    for number, verdict in enumerate((ZERO, UNBASED, LATE), 91):
        journal.append(ev.CandidateProposed(Candidate(f"1#{number}", "1", "0" * 64, None, 5, "built-in")))
        journal.append(ev.VerdictReached(f"1#{number}", verdict))
    journal.close()
    warehouse = Warehouse()
    Ingest(runs_dir, warehouse).scan()
    return warehouse


def test_no_number_in_the_index_is_nan_or_infinite(warehouse):
    with warehouse.cursor() as cursor:
        for table in (*VIEW_TABLES, *LOG_TABLES):
            doubles = [
                name for name, kind, *_ in cursor.execute(f"describe {table}").fetchall() if kind == "DOUBLE"
            ]
            for name in doubles:
                assert cursor.execute(
                    f'select count(*) from {table} where not isfinite("{name}")'
                ).fetchone() == (0,)


def test_a_time_that_is_no_time_is_never_first(warehouse):
    shown = queries.candidates(warehouse, RUN, "1")
    assert shown.candidate_id[0] == "1#3"
    assert shown.speedup[0] == pytest.approx(1.18)
    assert set(shown.candidate_id[-3:]) == {"1#91", "1#92", "1#93"}
    assert shown.speedup[-3:].isna().all()
    assert (shown.speedup >= 1).sum() == 2


def test_a_tree_has_a_row_for_each_iteration_and_subproblem(warehouse):
    tree = queries.tree(warehouse, RUN)
    assert tree.groupby("iteration").size().tolist() == [5, 6, 6, 5, 5]
    assert {"iteration", "lane", "subproblem_id", "name", "title", "state", "outcome", "detail", "speedup", "estimate",
            "pinned", "swapped", "budget", "calls", "candidate_id", "instances"} <= set(tree.columns)  # fmt: skip
    failing = tree[(tree.subproblem_id == "4") & (tree.iteration == 1)].iloc[0]
    assert (failing.state, failing.outcome, failing.lane) == ("failing", "compile_error", 3)
    assert pd.isna(failing.speedup)
    last = tree[(tree.subproblem_id == "4c") & (tree.iteration == 5)].iloc[0]
    assert (last.lane, last.instances, last.budget, last.used, last.calls) == (3, 6, 1, 1, 9)
    assert last.speedup == pytest.approx(1.31)


def test_edges_are_the_split_and_the_fuse(warehouse):
    assert queries.tree_edges(warehouse, RUN).values.tolist() == [
        [1, "4", 2, "4a", "split"],
        [1, "4", 2, "4b", "split"],
        [3, "4a", 4, "4c", "fuse"],
        [3, "4b", 4, "4c", "fuse"],
    ]


def test_lines_grow_with_what_was_spent(warehouse):
    lines = queries.lines(warehouse, RUN)
    whole = lines[lines.subproblem_id == "e2e"]
    assert whole.outcome.tolist() == ["missing", *["correct"] * 4]
    assert whole.speedup.round(2).tolist()[1:] == [0.53, 0.66, 1.21, 1.28]
    assert whole.calls.is_monotonic_increasing
    assert whole.minutes.is_monotonic_increasing
    assert set(lines.subproblem_id) == {"1", "2", "3", "4", "4a", "4b", "4c", "5", "e2e"}


def test_an_evaluation_after_the_final_swap_is_apart(tmp_path):
    run = write_sample_run(tmp_path, RUN, measured=True)
    journal = run.journal()
    journal.append(ev.EndToEndEvaluated(5, "d3", {}, LATE, after="swap"))
    journal.close()
    warehouse = Warehouse()
    Ingest(tmp_path, warehouse).scan()
    lines = queries.lines(warehouse, RUN).set_index(["subproblem_id", "iteration"])
    assert lines.outcome["e2e", 5] == "correct"
    assert lines.outcome["e2e swapped", 5] == "timeout"


def test_the_whole_says_what_is_missing(warehouse):
    whole = queries.end_to_end(warehouse, RUN)
    assert whole.missing[0] == "4"
    assert pd.isna(whole.outcome[0])
    assert queries.end_to_end_verdict(warehouse, RUN, int(whole.seq[0])) is None
    assert queries.end_to_end_verdict(warehouse, RUN, int(whole.seq[1])).speedup == pytest.approx(0.53)


def test_shares_add_up(warehouse):
    shares = queries.shares(warehouse, RUN)
    assert shares.groupby("iteration").share.sum().round(6).tolist() == [1.0] * 4
    assert shares.name[0] == "self_attention"


def test_a_header_is_the_run_at_a_glance(warehouse):
    header = queries.header(warehouse, RUN)
    assert (header.iteration, header.iterations, header.finished) == (5, 5, "iterations done")
    assert (header.best_speedup, header.best_estimate, header.baseline_ms) == (pytest.approx(1.28), None, 7.3)
    assert (header.parts_correct, header.parts_failing, header.parts_new) == (5, 0, 0)
    with pytest.raises(ConfigError, match="No run 'none'"):
        queries.header(warehouse, "none")


def test_runs_have_a_column_for_each_field_of_a_header(warehouse):
    runs = queries.runs(warehouse)
    assert set(queries.Header.__slots__) == set(runs.columns)
    assert runs.run_id.tolist() == [RUN]


def test_budgets_commands_iterations_and_log_tell_their_reasons(warehouse):
    assert queries.budgets(warehouse, RUN).calls.sum() == 32
    assert queries.commands(warehouse, RUN).status.tolist() == ["applied", "refused"]
    assert queries.iterations(warehouse, RUN).cause.tolist()[:2] == ["initial", "split"]
    assert queries.log(warehouse, RUN, 3).sentence.tolist()[0] == "Candidate 1#93: timeout: 5 minutes."


def test_verdicts_and_sources_come_back_whole(warehouse):
    assert queries.verdict(warehouse, RUN, "1#93") == LATE
    assert queries.verdict(warehouse, RUN, "1#99") is None
    sha = queries.candidates(warehouse, RUN, "4a").source_sha[0]
    assert "class ModelNew" in queries.source(warehouse, RUN, sha)
    with pytest.raises(KeyError):
        queries.source(warehouse, RUN, "0" * 64)
    with pytest.raises(KeyError):
        queries.source(warehouse, "none", sha)


# ------------------------------------------------------------------- runs that ask language models


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A run by language models, and the same by people through a mailbox."""
    runs_dir = tmp_path_factory.mktemp("asked")
    write_llm_run(runs_dir, "by-models", measured=True)
    write_llm_run(runs_dir, "by-people", mailbox=True)
    warehouse = Warehouse()
    Ingest(runs_dir, warehouse).scan()
    return warehouse


def test_a_call_knows_its_candidate_whether_it_writes_asks_again_or_reviews(asked):
    calls = queries.llm_calls(asked, "by-models", "4a").set_index("slot")
    assert calls.candidate_id[["4a#3", "4a#3~1", "review 4a#4 2"]].tolist() == ["4a#3", "4a#3", "4a#4"]
    assert calls.role[["4a#1", "4a#3", "review 4a#4 2"]].tolist() == ["generate", "refine", "review"]
    assert (calls.provider["4a#1"], calls.model["4a#1"], calls.stop["4a#2"]) == ("anthropic", MODEL, "length")
    assert calls.cached["4a#1"] == pytest.approx(4100 / calls.tokens_in["4a#1"])


def test_a_call_without_a_reply_says_why(asked):
    failed = queries.llm_calls(asked, "by-models", "4a").set_index("slot").loc["4a#99"]
    assert (failed.failure, failed.reason, failed.attempts) == (
        "rate_limit",
        "429: rate limited <b>again</b>",
        5,
    )
    assert pd.isna(failed.reply_sha) and pd.isna(failed.stop)


def test_calls_of_no_subproblem_are_the_runs_own(asked):
    slots = queries.llm_calls(asked, "by-models", "").slot.tolist()
    assert slots == ["decompose 1.1", "split 1.1", "fuse 1.1", "postfuse 1", "postfuse 2", "postfuse 3"]
    assert len(queries.llm_calls(asked, "by-models")) == 65


def test_prompts_and_replies_are_artifacts(asked):
    call = queries.llm_calls(asked, "by-models", "4a").set_index("slot").loc["4a#1"]
    assert "The task of 4a#1" in queries.source(asked, "by-models", call.prompt_sha)
    assert queries.source(asked, "by-models", call.reply_sha).startswith(HOSTILE)


def test_roles_add_up_to_what_was_spent(asked):
    roles, header = queries.llm_roles(asked, "by-models"), queries.header(asked, "by-models")
    assert roles.set_index("role").calls["repair"] == 7
    assert (roles.calls.sum(), roles.failed.sum()) == (header.llm_calls, header.failed_calls) == (63, 2)
    assert roles.cost.sum() == pytest.approx(header.cost)
    assert (roles.tokens_in.sum(), roles.tokens_out.sum()) == (header.tokens_in, header.tokens_out)
    assert header.calls + header.other_calls == header.llm_calls


def test_what_nobody_told_is_absent_and_never_nothing(asked):
    header, roles = queries.header(asked, "by-people"), queries.llm_roles(asked, "by-people")
    assert (header.cost, header.tokens_unknown) == (None, 63)
    assert roles[roles.role == "refine"][["tokens_in", "tokens_out", "cost"]].isna().all(axis=None)
    calls = queries.llm_calls(asked, "by-people", "1")
    assert calls[["tokens_in", "tokens_cached", "tokens_out", "cost", "cached"]].isna().all(axis=None)


def test_a_sum_with_an_unknown_price_in_it_is_unknown_but_says_what_is_known(asked, tmp_path):
    journal = write_llm_run(tmp_path, "mixed", until=60).journal()
    journal.append(ev.LLMCalled("generate", "new-model", "4a", 10, 10, None, 1.0, "a" * 64, "b" * 64, "4a#9"))
    journal.close()
    warehouse = Warehouse()
    Ingest(tmp_path, warehouse).scan()
    role = queries.llm_roles(warehouse, "mixed").set_index("role").loc["generate"]
    assert pd.isna(role.cost)
    assert (round(role.cost_known, 4), role.cost_unknown, role.models) == (0.1955, 1, f"{MODEL}, new-model")
    assert queries.header(warehouse, "mixed").cost is None


def test_calls_that_gave_no_candidate_are_listed_with_their_iteration(asked):
    missed = queries.missed(asked, "by-models", "4a")
    assert missed[["candidate_id", "iteration", "outcome"]].values.tolist() == [["4a#2", 2, "truncated"]]
    assert "cut off" in missed.reason[0]
    assert "4a#2" not in queries.candidates(asked, "by-models", "4a").candidate_id.tolist()
    assert len(queries.missed(asked, "by-models")) == 7


def test_post_fusion_is_apart_and_its_best_is_one_that_nobody_objects_to(asked):
    tries = queries.postfused(asked, "by-models").set_index("ordinal")
    assert tries.outcome[[2, 3]].tolist() == ["cheat", "correct"]
    assert pd.isna(tries.outcome[1]) and "refused" in tries.note[1]
    assert pd.isna(tries.speedup[2]) and tries.speedup[3] == pytest.approx(1.4)
    header = queries.header(asked, "by-models")
    assert (header.best_speedup, header.postfused_speedup) == (pytest.approx(1.28), pytest.approx(1.4))
    assert queries.postfused_verdict(asked, "by-models", int(tries.seq[3])).is_correct
    assert queries.postfused_verdict(asked, "by-models", int(tries.seq[1])) is None


def test_a_header_says_who_writes_and_how_much_may_be_spent(asked):
    header = queries.header(asked, "by-models")
    assert (header.agents, header.limit_usd, header.limit_calls, header.limit_minutes) == (
        "llm",
        12.0,
        400,
        None,
    )
    assert (header.calls, header.calls_planned, header.replay) == (32, 40, None)


@pytest.mark.parametrize(
    ("slot", "candidate"),
    [
        ("4a#17", "4a#17"),
        ("4a#17~2", "4a#17"),
        ("review 4a#17 1", "4a#17"),
        ("decompose 1.2", None),
        ("", None),
    ],
)
def test_a_slot_tells_its_candidate(slot, candidate):
    assert candidate_of(slot) == candidate


def test_earlier_calls_are_summed_by_role_without_replays_and_unknown_tokens(asked, tmp_path):
    writing = queries.llm_earlier(asked).set_index("role").loc["generate"]
    assert (writing.calls, writing.tokens_in, writing.tokens_out) == (8, 48_960, 12_000)
    folder = write_llm_run(tmp_path, "replayed", until=60)
    text = folder.journal_path.read_text().replace('"replay":null', '"replay":"convvit"')
    folder.journal_path.write_text(text)
    warehouse = Warehouse()
    Ingest(tmp_path, warehouse).scan()
    assert queries.header(warehouse, "replayed").replay == "convvit"
    assert queries.llm_earlier(warehouse).empty
