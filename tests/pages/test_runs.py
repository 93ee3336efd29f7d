import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from store.warehouse import Warehouse
from tests.pages.reading import crashed, mounted, running, texts, unreadable
from tests.store.sample_run import write_sample_run

OpenPage = Callable[..., AppTest]
ROOT = Path(__file__).resolve().parents[2]


def rows(page: AppTest) -> list[dict[str, Any]]:
    table: list[dict[str, Any]] = page.dataframe[0].value.to_dict("records")
    return table


def land(runs_dir: Path) -> AppTest:
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()


def test_an_empty_folder_shows_the_way_forward(open_page: OpenPage) -> None:
    page = open_page("runs")
    assert "No runs yet" in texts(page)
    assert not page.exception


def test_what_needs_a_look_comes_first(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir, "261201-222222-finished")
    running(runs_dir, "261201-101010-running")
    crashed(runs_dir, "261130-101010-crashed")
    unreadable(runs_dir, "261129-101010-broken")
    found = [row["state"].split(" ")[1] for row in rows(open_page("runs"))]
    assert sorted(found[:2]) == ["crashed", "unreadable"]
    assert found[2:] == ["running", "finished"]


def test_an_unreadable_folder_is_a_row_with_the_reason(runs_dir: Path, open_page: OpenPage) -> None:
    name = unreadable(runs_dir)
    row = rows(open_page("runs"))[0]
    assert row["run"] == name
    assert row["evidence"].startswith("cannot read:")


def test_a_row_carries_numbers_with_their_kind(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir, "261201-000001-modelled")
    write_sample_run(runs_dir, "261201-000002-measured", measured=True)
    best = {row["run"].rpartition("-")[2]: row["best"] for row in rows(open_page("runs"))}
    assert best == {"modelled": "est. 1.28×", "measured": "1.28×"}


def test_a_filter_keeps_what_it_names(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir, "261201-000001-finished")
    crashed(runs_dir, "261201-000002-crashed")
    page = open_page("runs")
    page.button_group(key="runs_filter").set_value("problem").run()
    assert [row["run"] for row in rows(page)] == ["261201-000002-crashed"]


def test_a_filter_that_excludes_all_says_so(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    page = open_page("runs")
    page.button_group(key="runs_filter").set_value("active").run()
    assert "No run is in this state" in texts(page)


def test_open_leads_to_the_run(runs_dir: Path, open_page: OpenPage) -> None:
    name = write_sample_run(runs_dir).run_id
    page = open_page("runs")
    page.button(key=f"open_{name}").click().run()
    assert mounted(page, "head")["run"] == name


def test_a_second_dashboard_says_so_and_shows_everything(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    with holding(runs_dir / "index.duckdb") as owner:
        page = open_page("runs")
        assert f"Another dashboard (pid {owner})" in page.info[0].value.replace("\\", "")
        assert len(rows(page)) == 1


@contextmanager
def holding(index: Path) -> Iterator[int]:
    """Another process that has the index open."""
    code = "import sys; from store.warehouse import Warehouse; from pathlib import Path\n"
    code += "held = Warehouse(Path(sys.argv[1])); print('open', flush=True); input()"
    call = [sys.executable, "-c", code, str(index)]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        yield other.pid
        other.kill()


def test_deleting_the_index_loses_nothing(runs_dir: Path, open_page: OpenPage) -> None:
    write_sample_run(runs_dir)
    Warehouse(runs_dir / "index.duckdb").close()
    (runs_dir / "index.duckdb").unlink()
    assert len(rows(open_page("runs"))) == 1


def test_the_first_screen_is_the_active_run(runs_dir: Path) -> None:
    write_sample_run(runs_dir, "261201-222222-finished")
    name = running(runs_dir, "261201-101010-running")
    assert mounted(land(runs_dir), "head")["run"] == name


def test_the_first_screen_is_the_list_where_nothing_is_active(runs_dir: Path) -> None:
    write_sample_run(runs_dir)
    assert len(rows(land(runs_dir))) == 1
