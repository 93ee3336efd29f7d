import pandas as pd
import pytest

from mkevolve_core import events as ev
from mkevolve_core.domain import Baseline, Candidate, Outcome, Timing, Verdict
from mkevolve_core.errors import ConfigError
from store import queries
from store.ingest import Ingest
from store.rows import LOG_TABLES, VIEW_TABLES
from store.warehouse import Warehouse
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
