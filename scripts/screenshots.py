"""Takes the pictures of docs/images from the page: New run, and the shipped recording being played.

    .venv/bin/python -m scripts.screenshots [RUNS_DIR]

It needs Chromium (`scripts/browser.sh`). RUNS_DIR is kept; without one the run is thrown away.
"""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from mkevolve_core.launch import kill_run
from mkevolve_core.run_files import read_heartbeat
from store.run_folder import RunFolder, list_runs
from tests.pages import browser as web

IMAGES = web.ROOT / "docs" / "images"
SAMPLE = "Convolutional vision transformer"
RUN_SECONDS = 900.0


def main(runs_dir: Path) -> None:
    """docs/images/{new-run,live-light,live-dark,prompts}.png."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with web.chromium() as browser, web.server(runs_dir) as address, stopped_at_the_end(runs_dir):
        with web.opened(browser, f"{address}/new_run") as page:
            start(page)
        (run,) = list_runs(runs_dir)
        web.eventually(lambda: run.state().finished is not None, RUN_SECONDS)
        prompts(browser, f"{address}/live?run={run.run_id}&node=3a&it=4&tab=Prompts")
        for scheme in ("light", "dark"):
            live(browser, f"{address}/live?run={run.run_id}", run, scheme)


def start(page: Page) -> None:
    """The form as it opens, with the sample that needs every step; then the recorded run."""
    expect(page.get_by_text("✓ Model")).to_be_visible()
    page.get_by_role("combobox", name="Sample problem").click()
    page.get_by_role("option", name=SAMPLE).click()
    expect(page.get_by_text("24 kernel-writing calls")).to_be_visible()
    keep(page, "new-run")
    page.get_by_role("button", name="Watch a recorded run").click()
    page.locator("[role=treeitem]").first.wait_for(timeout=RUN_SECONDS * 1000)


def fused_and_judged(run: RunFolder) -> str | None:
    """The box of a fused subproblem that has a subkernel, once there is one."""
    state = run.state()
    parts = [part for part in state.live if len(part.subproblem.parents) > 1]
    name = next((part.subproblem.subproblem_id for part in parts if part.chosen), None)
    return f"{name}@{state.iteration}" if name else None


def live(browser: Browser, url: str, run: RunFolder, scheme: str) -> None:
    name, _, iteration = (fused_and_judged(run) or "@").partition("@")
    with web.opened(browser, f"{url}&node={name}&it={iteration}", scheme=scheme) as page:
        web.wait_for_pictures(page)
        expect(web.inspector(page)).to_contain_text("@triton.jit")
        page.wait_for_timeout(3000)  # fonts, colours of the code, one more tick
        keep(page, f"live-{scheme}")


def prompts(browser: Browser, url: str) -> None:
    with web.opened(browser, url) as page:
        web.wait_for_pictures(page)
        page.get_by_text("Prompts", exact=True).first.click()
        page.wait_for_timeout(3000)
        web.inspector(page).scroll_into_view_if_needed()
        page.mouse.wheel(0, 500)
        page.wait_for_timeout(1000)
        keep(page, "prompts")


def keep(page: Page, name: str) -> None:
    page.mouse.move(5, 895)
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    shot.save(IMAGES / f"{name}.png", optimize=True)


@contextmanager
def stopped_at_the_end(runs_dir: Path) -> Iterator[None]:
    try:
        yield
    finally:
        for run in list_runs(runs_dir):
            if read_heartbeat(run.path / "engine.json"):
                kill_run(runs_dir, run.run_id)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(Path(folder) / "runs")
