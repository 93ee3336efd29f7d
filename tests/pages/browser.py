"""A real dashboard server, a real browser, and what a walk through the pages needs of them."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

expect.set_options(timeout=20_000)  # as for the pages: a busy machine is no failure

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# Marks the two pictures, then looks at them in every frame: a replaced node, an empty one, another height.
WATCH = """() => {
  const find = (root, css) => {
    const hit = root.querySelector(css);
    if (hit) return hit;
    for (const node of root.querySelectorAll('*')) {
      const inner = node.shadowRoot && find(node.shadowRoot, css);
      if (inner) return inner;
    }
    return null;
  };
  const seen = window.watched = { frames: 0, replaced: 0, blank: 0, heights: new Set(), ticks: new Set() };
  const [tree, plot, head] = ['.tree', '.js-plotly-plot', '.head[data-tick]'].map((css) => find(document, css));
  const look = () => {
    seen.frames += 1;
    if (!tree.isConnected || !plot.isConnected) seen.replaced += 1;
    if (!tree.querySelector('.box') || !plot.querySelector('.scatterlayer .trace')) seen.blank += 1;
    seen.heights.add(`${tree.clientHeight} ${plot.clientHeight}`);
    seen.ticks.add(head.dataset.tick);
    window.watching = requestAnimationFrame(look);
  };
  look();
}"""
SEEN = """() => { const s = window.watched;
  return { frames: s.frames, replaced: s.replaced, blank: s.blank, heights: [...s.heights], ticks: s.ticks.size } }"""
WIDTHS = """() => Object.fromEntries(document.querySelector('.js-plotly-plot').data
  .filter((trace) => trace.customdata).flatMap((trace) => trace.customdata.map((id) => [id, trace.line.width])))"""
RANGE = "() => document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range.map((x) => +x.toFixed(3))"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(runs_dir: Path, port: int | None = None) -> Iterator[str]:
    """`streamlit run app.py` on a port, a free one if none is named; the address of its page."""
    port = port or free_port()
    call = [sys.executable, "-m", "streamlit", "run", "app.py"]
    call += ["--server.headless", "true", "--server.port", str(port)]
    process = subprocess.Popen(
        call,
        cwd=ROOT,
        env={**os.environ, "MKEVOLVE_RUNS_DIR": str(runs_dir)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _answers(f"{address}/_stcore/health"), seconds=60)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, url: str, scheme: str = "light", width: int = 1440) -> Iterator[Page]:
    """A page in a browser profile of its own; an exception in its scripts fails the test."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(20_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(f"{error} {error.stack}"))
    page.goto(url)
    yield page
    context.close()
    assert errors == [], errors


def eventually(claim: Callable[[], bool], seconds: float = 15.0) -> None:
    """Wait until the claim holds; fail if it does not in time."""
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, f"not within {seconds:.0f} s"
        time.sleep(0.1)


def wait_for_pictures(page: Page) -> tuple[float, float]:
    """Seconds from now until the tree shows boxes, and until the lines show traces."""
    start = time.monotonic()
    page.locator("[role=treeitem]").first.wait_for()
    tree = time.monotonic() - start
    page.locator(".js-plotly-plot .scatterlayer .trace").first.wait_for()
    return tree, time.monotonic() - start


def box(page: Page, name: str) -> Locator:
    """A box of the tree: "4a@2" is subproblem 4a in iteration 2."""
    return page.locator(f'[data-id="{name}"]')


def inspector(page: Page) -> Locator:
    return page.locator(".st-key-inspector")


def press(page: Page, label: str) -> None:
    """The first button whose name begins with the label."""
    page.get_by_role("button", name=re.compile(f"^{label}")).first.click()


def chip(page: Page, what: str, status: str, seconds: float = 15.0) -> None:
    """The newest commands hold one that is `what`, and it is as far as `status`."""
    found = page.locator(f".chip[data-status={status}]").filter(has_text=what)
    expect(found.first).to_be_visible(timeout=seconds * 1000)


def state_is(page: Page, word: str, seconds: float = 15.0) -> None:
    expect(page.locator(".state .word")).to_have_text(word, timeout=seconds * 1000)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
