"""One walk through the dashboard: its real server, a real engine, a real browser, from an empty folder to a zip.

The engineer pauses early and steers then, so that nothing here depends on how fast the engine is.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, Page, expect

from mkevolve_core.launch import kill_run
from mkevolve_core.run_files import process_of, read_heartbeat
from store.run_folder import RunFolder, list_runs
from tests.pages import browser as web
from tests.pages.browser import box, chip, inspector, press, state_is

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

PROBLEM = Path(__file__).with_name("small_transformer.py")
# The engine itself revises nothing in so few iterations: the engineer does.
FIELDS = {"Iterations": 2, "Calls an iteration": 8, "Revise every": 9, "Inputs": 2}
PATIENCE = 90.0  # seconds for what the engine does between two candidates, on a slow machine


@pytest.fixture
def runs_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "runs"
    yield folder
    for run in list_runs(folder):
        kill_run(folder, run.run_id)


def test_a_run_is_started_steered_left_alone_finished_and_exported(runs_dir: Path, tmp_path: Path) -> None:
    port = web.free_port()
    with web.chromium() as browser, ExitStack() as open_pages:
        with web.server(runs_dir, port) as address:
            page = open_pages.enter_context(web.opened(browser, address))
            start_one_run(page, runs_dir)
            (run,) = list_runs(runs_dir)
            steer_while_it_waits(page)
            fuse_at_work(page)
            engine, ticks = engine_of(run), tick(page)
        assert engine.is_running()
        with web.server(runs_dir, port):
            web.eventually(lambda: tick(page) < ticks, PATIENCE)  # the open tab found the new server
            the_same_engine_goes_on(page, run, engine)
            a_second_dashboard_says_so(browser, runs_dir, run)
            state_is(page, "finished", seconds=2 * PATIENCE)
            finished_as_asked(page, run)
            verified_elsewhere(export(page, tmp_path), tmp_path / "a place")
            before = shown(page)
        for index in runs_dir.glob("index.duckdb*"):
            index.unlink()
        with web.server(runs_dir, port):
            page.reload()
            web.wait_for_pictures(page)
            web.eventually(lambda: shown(page) == before)
            expect(page.locator(".stException")).to_have_count(0)


# ------------------------------------------------------------------------------- start


def start_one_run(page: Page, runs_dir: Path) -> None:
    """A newcomer lands on the form; pressing Start twice starts one engine."""
    page.get_by_text("Upload", exact=True).click()
    page.locator("input[type=file]").set_input_files(PROBLEM)
    expect(page.get_by_text("✓ Model")).to_be_visible()
    page.get_by_text("Device, limits and numerics").click()
    for label, value in FIELDS.items():
        field = page.get_by_role("spinbutton", name=label, exact=True)
        field.fill(str(value))
        field.press("Enter")
    page.get_by_role("combobox", name="Device").click()
    page.get_by_role("option", name="cpu").click()
    expect(page.get_by_text("16 kernel-writing calls")).to_be_visible()
    page.get_by_role("button", name="Start run").dblclick()
    expect(page).to_have_url(re.compile(r"/live\?run="))
    box(page, "5@1").wait_for(timeout=PATIENCE * 1000)
    assert len(list_runs(runs_dir)) == 1
    assert len(engines(runs_dir)) == 1


def engines(runs_dir: Path) -> list[psutil.Process]:
    """Every process that was started to run a problem in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            call = process.cmdline()
        except psutil.Error:
            continue
        if str(runs_dir) in call and "mkevolve_core" in call and "run" in call:
            found.append(process)
    return found


def engine_of(run: RunFolder) -> psutil.Process:
    beat = read_heartbeat(run.path / "engine.json")
    assert beat is not None
    process = process_of(beat)
    assert process is not None
    return process


# ------------------------------------------------------------------------------- steer


