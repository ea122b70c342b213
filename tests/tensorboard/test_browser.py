"""The tab in a browser: what a person sees is what is on the disk, and nothing leaves the machine.

Each test uses runs of its own below one log directory; `opened` fails on any foreign request, on
any error in the console, and so on anything the policy had to forbid.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browser import PAGE, Tab
from support.cases import CASES
from support.runs import RankSpec, encode_rank, make_info, make_run_dir
from support.tab import TRACE, a_report, a_run, steps_of, write_capture
from support.tried import TRIED

from trainperf.core.artifacts import write_document


if TYPE_CHECKING:
    from playwright.sync_api import Route


pytestmark = [pytest.mark.slow, pytest.mark.beside]

Opened = Callable[..., Tab]
EVIL = "<img src=x onerror=document.title='gone'>"


def shown(tab: Tab, text: str) -> bool:
    """Whether somebody can see it."""
    return tab.page.get_by_text(text).first.is_visible()


def said(tab: Tab) -> str:
    """The answer; a number and its unit are held together by a space that does not break."""
    return tab.page.locator("p.answer").first.inner_text().replace("\u00a0", " ")


def test_a_run_is_shown_with_its_answer_its_steps_and_its_findings(
    logdir: Path, opened: Opened
) -> None:
    """The words of the report, the figures of the records."""
    make_run_dir(logdir / "bound" / "trainperf", CASES["loader_bound"]().ranks)
    tab = opened()
    page = tab.open("bound/trainperf")

    assert said(tab).startswith("Step time 55.2 ms; 37 % of it is data wait")
    assert page.locator(".phases tr").first.inner_text().split()[:5] == [
        "data", "wait", "20.3", "ms", "36.7",
    ]  # fmt: skip
    assert tab.drawn("data_wait")[:3] == pytest.approx([20, 20.35, 20.15])
    assert tab.drawn("backward")[0] == 13
    page.wait_for_selector("[data-chart=tokens] .main-svg")
    pointed_at = page.evaluate("""() => document.querySelector("[data-chart=tokens] .plot").data
        .find((trace) => trace.meta === "tokens_effective").text[0]""")
    assert pointed_at == "907 /s"
    assert page.locator(".finding h4").first.inner_text().startswith("37 % of the step is spent")
    assert shown(tab, "DataLoader(num_workers=1, persistent_workers=True)")


def test_the_answer_and_a_first_picture_do_not_wait_for_plotly(
    logdir: Path, opened: Opened
) -> None:
    """The same areas to the same scale, until the chart itself takes their place."""
    a_run(logdir, "early", steps_of(100, data_wait=30.0))
    tab = opened()
    held: list[Route] = []
    tab.page.route("**/plotly.min.js", lambda route: held.append(route))  # noqa: PLW0108 it sets attributes
    tab.page.goto(f"{tab.address}{PAGE}#run=early/trainperf")
    tab.page.wait_for_selector(".steps canvas.sketch")

    assert said(tab).startswith("Step time 61.0 ms; 49 % of it is data wait")
    rows = tab.page.evaluate("""() => {
        const canvas = document.querySelector(".steps canvas.sketch");
        const middle = canvas.width / 2;
        const { data } = canvas.getContext("2d").getImageData(middle, 0, 1, canvas.height);
        return [...Array(canvas.height).keys()].map((y) =>
            "#" + [0, 1, 2].map((n) => data[4 * y + n].toString(16).padStart(2, "0")).join(""));
    }""")
    tone = tab.page.evaluate(
        "getComputedStyle(document.documentElement).getPropertyValue('--phase-data_wait').trim()"
    )
    for route in held:
        route.continue_()
    tab.page.wait_for_selector(".steps .main-svg")
    tab.wait_for("document.querySelector('canvas.sketch') === null")
    frame_ms = tab.page.evaluate("document.querySelector('.plot.steps').layout.yaxis.range[1]")
    # The plot of the breakdown is 250 pixels high.
    assert rows.count(tone) == pytest.approx(30 / frame_ms * 250, abs=2)


def test_plotly_does_not_begin_before_the_answer_is_there(logdir: Path, opened: Opened) -> None:
    """It blocks the page for a second: an answer that comes meanwhile could not be shown."""
    a_run(logdir, "late")
    tab = opened()
    held: list[Route] = []
    tab.page.route("**/run?*", lambda route: held.append(route))  # noqa: PLW0108 it sets attributes
    tab.page.goto(f"{tab.address}{PAGE}#run=late/trainperf")
    tab.page.wait_for_timeout(2500)

    assert held
    assert tab.page.locator("script[src='plotly.min.js']").count() == 0
    held[0].continue_()
    tab.page.wait_for_selector(".steps .main-svg")
    assert said(tab).startswith("Step time 51.0 ms")


def test_what_does_not_apply_is_said_and_not_drawn(logdir: Path, opened: Opened) -> None:
    """*Not applicable* with the reason; no chart, no zero."""
    reasons = {"attempts": "not applicable: bf16-mixed uses no GradScaler"}
    spec = RankSpec(steps=CASES["compute_bound"]().ranks[0].steps, info=make_info(reasons=reasons))
    make_run_dir(logdir / "bf16" / "trainperf", [spec])
    tab = opened()
    page = tab.open("bf16/trainperf")

    assert shown(tab, "not applicable: bf16-mixed uses no GradScaler")
    assert shown(tab, "not applicable (CPU): host and device are the same")
    assert page.locator("[data-chart=overflow]").count() == 0
    assert page.locator("[data-chart=device]").count() == 0
    assert page.locator("[data-chart=data_wait]").is_visible()


def test_a_value_that_changes_on_disk_changes_on_the_page(logdir: Path, opened: Opened) -> None:
    """In the words and in the chart, without a reload."""
    a_run(logdir, "changing")
    tab = opened()
    page = tab.open("changing/trainperf")
    assert tab.drawn("data_wait") == [20] * 100
    assert "20.0 ms" in page.locator(".phases tr").first.inner_text()

    a_run(logdir, "changing", steps_of(100, data_wait=35.0))
    tab.wait_for("document.querySelector('.phases tr').innerText.includes('35.0 ms')")
    tab.wait_for("document.querySelector('.plot.steps').data[0].y[0] === 35")

    assert tab.drawn("data_wait") == [35] * 100


def test_nothing_is_drawn_again_while_nothing_changes(logdir: Path, opened: Opened) -> None:
    """Two more answers come, and both say that there is nothing new."""
    a_run(logdir, "still")
    tab = opened()
    page = tab.open("still/trainperf")
    page.wait_for_selector("[data-chart=loss] .main-svg")
    page.evaluate("""() => {
        window.redrawn = 0;
        for (const plot of document.querySelectorAll(".js-plotly-plot"))
            plot.on("plotly_afterplot", () => { window.redrawn += 1; });
        new MutationObserver((changes) => { window.redrawn += changes.length; })
            .observe(document.getElementById("columns"), { childList: true, subtree: true });
    }""")

    for _ in range(2):
        with page.expect_response(lambda response: "/run?" in response.url) as answer:
            pass
        assert answer.value.status == 304
    assert page.evaluate("window.redrawn") == 0


def drag(tab: Tab, begin: float, end: float) -> None:
    """Drag across the step-time breakdown, from one share of its width to another."""
    box = tab.page.locator(".plot.steps .nsewdrag").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    tab.page.mouse.move(box["x"] + begin * box["width"], middle)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + end * box["width"], middle, steps=5)
    tab.page.mouse.up()


def test_zooming_into_a_long_run_shows_single_steps_and_stays_while_it_grows(
    logdir: Path, opened: Opened
) -> None:
    """20,000 steps, of which one takes a second; all charts follow, a button goes back."""
    steps = steps_of(20_000)
    file = make_run_dir(
        logdir / "long" / "trainperf", [RankSpec(steps=steps, info=make_info(), end=None)]
    )
    tab = opened()
    page = tab.open("long/trainperf")
    assert shown(tab, "the mean of 32 steps")

    drag(tab, 0.50, 0.51)
    tab.wait_for("document.querySelector('.plot.steps').data[0].x.length > 150")
    page.wait_for_selector("text=Each column is one step.")
    window = page.evaluate("document.querySelector('.plot.steps').layout.xaxis.range")
    loss = page.evaluate("document.querySelector('[data-chart=loss] .plot').layout.xaxis.range")
    assert loss == window
    assert 9_900 < window[0] < window[1] < 10_300

    more = encode_rank(RankSpec(steps=steps_of(20_100), info=make_info(), end=None))
    record = file / "steps-rank0.jsonl"
    with record.open("ab") as stream:
        stream.write(more[record.stat().st_size :])
    page.wait_for_selector("text=20,100 steps so far")
    assert page.evaluate("document.querySelector('.plot.steps').layout.xaxis.range") == window

    page.get_by_role("button", name="whole run").click()
    page.wait_for_selector("text=the mean of 32 steps")
    assert page.evaluate("document.querySelector('.plot.steps').layout.xaxis.range[0]") == -0.5


def test_tagged_steps_are_marked_and_say_why(logdir: Path, opened: Opened) -> None:
    """A row for each tag, and the sentence at the step."""
    a_run(logdir, "tagged")
    tab = opened()
    page = tab.open("tagged/trainperf")

    marks = page.evaluate("""() => document.querySelector(".plot.steps").data
        .filter((trace) => trace.meta.startsWith("tag:"))
        .map((trace) => [trace.name, trace.x.length, trace.text[0]])""")

    assert [mark[:2] for mark in marks] == [["warm-up", 12], ["after validation", 1]]
    assert "step 60" in marks[1][2]
    assert "validation ran just before it" in marks[1][2]
    assert "excluded from the steady steps" in marks[1][2]


def test_names_that_are_markup_are_shown_as_text(logdir: Path, opened: Opened) -> None:
    """A run, a lane, an operator and a warning that would like to be elements."""
    run = a_run(logdir, EVIL)
    report = a_report(name=EVIL)
    lane = report.ranks[0].lanes[1]
    text = "<b>bold</b><a href='https://example.com'>x</a>"
    import msgspec

    rank = msgspec.structs.replace(
        report.ranks[0], lanes=(msgspec.structs.replace(lane, name=text),)
    )
    write_capture(run, msgspec.structs.replace(report, ranks=(rank,), warnings=(EVIL,)))
    tab = opened()
    page = tab.open()
    page.select_option("#run", label=EVIL)
    page.wait_for_selector(".timeline .main-svg")

    assert page.locator("h2").inner_text() == EVIL
    assert page.locator(".capture .warning").inner_text() == EVIL
    assert page.locator(".timeline .ytick").first.text_content() == text
    assert page.locator("#columns img").count() == 0
    assert page.locator(".timeline a").count() == 0
    assert page.title() == "trainperf"
    shutil.rmtree(logdir / EVIL)


def test_a_plot_is_as_high_as_the_run_that_is_chosen_needs(logdir: Path, opened: Opened) -> None:
    """Its rows of tags are others than those of the run before."""
    a_run(logdir, "height-many", steps_of(100))
    a_run(logdir, "height-none", steps_of(40, first=20))
    tab = opened()
    page = tab.open("height-none/trainperf")
    page.wait_for_selector(".plot.steps .main-svg")
    page.select_option("#run", label="height-many")
    page.locator("h2", has_text="height-many").wait_for()
    page.locator(".plot.steps text", has_text="warm-up").wait_for()

    node, drawn = page.evaluate("""() => [".plot.steps", ".plot.steps .main-svg"].map((kind) =>
        document.querySelector(kind).getBoundingClientRect().height)""")
    assert drawn == pytest.approx(node, abs=1)


def test_what_was_tried_is_drawn_by_gain_on_one_axis(logdir: Path, opened: Opened) -> None:
    """With a sign for each verdict; a run without trials has no such part."""
    run = make_run_dir(logdir / "tried" / "trainperf", CASES["loader_bound"]().ranks)
    make_run_dir(logdir / "untried" / "trainperf", CASES["loader_bound"]().ranks)
    write_document(TRIED["best"], run)
    tab = opened()
    page = tab.open("untried/trainperf")
    assert page.locator("section.tried").is_hidden()

    page = tab.open("tried/trainperf")
    page.reload()
    page.wait_for_selector(".trial .what")
    titles = page.locator(".trial .what").all_inner_texts()
    assert titles[0].splitlines()[0] == "AMP in bf16 + AdamW with fused=True"
    assert [title.splitlines()[0] for title in titles[-2:]] == [
        "batches from memory",
        "no optimizer update",
    ]
    assert shown(tab, "▲ faster")
    assert shown(tab, "≤ at most 1.31×")
    ends = page.evaluate("""() => [".gained.good", ".gained.most"].map((kind) => {
        const { left, right } = document.querySelector(kind).getBoundingClientRect();
        return [left, right]; })""")
    assert ends[0][0] == pytest.approx(ends[1][0], abs=1)
    assert ends[1][1] < ends[0][1]


def test_two_runs_stand_side_by_side_on_one_scale(logdir: Path, opened: Opened) -> None:
    """And what only one of them measured has its reason in the other."""
    a_run(logdir, "before", steps_of(100, data_wait=60.0))
    make_run_dir(logdir / "after" / "trainperf", CASES["compute_bound"]().ranks)
    tab = opened(width=1800)
    page = tab.open("before/trainperf", "after/trainperf")
    page.wait_for_selector(".column:nth-child(2) .steps .main-svg")

    frames = page.evaluate("""() => [...document.querySelectorAll(".plot.steps")]
        .map((plot) => plot.layout.yaxis.range)""")

    assert frames[0] == frames[1]
    assert tab.drawn("data_wait", 0)[0] == 60
    assert tab.drawn("data_wait", 1)[0] == 0.4
    loss = page.locator(".column:nth-child(2) [data-chart=loss]")
    assert "not measured: nothing recorded loss" in loss.inner_text()
    tops = [page.locator("section.captures").nth(n).bounding_box() for n in (0, 1)]
    assert tops[0] is not None
    assert tops[1] is not None
    assert tops[0]["y"] == tops[1]["y"]


def test_a_capture_is_summed_up_drawn_and_can_be_downloaded(logdir: Path, opened: Opened) -> None:
    """The figures, the slices of its lanes, and the very bytes of the trace."""
    run = a_run(logdir, "captured")
    write_capture(run, a_report())
    tab = opened()
    page = tab.open("captured/trainperf")
    page.wait_for_selector(".timeline .main-svg")

    assert page.locator(".capture p.answer").inner_text().startswith("the GPU is idle 39 %")
    assert shown(tab, "steps 120–122 · rank 0")
    slices = page.evaluate("""() => document.querySelector(".timeline").data
        .map((trace) => [trace.meta, trace.base, trace.x])""")
    assert slices[1] == ["compute", [0], [61]]
    assert slices[2][0] == "idle"
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
    page.wait_for_selector(".timeline .main-svg")
    assert tab.abroad() == []
    assert shown(
        tab, "hands the trace to ui.perfetto.dev in a new window, which needs the internet"
    )

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


def test_a_run_that_appears_is_shown_at_once(logdir: Path, opened: Opened) -> None:
    """The picker lists it while the page stays open."""
    tab = opened()
    page = tab.open("0-first/trainperf")

    a_run(logdir, "late")

    page.wait_for_selector("#run option[value='late/trainperf']", state="attached")


def test_a_run_that_goes_away_is_said_to(logdir: Path, opened: Opened) -> None:
    """A record file of another release, or none: one sentence in place of the charts."""
    run = a_run(logdir, "gone")
    tab = opened()
    page = tab.open("gone/trainperf")

    (run / "steps-rank0.jsonl").write_bytes(b'{"kind": "run", "schema": 99}\n')

    page.wait_for_selector("text=schema version 99")
    assert page.locator(".plot.steps").is_hidden()
    # The browser itself reports the refused answer.
    tab.complaints.clear()
    shutil.rmtree(run.parent)


def test_the_tab_is_a_tab_of_tensorboard(logdir: Path, opened: Opened) -> None:
    """In the frame that TensorBoard makes for it."""
    tab = opened()
    tab.page.goto(f"{tab.address}#trainperf")
    frame = tab.page.frame_locator("iframe")

    frame.locator("#run").select_option("0-first/trainperf")
    frame.locator("h2", has_text="0-first").wait_for()

    assert "Step time 51.0\u00a0ms" in frame.locator("p.answer").first.inner_text()
    # TensorBoard's own scripts may complain; ours are asked above.
    tab.complaints.clear()
