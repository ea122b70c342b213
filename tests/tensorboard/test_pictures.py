"""What the tab looks like; `TRAINPERF_PICTURES=docs/images` keeps the documentation's pictures."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support.browser import Tab
from support.tab import TRACE, a_run, write_capture
from support.vivid import vivid_run, vivid_trace

from trainperf.tensorboard.data import ATTACH


pytestmark = [pytest.mark.slow, pytest.mark.beside]

Opened = Callable[..., Tab]
Picture = Callable[[str], Path]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_run(logdir: Path, opened: Opened, picture: Picture, *, dark: bool) -> None:
    """All of a run with a capture, in the browser's colours."""
    write_capture(vivid_run(logdir, "workers-2"), vivid_trace())
    tab = opened(dark=dark)
    page = tab.open("workers-2/trainperf")
    page.wait_for_selector(".timeline .main-svg")
    page.wait_for_timeout(500)

    if not dark:
        page.screenshot(path=picture("tab-light"), full_page=True)

    text, behind = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert (brightness(text) > brightness(behind)) is dark
    axis = page.evaluate("document.querySelector('.plot.steps').layout.xaxis.tickfont.color")
    assert (brightness(axis) > 128) is dark


def brightness(colour: str) -> float:
    """Of `rgb(…)` or `#rrggbb`, from 0 to 255."""
    if colour.startswith("#"):
        return sum(int(colour[place : place + 2], 16) for place in (1, 3, 5)) / 3
    return sum(float(part) for part in colour[4:-1].split(",")[:3]) / 3


def test_two_runs(logdir: Path, opened: Opened, picture: Picture) -> None:
    """The same fit with two and with eight workers."""
    vivid_run(logdir, "workers-2")
    vivid_run(logdir, "workers-8", workers=8)
    tab = opened(width=1700, height=1100)
    page = tab.open("workers-2/trainperf", "workers-8/trainperf")
    page.wait_for_selector(".column:nth-child(2) .steps .main-svg")
    page.wait_for_timeout(800)

    page.screenshot(path=picture("tab-two-runs"))

    assert page.locator("article.column").count() == 2


def test_a_step_that_is_pointed_at(logdir: Path, opened: Opened, picture: Picture) -> None:
    """Hovering says what the step is made of, and why it is unusual."""
    vivid_run(logdir, "workers-2")
    tab = opened(height=760)
    page = tab.open("workers-2/trainperf")
    page.wait_for_timeout(800)
    box = page.locator(".plot.steps .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + box["height"] / 2)
    page.wait_for_selector(".hoverlayer .legend")

    page.screenshot(path=picture("tab-hover"))

    said = page.locator(".plot.steps .hoverlayer").text_content() or ""
    assert "data wait" in said
    assert "backward" in said


def test_the_tab_in_tensorboard(logdir: Path, opened: Opened) -> None:
    """As somebody finds it."""
    vivid_run(logdir, "workers-2")
    os.utime(logdir / "workers-2" / "trainperf" / "steps-rank0.jsonl")
    tab = opened(height=900)
    tab.page.goto(f"{tab.address}#trainperf")
    frame = tab.page.frame_locator("iframe")
    frame.locator("#run").select_option("workers-2/trainperf")
    frame.locator("h2", has_text="workers-2").wait_for()
    frame.locator(".steps .main-svg").first.wait_for()

    assert frame.locator("p.answer").first.is_visible()
    tab.complaints.clear()


def test_a_log_directory_without_a_run(opened: Opened) -> None:
    """Says what to do; shown with the answer that an empty directory gets."""
    tab = opened(height=520)
    none = {
        "runs": [],
        "where": ["lightning_logs"],
        "attach": [msgspec.to_builtins(lines) for lines in ATTACH],
    }
    tab.page.route("**/runs?*", lambda route: route.fulfill(json=none))
    page = tab.open()

    page.wait_for_selector("text=No run here yet")

    shown = page.locator("pre:visible").all_inner_texts()
    assert [lines.value.strip() for lines in ATTACH] == [text.strip() for text in shown]


def test_a_window_of_a_trace(logdir: Path, opened: Opened) -> None:
    """Dragging across the timeline asks for that window in detail; a button goes back."""
    write_capture(a_run(logdir, "traced"), vivid_trace())
    tab = opened()
    page = tab.open("traced/trainperf")
    page.wait_for_selector(".timeline .main-svg")
    page.locator(".timeline").scroll_into_view_if_needed()
    box = page.locator(".timeline .nsewdrag").first.bounding_box()
    assert box is not None
    count = "document.querySelector('.timeline').data.find((t) => t.meta === 'compute').x.length"
    whole = page.evaluate(count)
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.06 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.10 * box["width"], middle, steps=5)
    page.mouse.up()
    tab.wait_for(f"{count} < 100")

    text = page.evaluate(
        "document.querySelector('.timeline').data.find((t) => t.meta === 'compute').text[0]"
    )

    assert whole > page.evaluate(count)
    assert "ampere_sgemm_128x64" in text or "vectorized" in text or "softmax" in text
    page.get_by_role("button", name="whole capture").click()
    tab.wait_for(f"{count} === {whole}")
    assert (logdir / "traced" / "trainperf" / "traces" / TRACE).exists()