def steer_while_it_waits(page: Page) -> None:
    """Paused, pin and swap are carried out at once; split and fuse wait for the next step of a beam."""
    told(page, "1@1", "1 candidate", PATIENCE)
    press(page, "Pause")
    state_is(page, "paused", PATIENCE)
    told(page, "1@1", "correct, modelled", PATIENCE)
    look_into(page, "1@1", "1 Convolution patch embedding")
    expect(inspector(page)).to_contain_text("@triton.jit")
    press(page, "Pin")
    chip(page, "pin 1", "applied", PATIENCE)
    expect(page.get_by_role("button", name=re.compile("^Unpin"))).to_be_enabled()
    expect(page.get_by_role("button", name=re.compile("^Split"))).to_be_disabled()
    look_into(page, "5@1", "5 Classification head")
    press(page, "Swap")
    page.get_by_text("PyTorch: the subproblem's own reference").click()
    press(page, "Queue swap")
    chip(page, "swap 5 → PyTorch", "applied", PATIENCE)
    told(page, "5@1", "swapped in")
    fuse(page, "2", "5")
    look_into(page, "4@1", "4 Transformer block")
    press(page, "Split")
    press(page, "Queue split")
    chip(page, "split 4", "accepted")
    page.evaluate(web.WATCH)
    press(page, "Resume")
    chip(page, "split 4", "applied", PATIENCE)
    chip(page, "are no neighbours", "refused", PATIENCE)
    expect(box(page, "4b@1")).to_be_visible()


def fuse_at_work(page: Page) -> None:
    fuse(page, "2", "3")
    chip(page, "fuse 2, 3", "applied", PATIENCE)
    seen = page.evaluate(web.SEEN)
    assert (seen["replaced"], seen["blank"], len(seen["heights"])) == (0, 0, 1), seen


def look_into(page: Page, name: str, title: str) -> None:
    box(page, name).click()
    expect(inspector(page)).to_contain_text(title)


def fuse(page: Page, first: str, second: str) -> None:
    box(page, f"{first}@1").click()
    box(page, f"{second}@1").click(modifiers=["Shift"])
    expect(inspector(page)).to_contain_text(f"with {second}")
    press(page, "Fuse")
    press(page, "Queue fuse")
    expect(page.locator(".chip").filter(has_text=f"fuse {first}, {second}").first).to_be_visible()


def told(page: Page, name: str, words: str, seconds: float = 15.0) -> None:
    """The box's full sentence comes to hold the words."""
    sentence = re.compile(re.escape(words))
    expect(box(page, name)).to_have_attribute("aria-label", sentence, timeout=seconds * 1000)


# --------------------------------------------------------------------- restart, finish


def tick(page: Page) -> int:
    """How often the page has been drawn since its server knows it."""
    return int(page.locator(".head[data-tick]").get_attribute("data-tick") or 0)


def the_same_engine_goes_on(page: Page, run: RunFolder, engine: psutil.Process) -> None:
    state_is(page, "running")
    seen = run.state().seq
    web.eventually(lambda: run.state().seq > seen, PATIENCE)
    assert engine_of(run) == engine


def a_second_dashboard_says_so(browser: Browser, runs_dir: Path, run: RunFolder) -> None:
    with web.server(runs_dir) as other, web.opened(browser, f"{other}/live?run={run.run_id}") as page:
        expect(page.get_by_text(re.compile(r"Another dashboard \(pid \d+\) owns index"))).to_be_visible()
        web.wait_for_pictures(page)
        expect(box(page, "1@1")).to_be_visible()


def finished_as_asked(page: Page, run: RunFolder) -> None:
    state = run.state()
    assert state.finished == "iterations done"
    assert state.decomposition is not None
    assert state.decomposition.ids == ("1", "2a", "4a", "4b", "5")
    for name in ("1@2", "2a@2", "4a@2", "4b@2", "5@2"):
        told(page, name, "correct")
    told(page, "e2e@2", "correct")
    assert {"e2e@1", "e2e@2", "1@1", "2a@2", "4a@2"} <= set(page.evaluate(web.WIDTHS))


def shown(page: Page) -> dict[str, list[str]]:
    """What the page says of a run that is over."""
    boxes = page.locator("[role=treeitem]")
    return {
        "boxes": sorted(boxes.evaluate_all("(all) => all.map((one) => one.ariaLabel)")),
        "points": sorted(page.evaluate(web.WIDTHS)),
        "commands": page.locator(".chip").all_inner_texts(),
        "figures": page.locator(".head dl").all_inner_texts(),
    }


def export(page: Page, folder: Path) -> Path:
    press(page, "Export")
    ready = page.get_by_role("button", name=re.compile("^Download zip$"))
    expect(ready).to_be_visible(timeout=PATIENCE * 1000)
    with page.expect_download() as download:
        ready.click()
    target = folder / download.value.suggested_filename
    download.value.save_as(target)
    return target


def verified_elsewhere(zipped: Path, place: Path) -> None:
    with zipfile.ZipFile(zipped) as archive:
        archive.extractall(place)
    (solution,) = place.iterdir()
    call = [sys.executable, "verify.py"]
    done = subprocess.run(call, cwd=solution, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
