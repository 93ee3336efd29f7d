"""A walk through a running dashboard in a real browser.

What plays the run is a `RunSource`; the tests only need that it starts one and that it ends it.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.pages import browser as web
from tests.store import sample_run
from tests.store.sample_run import write_sample_run

pytestmark = pytest.mark.browser

HOSTILE = "_k__v2_ $x$ <b>0</b> mask[_i_] `a` #1 <img src=x onerror=alert(1)>"


class RunSource(Protocol):
    def __call__(self, runs_dir: Path, name: str) -> AbstractContextManager[str]:
        """A run at work while the context lasts; yields its id."""
        ...


@contextmanager
def played(runs_dir: Path, name: str) -> Iterator[str]:
    """The sample run, an event each 0.3 s."""
    call = [sys.executable, "-m", "tests.pages.player", str(runs_dir), name, "--pause", "0.3"]
    player = subprocess.Popen(call, cwd=web.ROOT, stdout=subprocess.DEVNULL)
    try:
        journal = runs_dir / name / "journal.jsonl"
        web.eventually(lambda: journal.exists() and journal.read_text().count("\n") > 20, 40)
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


def box(page: Page, name: str) -> object:
    return page.locator(f'[data-id="{name}"]')


def chip(page: Page, what: str, status: str) -> None:
    """The newest commands hold one that is `what`, and it is as far as `status`."""
    found = page.locator(f".chip[data-status={status}]").filter(has_text=what)
    expect(found.first).to_be_visible(timeout=15_000)


def press(page: Page, label: str) -> None:
    page.get_by_role("button", name=re.compile(f"^{label}")).first.click()


def test_an_address_of_a_page_works_on_a_server_that_nobody_visited(runs_dir: Path, browser: Browser) -> None:
    name = write_sample_run(runs_dir, "finished-first").run_id
    with web.server(runs_dir) as fresh, web.opened(browser, f"{fresh}/live?run={name}&node=4c&it=5") as page:
        web.wait_for_pictures(page)
        expect(page.get_by_role("link", name="New run")).to_be_visible()
        expect(box(page, "4c@5")).to_have_attribute("aria-selected", "true")
        expect(page.locator(".stAlert")).to_have_count(1 if "second" in fresh else 0)


def test_opening_the_bare_address_shows_tree_and_lines_in_time(
    runs_dir: Path, address: str, browser: Browser, source: RunSource
) -> None:
    with source(runs_dir, "opening"):
        times = []
        for _ in range(3):  # the first visit makes the server import its pages
            with web.opened(browser, address) as page:
                times.append(web.wait_for_pictures(page))
                expect(page).to_have_url(re.compile(r"/live\?run=opening"))
                expect(page).to_have_title(re.compile("it[123] Convolutional vision transformer"))
    assert min(tree for tree, _ in times) < 3, times
    assert min(lines for _, lines in times) < 5, times


def test_twenty_ticks_replace_nothing_and_keep_zoom_and_selection(live: Page) -> None:
    box(live, "4@1").click()
    expect(live.locator(".st-key-inspector")).to_contain_text("4 Transformer encoder")
    area = live.locator(".nsewdrag").first.bounding_box()
    live.mouse.move(area["x"] + area["width"] * 0.1, area["y"] + 60)
    live.mouse.down()
    live.mouse.move(area["x"] + area["width"] * 0.7, area["y"] + 60, steps=6)
    live.mouse.up()
    zoomed = live.evaluate(web.RANGE)
    assert zoomed[1] - zoomed[0] < 4
    live.evaluate(web.WATCH)
    web.eventually(lambda: live.evaluate(web.SEEN)["ticks"] >= 20, seconds=60)
    seen = live.evaluate(web.SEEN)
    assert (seen["replaced"], seen["blank"]) == (0, 0), seen
    assert len(seen["heights"]) == 1, seen
    assert live.evaluate(web.RANGE) == zoomed
    expect(box(live, "4@1")).to_have_attribute("aria-selected", "true")
    expect(live.locator(".clock")).to_contain_text("updated")


def test_a_selection_is_one_everywhere(live: Page) -> None:
    box(live, "3@1").click()
    expect(live.locator(".st-key-inspector")).to_contain_text("3 Class token")
    web.eventually(lambda: "node=3&it=1" in live.evaluate("location.search"))
    widths = (
        "() => document.querySelector('.js-plotly-plot').data.map((t) => [t.customdata?.[0], t.line.width])"
    )
    web.eventually(lambda: dict(filter(lambda one: one[0], live.evaluate(widths)))["3@1"] > 3)
    point = live.locator(".js-plotly-plot .scatterlayer .trace").nth(1).locator(".point").first.bounding_box()
    live.mouse.move(point["x"] + 2, point["y"] + 2)
    live.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    live.mouse.down()
    live.mouse.up()
    expect(box(live, "2@1")).to_have_attribute("aria-selected", "true")
    expect(live.locator(".st-key-inspector")).to_contain_text("2 Linear projection")
    live.keyboard.press("Escape")


def test_the_tree_is_walked_by_keyboard(live: Page) -> None:
    box(live, "2@1").click()
    box(live, "2@1").focus()
    live.keyboard.press("ArrowDown")
    live.keyboard.press("Enter")
    expect(box(live, "3@1")).to_have_attribute("aria-selected", "true")
    live.keyboard.press("ArrowUp")
    live.keyboard.press("Shift+Enter")
    expect(live.locator("[role=treeitem][aria-selected=true]")).to_have_count(2)
    live.keyboard.press("Escape")
    expect(live.locator("[role=treeitem][aria-selected=true]")).to_have_count(0)


def test_every_action_is_queued_and_answered(live: Page) -> None:
    web.eventually(lambda: box(live, "4b@2").count() == 1, seconds=40)
    box(live, "2@2").click()
    press(live, "Pin")
    chip(live, "pin 2", "applied")
    expect(live.get_by_role("button", name=re.compile("^Unpin"))).to_be_enabled()
    expect(live.get_by_role("button", name=re.compile("^Split"))).to_be_disabled()
    box(live, "3@2").click()
    press(live, "Split")
    press(live, "Queue split")
    chip(live, "split 3", "applied")
    press(live, "Swap")
    live.get_by_text("PyTorch: the subproblem's own reference").click()
    press(live, "Queue swap")
    chip(live, "swap 3 → PyTorch", "applied")
    box(live, "4a@2").click()
    box(live, "4b@2").click(modifiers=["Shift"])
    press(live, "Fuse")
    press(live, "Queue fuse")
    chip(live, "fuse 4a, 4b", "applied")


def test_a_refusal_is_shown_with_its_reason(live: Page) -> None:
    box(live, "1@1").click()
    press(live, "Fuse")
    press(live, "Queue fuse")
    chip(live, "1 may not be fused in this play", "refused")


def test_pause_resume_and_stop(live: Page) -> None:
    state = live.locator(".state .word")
    press(live, "Pause")
    expect(state).to_have_text("paused", timeout=15_000)
    press(live, "Resume")
    expect(state).to_have_text("running", timeout=25_000)
    press(live, "Stop")
    expect(state).to_have_text("finished", timeout=15_000)


def test_an_engine_that_is_killed_is_seen(
    runs_dir: Path, address: str, browser: Browser, source: RunSource
) -> None:
    with source(runs_dir, "killed") as run_id, web.opened(browser, f"{address}/live?run={run_id}") as page:
        web.wait_for_pictures(page)
        press(page, "more_horiz")
        page.get_by_role("textbox").fill("kill")
        page.get_by_role("textbox").press("Enter")
        press(page, "Kill now")
        expect(page.locator(".state .word")).to_have_text("crashed", timeout=15_000)
        expect(page.locator(".stAlert").first).to_contain_text("gone without a final event")


def test_hostile_names_are_shown_as_they_are(
    runs_dir: Path, address: str, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sample_run.PARTS, "3", ("cls_token", HOSTILE, 1))
    name = write_sample_run(runs_dir, "hostile").run_id
    with web.opened(browser, f"{address}/live?run={name}&node=3&it=5") as page:
        web.wait_for_pictures(page)
        expect(box(page, "3@5")).to_have_attribute("aria-label", re.compile(re.escape(HOSTILE)))
        expect(page.locator(".st-key-inspector")).to_contain_text(HOSTILE)
        assert page.locator("img[src=x]").count() == 0
        assert page.locator(".katex").count() == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 1000)])
def test_the_page_is_whole_in_every_look(
    runs_dir: Path, address: str, browser: Browser, tmp_path: Path, scheme: str, width: int
) -> None:
    name = f"looks-{scheme}-{width}"
    write_sample_run(runs_dir, name)
    url = f"{address}/live?run={name}&node=4c&it=5"
    with web.opened(browser, url, scheme, width) as page:
        web.wait_for_pictures(page)
        ground = page.locator(".stApp").evaluate("(node) => getComputedStyle(node).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 20, 24)"}[scheme]
        paper = page.locator(".js-plotly-plot .main-svg").first.evaluate("(node) => node.style.background")
        assert paper == ground
        wide = page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
        assert wide
        page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
