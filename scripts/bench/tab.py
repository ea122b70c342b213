"""Bench of the TensorBoard tab: time to open it on a long run.

Starts `trainperf view` on a synthetic run and opens the tab in headless Chromium.  *Open* means
that the answer can be read and the step-time breakdown is drawn, if only as the first picture of
it; next to it stands when that chart answers to the mouse, and when all are drawn.  The time counts
from the browser's request for the tab's page.  Four ways, each with a new TensorBoard:

* *new browser*: the page itself, the moment TensorBoard answers, in a browser that was never here;
* *same browser*: the same in a browser that has had the tab open before, as it mostly is;
* *in TensorBoard*: by TensorBoard's own page, whose start (not ours, and not counted) comes first;
* *again*: the page once more, with everything warm.

Needs Debian's `chromium` and `playwright`:
`python -m scripts.bench.tab [--steps N] [--ranks N] [--times N] [--json FILE]`.
"""

import argparse
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.bench.harness import installed, machine_line, table, write_json
from scripts.bench.report import write_rank


if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

STEPS = 100_000
TARGETS = {"open_s": 2.0}
"""Of issue 3, for 100,000 steps; from a server that has just started as well."""

SERVER_S = """performance.getEntriesByType("resource")
    .find((one) => one.name.includes("/run?")).responseEnd / 1000"""
"""When the answer of the server is there."""

PAGE = "data/plugin/trainperf/index.html"
PATIENCE_MS = 60_000

MARKS = ("answer_s", "chart_s")

# The page's own clock starts at the request.  What is there in a frame is painted at its end,
# when a message that the frame sends itself arrives.
WATCH = """
window.seen = {};
const marks = {
  answer_s: () => document.querySelector("#report h1"),
  chart_s: () => document.querySelector("#report [data-first] svg"),
};
function painted(done) {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = done;
  requestAnimationFrame(() => port2.postMessage(null));
}
function look() {
  for (const [name, there] of Object.entries(marks)) {
    if (name in window.seen || !there()) continue;
    window.seen[name] = null;
    painted(() => { window.seen[name] = performance.now() / 1000; });
  }
}
new MutationObserver(look).observe(document, { childList: true, subtree: true });
"""

Times = dict[str, float]


@contextmanager
def served(logdir: Path, port: int) -> Iterator[str]:
    """The address of a TensorBoard that has just started and has answered nothing yet."""
    process = subprocess.Popen(
        [sys.executable, "-m", "trainperf", "view", logdir, "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**installed(), "PYTHONUNBUFFERED": "1"},
    )
    with process:
        line = process.stdout.readline() if process.stdout else ""
        yield line.removeprefix("trainperf: ").split("#")[0]
        process.kill()


def opened(page: "Page", address: str) -> Times:
    """Seconds until the answer and the charts are painted."""
    page.goto(address)
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < deadline:
        page.wait_for_timeout(50)
        for frame in [frame for frame in page.frames if PAGE in frame.url]:
            marks: dict[str, float | None] = frame.evaluate("window.seen")
            painted = {name: value for name, value in marks.items() if value is not None}
            if len(painted) == len(MARKS):
                server_s = frame.evaluate(SERVER_S)
                open_s = max(painted["answer_s"], painted["chart_s"])
                return {"server_s": server_s, **painted, "open_s": open_s}
    raise SystemExit(f"{address}: the tab did not open in {PATIENCE_MS / 1000:g} s")


def measured(launch: "Callable[[Path], BrowserContext]", logdir: Path) -> dict[str, Times]:
    """One opening of each kind, with one profile of a browser and one port for its cache."""
    port = free_port()
    openings: dict[str, Times] = {}
    with tempfile.TemporaryDirectory() as profile:
        for name in ("new browser", "", "same browser", "in TensorBoard"):
            with served(logdir, port) as address, launch(Path(profile)) as browser:
                browser.add_init_script(WATCH)
                inside = name == "in TensorBoard"
                where = f"{address}#trainperf" if inside else address + PAGE
                # A browser keeps what it compiled of a script from the second time on.
                openings[name] = opened(browser.new_page(), where)
                if name == "same browser":
                    openings["again"] = opened(browser.pages[-1], where)
    del openings[""]
    return openings


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def medians(runs: Sequence[Times]) -> Times:
    """Of each figure the median over the runs, and of the target's the spread."""
    figures = {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}
    opens = [run["open_s"] for run in runs]
    return {**figures, "open_s_low": round(min(opens), 3), "open_s_high": round(max(opens), 3)}


def line(name: str, figures: Times) -> list[str]:
    """A row of the table."""
    spread = f"{figures['open_s_low']:.2f}–{figures['open_s_high']:.2f}"
    return [
        name,
        f"{figures['server_s']:.2f} s",
        f"{figures['answer_s']:.2f} s",
        f"{figures['chart_s']:.2f} s",
        f"{figures['open_s']:.2f} s [{spread}]",
    ]


def main() -> None:
    """Write, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--times", type=int, default=3, help="openings of each; medians are shown")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures here")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        run = Path(temporary) / "logs" / "trainperf"
        run.mkdir(parents=True)
        for rank in range(given.ranks):
            write_rank(run / f"steps-rank{rank}.jsonl", rank, given.ranks, given.steps)

        def launch(profile: Path) -> "BrowserContext":
            return playwright.chromium.launch_persistent_context(
                profile,
                executable_path=chromium,
                args=["--headless", "--no-sandbox", "--disable-gpu"],
                viewport={"width": 1400, "height": 1000},
            )

        rounds = [measured(launch, run.parent) for _ in range(given.times)]
    times = {name: medians([each[name] for each in rounds]) for name in rounds[0]}
    print(machine_line())
    head = [
        "a new TensorBoard",
        "its answer",
        "answer read",
        "charts",
        "open",
    ]
    print(table(head, [line(name, figures) for name, figures in times.items()]))
    print(f"target for {STEPS:,} steps: open in {TARGETS['open_s']:g} s")
    result: dict[str, object] = {"steps": given.steps, "ranks": given.ranks, "times": given.times}
    write_json(given.json, {**result, **times, "targets": TARGETS})


if __name__ == "__main__":
    main()
