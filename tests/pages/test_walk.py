"""A walk through a running dashboard in a real browser.

What plays the run is a `RunSource`; the tests only need that it starts one and that it ends it.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Thread
from typing import Protocol

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.pages import browser as web
from tests.pages.browser import box, chip, inspector, press, state_is
from tests.store import sample_run
from tests.store.llm_run import HOSTILE as LLM_HOSTILE
from tests.store.llm_run import write_llm_run
from tests.store.sample_run import source_of, write_sample_run

pytestmark = pytest.mark.browser

PLAYED = 62
HOSTILE = "_k__v2_ $x$ <b>0</b> mask[_i_] `a` #1 <img src=x onerror=alert(1)>"


class RunSource(Protocol):
    def __call__(self, runs_dir: Path, name: str) -> AbstractContextManager[str]:
        """A run at work while the context lasts; yields its id."""
        ...


@contextmanager
def played(runs_dir: Path, name: str) -> Iterator[str]:
    """The sample run from its second iteration on, an event each 0.3 s."""
    call = [sys.executable, "-m", "tests.pages.player", str(runs_dir), name, "--pause", "0.3"]
    call += ["--at-once", str(PLAYED)]
    player = subprocess.Popen(call, cwd=web.ROOT, stdout=subprocess.DEVNULL)
    Thread(target=player.wait, daemon=True).start()  # reaps it: who kills it waits until it is gone
    try:
        journal = runs_dir / name / "journal.jsonl"
        web.eventually(lambda: journal.exists() and journal.read_text().count("\n") >= PLAYED, 40)
        yield name
    finally:
        player.kill()
        player.wait(10)


@pytest.fixture(scope="module")
def source() -> RunSource:
    return played


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("walk") / "runs"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def address(runs_dir: Path) -> Iterator[str]:
    with web.server(runs_dir) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with web.chromium() as browser:
        yield browser


@pytest.fixture
def live(
    runs_dir: Path, address: str, browser: Browser, source: RunSource, request: pytest.FixtureRequest
) -> Iterator[Page]:
    """A page on a run that is at work."""
    name = re.sub(r"\W+", "-", request.node.name)
    with source(runs_dir, name) as run_id, web.opened(browser, f"{address}/live?run={run_id}") as page:
        web.wait_for_pictures(page)
        yield page


def test_an_address_of_a_page_works_on_a_server_that_nobody_visited(runs_dir: Path, browser: Browser) -> None:
    name = write_sample_run(runs_dir, "finished-first").run_id
    with web.server(runs_dir) as fresh, web.opened(browser, f"{fresh}/live?run={name}&node=4c&it=5") as page:
        web.wait_for_pictures(page)
        expect(page.get_by_role("link", name="New run")).to_be_visible()
        expect(box(page, "4c@5")).to_have_attribute("aria-selected", "true")
        whole(page, "rgb(255, 255, 255)")


def test_opening_the_bare_address_shows_tree_and_lines_in_time(
    runs_dir: Path, address: str, browser: Browser, source: RunSource
) -> None:
    with source(runs_dir, "opening"):
        times = []
        for _ in range(2):  # the first visit makes the server import its pages
            with web.opened(browser, address) as page:
                times.append(web.wait_for_pictures(page))
                expect(page).to_have_url(re.compile(r"/live\?run=opening"))
                expect(page).to_have_title(re.compile("it[123] Convolutional vision transformer"))
    # 3 s and 5 s are what an idle machine is to keep; a busy one may take three times as long.
    assert min(tree for tree, _ in times) < 9, times
    assert min(lines for _, lines in times) < 15, times


def test_twenty_ticks_of_use_replace_nothing_and_keep_zoom_and_selection(live: Page) -> None:
    zoomed = zoom(live)
    live.evaluate(web.WATCH)
    select_in_the_tree(live)
    select_on_a_line(live)
    walk_by_keyboard(live)
    box(live, "4@1").click()
    web.eventually(lambda: live.evaluate(web.SEEN)["ticks"] >= 20, seconds=60)
    seen = live.evaluate(web.SEEN)
    assert (seen["replaced"], seen["blank"]) == (0, 0), seen
    assert len(seen["heights"]) == 1, seen
    assert live.evaluate(web.RANGE) == zoomed
    expect(box(live, "4@1")).to_have_attribute("aria-selected", "true")
    expect(inspector(live)).to_contain_text("4 Transformer encoder")
    expect(live.locator(".clock")).to_contain_text("updated")


def zoom(page: Page) -> list[float]:
    area = page.locator(".nsewdrag").first.bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + area["width"] * 0.03, area["y"] + 60)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * 0.7, area["y"] + 60, steps=6)
    page.mouse.up()
    shown: list[float] = page.evaluate(web.RANGE)
    assert shown[1] - shown[0] < 4
    return shown


def select_in_the_tree(page: Page) -> None:
    box(page, "3@1").click()
    expect(inspector(page)).to_contain_text("3 Class token")
    web.eventually(lambda: "node=3&it=1" in page.evaluate("location.search"))
    web.eventually(lambda: page.evaluate(web.WIDTHS)["3@1"] > 3)


def select_on_a_line(page: Page) -> None:
    point = page.locator(".js-plotly-plot .scatterlayer .trace").nth(1).locator(".point").first.bounding_box()
    assert point is not None
    page.mouse.move(point["x"] + 2, point["y"] + 2)
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    page.mouse.down()
    page.mouse.up()
    expect(box(page, "2@1")).to_have_attribute("aria-selected", "true")
    expect(inspector(page)).to_contain_text("2 Linear projection")


def walk_by_keyboard(page: Page) -> None:
    chosen = page.locator("[role=treeitem][aria-selected=true]")
    box(page, "2@1").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(box(page, "3@1")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Shift+Enter")
    expect(chosen).to_have_count(2)
    page.keyboard.press("Escape")
    expect(chosen).to_have_count(0)


@pytest.mark.slow  # tests/whole/test_walk.py asks a real engine
def test_every_command_is_queued_and_answered(live: Page) -> None:
    box(live, "2@2").click()
    press(live, "Pin")
    chip(live, "pin 2", "applied")
    expect(live.get_by_role("button", name=re.compile("^Unpin"))).to_be_enabled()
    expect(live.get_by_role("button", name=re.compile("^Split"))).to_be_disabled()
    box(live, "5@2").click()
    expect(inspector(live)).to_contain_text("5 Classifier")
    press(live, "Split")
    press(live, "Queue split")
    chip(live, "split 5", "applied")
    press(live, "Swap")
    live.get_by_text("PyTorch: the subproblem's own reference").click()
    press(live, "Queue swap")
    chip(live, "swap 5 → PyTorch", "applied")
    fuse(live, "4a", "4b")
    chip(live, "fuse 4a, 4b", "applied")
    fuse(live, "1", "4a")
    chip(live, "1 may not be fused in this play", "refused")


def fuse(page: Page, first: str, second: str) -> None:
    box(page, f"{first}@2").click()
    box(page, f"{second}@2").click(modifiers=["Shift"])
    expect(inspector(page)).to_contain_text(f"with {second}")
    press(page, "Fuse")
    press(page, "Queue fuse")


@pytest.mark.slow
def test_pause_resume_and_stop(live: Page) -> None:
    live.evaluate(web.WATCH)
    press(live, "Pause")
    state_is(live, "paused")
    press(live, "Resume")
    state_is(live, "running", seconds=25)
    press(live, "Stop")
    state_is(live, "finished")
    seen = live.evaluate(web.SEEN)
    assert (seen["replaced"], seen["blank"]) == (0, 0), seen


def test_an_engine_that_is_killed_is_seen(
    runs_dir: Path, address: str, browser: Browser, source: RunSource
) -> None:
    with source(runs_dir, "killed") as run_id, web.opened(browser, f"{address}/live?run={run_id}") as page:
        web.wait_for_pictures(page)
        press(page, "more_horiz")
        page.get_by_role("textbox").fill("kill")
        page.get_by_role("textbox").press("Enter")
        press(page, "Kill now")
        state_is(page, "crashed")
        expect(page.locator(".stAlert").first).to_contain_text("gone without a final event")


def test_hostile_names_are_shown_as_they_are_in_the_dark_and_narrow(
    runs_dir: Path, address: str, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sample_run.PARTS, "3", ("cls_token", HOSTILE, 1))
    name = write_sample_run(runs_dir, "hostile").run_id
    url = f"{address}/live?run={name}&node=3&it=5"
    with web.opened(browser, url, scheme="dark", width=1000) as page:
        web.wait_for_pictures(page)
        expect(box(page, "3@5")).to_have_attribute("aria-label", re.compile(re.escape(HOSTILE)))
        expect(inspector(page)).to_contain_text(HOSTILE)
        assert page.locator("img[src=x]").count() == 0
        assert page.locator(".katex").count() == 0
        whole(page, "rgb(16, 20, 24)")


def test_a_hostile_reply_is_shown_as_characters_and_kept_as_it_is(
    runs_dir: Path, address: str, browser: Browser
) -> None:
    name = write_llm_run(runs_dir, "asked").run_id
    with web.opened(browser, f"{address}/live?run={name}&node=4a&it=3&tab=Prompts", scheme="dark") as page:
        web.wait_for_pictures(page)
        reply = page.locator(".stCode").nth(1)
        expect(reply).to_contain_text("<b>bold</b> <img src=x onerror=alert(1)> <script>alert(2)</script>")
        expect(reply).to_contain_text("$x^2$ **not bold** `tick` ~~~ NUL <U+0000> ANSI <U+001B>[31m lone ?")
        assert page.locator("img[src=x], .katex, .stCode script, .stCode a").count() == 0
        with page.expect_download() as download:
            page.get_by_role("button", name=re.compile("Download$")).nth(1).click()
        assert download.value.suggested_filename == "4a-5-reply.txt"
        assert Path(download.value.path()).read_text() == f"{LLM_HOSTILE}\n".encode(
            "utf-8", "replace"
        ).decode() + (f"\n```python\n{source_of('kernel', 64)}```\n")
        box(page, "e2e@5").click()
        page.get_by_text("Post-fusion", exact=True).click()
        expect(inspector(page)).to_contain_text("the whole in one file")
        whole(page, "rgb(16, 20, 24)")


def whole(page: Page, ground: str) -> None:
    """Both pictures stand on the theme's ground, and nothing sticks out of the window."""
    colour = page.locator(".stApp").evaluate("(node) => getComputedStyle(node).backgroundColor")
    paper = page.locator(".js-plotly-plot .main-svg").first.evaluate("(node) => node.style.background")
    assert (colour, paper) == (ground, ground)
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
