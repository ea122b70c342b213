"""The tab in a browser: what a person sees is what is on the disk, and nothing leaves the machine.

Each test uses runs of its own below one log directory; `opened` fails on any foreign request, on
any error in the console, and so on anything the policy had to forbid.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browser import Tab
from support.runs import RankSpec, encode_rank, make_info, make_run_dir
from support.tab import TRACE, a_report, a_run, steps_of, write_capture
from support.vivid import vivid_trace


if TYPE_CHECKING:
    from playwright.sync_api import Route


pytestmark = [pytest.mark.slow, pytest.mark.beside]

Opened = Callable[..., Tab]


def words(tab: Tab, part: str = "#report") -> str:
    """What somebody reads."""
    return tab.page.locator(part).inner_text()


def drag(tab: Tab, part: str, begin: float, end: float) -> None:
    """Drag across a picture, from one share of its width to another."""
    area = tab.page.locator(f"{part} [data-first] .area").last
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    tab.page.mouse.move(box["x"] + begin * box["width"], box["y"] + box["height"] / 2)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + end * box["width"], box["y"] + box["height"] / 2, steps=5)
    tab.page.mouse.up()


def window(tab: Tab, part: str = "#report") -> list[float]:
    """What a picture shows: its first and last step, or second."""
    return tab.page.locator(f"{part} [data-first]").first.evaluate(
        "(node) => [Number(node.dataset.first), Number(node.dataset.last)]"
    )


def test_a_value_that_changes_on_disk_changes_on_the_page(logdir: Path, opened: Opened) -> None:
    """Without a reload; and nothing is drawn again while nothing changes."""
    a_run(logdir, "changing")
    tab = opened()
    page = tab.open("changing/trainperf")
    assert "20.0 ms" in words(tab)
    page.evaluate("""() => {
        window.redrawn = 0;
        new MutationObserver((changes) => { window.redrawn += changes.length; })
            .observe(document.getElementById("page"), { childList: true, subtree: true });
    }""")
    for _ in range(2):
        with page.expect_response(lambda response: "/run?" in response.url) as answer:
            pass
        assert answer.value.status == 304
    assert page.evaluate("window.redrawn") == 0

    a_run(logdir, "changing", steps_of(100, data_wait=35.0))
    tab.wait_for("document.querySelector('#report').innerText.includes('35.0 ms')")
    assert page.evaluate("window.redrawn") > 0


def test_a_part_of_a_long_run_shows_single_steps_and_stays_while_it_grows(
    logdir: Path, opened: Opened
) -> None:
    """20,000 steps: somebody drags across the breakdown, a button goes back."""
    file = make_run_dir(
        logdir / "long" / "trainperf",
        [RankSpec(steps=steps_of(20_000), info=make_info(), end=None)],
    )
    tab = opened()
    page = tab.open("long/trainperf")
    assert "the mean of 128 steps" in words(tab)

    drag(tab, "#report", 0.50, 0.51)
    page.wait_for_selector("text=Each column is one step")
    first, last = window(tab)
    assert 9_900 < first < last < 10_300

    more = encode_rank(RankSpec(steps=steps_of(20_100), info=make_info(), end=None))
    record = file / "steps-rank0.jsonl"
    with record.open("ab") as stream:
        stream.write(more[record.stat().st_size :])
    page.wait_for_selector("text=20,100 steps so far")
    assert window(tab) == [first, last]

    page.get_by_role("button", name="whole run").click()
    page.wait_for_selector("text=the mean of 128 steps")
    assert window(tab)[0] == 0


def test_a_capture_is_summed_up_drawn_and_can_be_downloaded(logdir: Path, opened: Opened) -> None:
    """The figures, the slices of its lanes, a part of them, and the very bytes of the trace."""
    run = a_run(logdir, "captured")
    write_capture(run, vivid_trace())
    tab = opened()
    page = tab.open("captured/trainperf")
    page.wait_for_selector(".capture [data-first]")
    whole = page.locator(".capture rect").count()

    drag(tab, ".capture", 0.06, 0.10)
    tab.wait_for(f"document.querySelectorAll('.capture rect').length < {whole}")
    titles = " ".join(page.locator(".capture rect title").all_text_contents())
    assert any(name in titles for name in ("sgemm", "vectorized", "softmax"))
    page.locator(".capture [data-first] .area").last.dblclick()
    tab.wait_for(f"document.querySelectorAll('.capture rect').length === {whole}")
    with page.expect_download() as download:
        page.get_by_text(f"Download {TRACE}").click()
    assert Path(download.value.path()).read_bytes() == (run / "traces" / TRACE).read_bytes()


def test_perfetto_is_opened_on_a_click_and_is_handed_the_trace(
    logdir: Path, opened: Opened
) -> None:
    """Nothing is asked of it before, and nothing but its own page after."""
    run = a_run(logdir, "perfetto")
    write_capture(run, a_report())
    tab = opened()
    page = tab.open("perfetto/trainperf")
    page.wait_for_selector(".capture [data-first]")
    assert tab.abroad() == []
    assert "ui.perfetto.dev in a new window, which needs the internet" in words(tab, ".files")

    def answer(route: "Route") -> None:
        route.fulfill(
            content_type="text/html",
            body="""<script>addEventListener("message", (event) => {
                if (event.data === "PING") event.source.postMessage("PONG", event.origin);
                else window.received = event.data.perfetto;
            })</script>""",
        )

    page.context.route("https://ui.perfetto.dev/**", answer)
    with page.context.expect_page() as popup:
        page.get_by_role("button", name="Open in Perfetto").click()
    page.wait_for_selector("text=opened in Perfetto")
    popup.value.wait_for_function("window.received")
    size = popup.value.evaluate("window.received.buffer.byteLength")

    assert size == (run / "traces" / TRACE).stat().st_size
    assert popup.value.evaluate("window.received.title") == TRACE
    assert {address.rstrip("/") for address in tab.abroad()} == {"https://ui.perfetto.dev"}
    tab.asked.clear()


def test_the_tab_is_a_tab_of_tensorboard(logdir: Path, opened: Opened) -> None:
    """In the frame that TensorBoard makes for it."""
    tab = opened()
    tab.page.goto(f"{tab.address}#trainperf")
    frame = tab.page.frame_locator("iframe")

    frame.locator("#run").select_option("0-first/trainperf")
    frame.locator("#report header", has_text="0-first").wait_for()

    assert "Step time 51.0 ms" in frame.locator("#report h1").inner_text()
    # TensorBoard's own scripts may complain; ours are asked above.
    tab.complaints.clear()
