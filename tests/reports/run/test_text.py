"""The report for a terminal: short, the answer first, and never obeying a name."""

from pathlib import Path

import pytest
from rich.cells import cell_len
from support.cases import CASES, Case
from support.golden import summary_of_case
from support.runs import RankSpec, make_info, make_step, make_steps, summary_of

from trainperf.core.phases import Tag
from trainperf.core.steps.records import Totals
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import as_text
from trainperf.reports.run import text
from trainperf.reports.run.document import run_document
from trainperf.reports.run.headline import headline


@pytest.mark.parametrize("width", [60, 80, 100, 140])
@pytest.mark.parametrize("name", CASES)
def test_it_fits_the_terminal(name: str, width: int, tmp_path: Path) -> None:
    """At most 25 lines, none wider than the terminal."""
    lines = text.lines(summary_of_case(CASES[name](), tmp_path), width)

    assert len(lines) <= text.MOST_LINES
    assert max(cell_len(line.plain) for line in lines) <= width


def test_with_everything_to_say_it_is_still_short(tmp_path: Path) -> None:
    """Sixty-four ranks, warnings from all over, every fact and several findings."""
    facts = {"tail_ns": 2_000_000, "tokens_effective": 10, "tokens_padded": 99, "loss": 1.0}
    specs = [
        RankSpec(
            steps=make_steps(
                40, data_wait=20, forward=20, backward=30, callbacks=20, loop=20, facts=facts
            ),
            info=make_info(rank=rank, world_size=70, config={"num_workers": 0}),
            totals=Totals(at_step=1, faults={f"probe {n}": "KeyError: 'x'" for n in range(40)}),
        )
        for rank in range(64)
    ]

    lines = [line.plain for line in text.lines(summary_of(tmp_path, specs), 80)]

    assert len(lines) <= text.MOST_LINES
    assert any(line.startswith("  next") for line in lines)
    assert any(line.startswith("  note  64 of 70 ranks read") for line in lines)


def test_the_first_line_after_the_title_is_the_answer(tmp_path: Path) -> None:
    """Step time, the largest share, what to do and the most it can gain."""
    steps = make_steps(200, data_wait=20, forward=15, backward=15)
    report = text.render(summary_of(tmp_path, [RankSpec(steps=steps)])).splitlines()

    assert report[0].startswith("trainperf · gpt2 · 1 rank · CPU · 188 steady steps")
    assert report[2].startswith(
        "  Step time 50.0 ms; 40 % of it is data wait. First: fix the loader"
    )
    assert "— about 1.39×, at most 1.79×." in report[2]


def test_of_a_run_without_a_step_there_is_no_sum(tmp_path: Path) -> None:
    """Neither a time of nothing nor its parts."""
    report = text.render(summary_of(tmp_path, [RankSpec(steps=[], end=None)]))

    assert "No step was recorded." in report
    assert "fit" not in report


def test_all_of_the_wait_is_named_though_the_advice_leaves_a_part(tmp_path: Path) -> None:
    """A worker takes 30 ms of a CPU that the model needs, too: its 60 % are waited for before."""
    info = make_info(config={"num_workers": 0}, hardware={"cpu_count": 2, "threads": 2})
    steps = make_steps(100, data_wait=30, forward=20)
    summary = summary_of(tmp_path, [RankSpec(steps=steps, info=info)])
    (first, *_) = summary.findings

    assert first.id == "data_wait"
    assert first.fraction == pytest.approx(0.6)
    assert first.gain is not None
    assert first.gain < 1 / (1 - 0.55)
    assert "60 % of it is data wait" in headline(summary)


def test_when_steps_vary_the_answer_says_the_mean_too(tmp_path: Path) -> None:
    """The phases are means: where those do not add up to the median, a reader must know why."""
    fast = make_steps(112, data_wait=10, forward=30)
    slow = [make_step(112 + n, start_ns=10**12 + n, data_wait=10, forward=230) for n in range(25)]

    said = headline(summary_of(tmp_path, [RankSpec(steps=[*fast, *slow])]))

    assert said.startswith("Step time 40.0 ms, mean 80.0 ms; 12 % of it is data wait and")


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("data_wait", "data wait"),
        ("h2d", "copying the batch to the device"),
        ("forward", "compute (forward, backward, optimizer)"),
        ("backward", "compute (forward, backward, optimizer)"),
        ("optimizer", "compute (forward, backward, optimizer)"),
        ("callbacks", "callbacks"),
        ("loop", "the framework's loop between steps"),
        ("other", "outside every phase"),
    ],
)
def test_the_largest_share_is_named_whatever_it_is(tmp_path: Path, phase: str, said: str) -> None:
    """60 of 65 ms."""
    phases = {"forward": 5.0, phase: 60.0}
    summary = summary_of(tmp_path, [RankSpec(steps=make_steps(100, **phases))])

    assert f"of it is {said}." in headline(summary)


def test_the_share_to_act_on_is_named_before_a_larger_one_that_is_just_work(
    tmp_path: Path,
) -> None:
    """80 % is computing; what can be removed is the loader's 20 %."""
    summary = summary_of(tmp_path, [RankSpec(steps=make_steps(100, data_wait=10, forward=40))])

    assert headline(summary).startswith(
        "Step time 50.0 ms; 20 % of it is data wait and 80 % compute. "
        "First: fix the loader — about 1.16×, at most 1.32×."
    )


def test_a_phase_that_nobody_could_see_is_not_shown_as_nothing(tmp_path: Path) -> None:
    """A step that fetches by itself copies the batch where no bracket is."""
    info = make_info(device="cuda", reasons={"phase_h2d_s": "training_step fetches by itself"})
    summary = summary_of(tmp_path, [RankSpec(steps=make_steps(100, forward=9), info=info)])

    (row,) = (line for line in text.render(summary).splitlines() if line.startswith("  h2d"))
    assert row.split(maxsplit=1)[1] == "not measured"


def test_no_action_is_invented_where_nothing_can_be_removed(tmp_path: Path) -> None:
    """A compute-bound run is told so."""
    summary = summary_of_case(CASES["compute_bound"](), tmp_path)

    assert "faster" not in text.render(summary)
    assert "99 % of the step is ordinary computing; no waste was seen in it." in headline(summary)


@pytest.mark.parametrize(("steady", "few"), [(19, True), (20, False)])
def test_too_few_steps_are_no_proof_that_nothing_is_wrong(
    tmp_path: Path, *, steady: int, few: bool
) -> None:
    """Rules abstain below twenty steady steps: that is not `no waste was seen`."""
    steps = make_steps(12 + steady, data_wait=0.5, forward=9)
    first = headline(summary_of(tmp_path, [RankSpec(steps=steps)]))

    assert ("Too few steady steps to say what to change: 19 of at least 20." in first) is few
    assert ("no waste was seen in it." in first) is not few


@pytest.mark.parametrize(("overhead_us", "ours"), [(300, False), (3_000, True)])
def test_callbacks_of_the_users_own_are_not_called_trainperf(
    tmp_path: Path, *, overhead_us: int, ours: bool
) -> None:
    """A plain loop: `end_step()` is in `callbacks`, and so is what the user brackets as such."""
    steps = make_steps(100, forward=9, callbacks=5, facts={"overhead_ns": overhead_us * 1000})
    spec = RankSpec(steps=steps, info=make_info(config={"loop": "plain"}))

    assert ("trainperf itself" in text.render(summary_of(tmp_path, [spec]))) is ours


def test_of_few_steps_it_is_not_said_that_nothing_stands_out(tmp_path: Path) -> None:
    """60 % of 14 steps is data wait: nothing was looked for in so few, here as on the page."""
    info = make_info(config={"num_workers": 0})
    steps = make_steps(14, warmup=0, data_wait=60, forward=40)
    summary = summary_of(tmp_path, [RankSpec(steps=steps, info=info)])
    too_few = "Too few steady steps to say what to change: 14 of at least 20."

    assert summary.run.steady_steps == 14
    assert too_few in headline(summary)
    assert as_markdown(run_document(summary)).count(too_few) == 2


def test_the_wait_for_data_is_no_answer_where_the_device_hides_it(tmp_path: Path) -> None:
    """Named for what it is, and nothing is promised for it."""
    summary = summary_of_case(CASES["hidden_wait"](), tmp_path)

    assert "data wait, hidden behind a busy device. 35 % of the step is" in headline(summary)
    assert headline(summary).endswith("ordinary computing; no waste was seen in it.")
    assert "First:" not in headline(summary)


def test_host_time_of_an_asynchronous_device_is_not_called_computing(tmp_path: Path) -> None:
    """The host only enqueues there."""
    spec = RankSpec(steps=make_steps(100, forward=20, backward=30), info=make_info(device="cuda"))

    assert "forward, backward and optimizer (host time)" in headline(summary_of(tmp_path, [spec]))


def test_a_running_fit_says_how_far_it_is(tmp_path: Path) -> None:
    """So far, not at the end."""
    report = text.render(summary_of_case(CASES["running"](), tmp_path))

    assert "still running, 130 steps so far" in report


def test_a_run_that_was_not_closed_is_not_called_an_error(tmp_path: Path) -> None:
    """The script came to its end, and nobody called `close()`."""
    spec = RankSpec(steps=make_steps(50, forward=9), info=make_info(), end="not closed")
    report = text.render(summary_of(tmp_path, [spec]))

    assert "ended before its training was over after 50 steps" in report
    assert "ended by" not in report
    assert "close()" not in report


def test_a_loop_of_ones_own_is_told_how_it_is_ended(tmp_path: Path) -> None:
    """Its monitor has a `close()`, and a `with`."""
    spec = RankSpec(
        steps=make_steps(50, forward=9), info=make_info(config={"loop": "plain"}), end="not closed"
    )

    assert "ended without close() after 50 steps" in text.render(summary_of(tmp_path, [spec]))


def test_names_cannot_steer_a_terminal(tmp_path: Path) -> None:
    """No escape, no bell, no reversed text, no line of their own."""
    summary = summary_of_case(CASES["hostile"](), tmp_path)
    parts = run_document(summary)

    for report in (text.render(summary), as_text(parts), as_markdown(parts)):
        assert not set(report) & set("\x1b\x07\u202e\r")
        assert "\nB" not in report


def test_markup_in_a_name_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    """Rich's square brackets are letters here."""
    assert "[bold]x[/bold]" in text.render(summary_of_case(CASES["hostile"](), tmp_path))


def test_the_last_lines_go_first_when_there_are_too_many(tmp_path: Path) -> None:
    """Warnings and further findings, never the answer or the phases."""
    summary = summary_of_case(Case(ranks=CASES["loader_bound"]().ranks), tmp_path)
    many = text.lines(summary, 100)

    labels = [line.plain[2:11].strip() for line in many]
    assert labels.index("h2d") == labels.index("data wait") + 1


def test_sequence_lengths_are_summed_up_in_two_numbers(tmp_path: Path) -> None:
    """Of five sequences three are at most 128 tokens long, and one is 512."""
    totals = Totals(at_step=1, sequence_lengths={512: 1, 64: 1, 128: 2, 256: 1})
    spec = RankSpec(steps=make_steps(50, forward=50), totals=totals)

    assert "sequences longest ≤ 512, median ≤ 128 tokens" in text.render(
        summary_of(tmp_path, [spec])
    )


@pytest.mark.parametrize(("kind", "waits"), [("lightning", True), ("plain", False)])
def test_only_a_loop_that_waits_for_ranks_is_said_to(
    tmp_path: Path, kind: str, *, waits: bool
) -> None:
    """A plain loop does not."""
    specs = [
        RankSpec(
            steps=make_steps(50, forward=40, loop=10),
            info=make_info(rank=rank, world_size=2, config={"loop": kind}),
        )
        for rank in (0, 1)
    ]

    assert ("includes waiting for ranks" in text.render(summary_of(tmp_path, specs))) == waits


def test_ranks_of_which_nothing_was_measured_have_no_line(tmp_path: Path) -> None:
    """Five steps of two ranks, and no steady one."""
    steps = [make_step(index, tags=int(Tag.WARMUP), forward=9) for index in range(5)]
    specs = [RankSpec(steps=steps, info=make_info(rank=rank, world_size=2)) for rank in (0, 1)]

    report = text.render(summary_of(tmp_path, specs))
    assert "2 ranks" in report
    assert not [line for line in report.splitlines() if line.strip().startswith("ranks")]


@pytest.mark.parametrize("rank", [0, 1])
def test_what_became_of_a_capture_is_said(tmp_path: Path, rank: int) -> None:
    """On whichever rank it was; a name in it cannot steer the terminal."""
    notes = {
        "captures": "rank0-step000007.trace.json.gz",
        "captures_declined": "the capture at step 9 is declined\x1b[31m",
        "tokens": "attention_mask",
    }
    specs = [
        RankSpec(
            steps=make_steps(50, forward=50),
            info=make_info(rank=r, world_size=2),
            totals=Totals(at_step=1, notes=notes if r == rank else {}),
        )
        for r in (0, 1)
    ]

    summary = summary_of(tmp_path, specs)

    for report in (text.render(summary), as_markdown(run_document(summary))):
        assert "declined" in report
        assert "traces: rank0" in report
        assert "attention" not in report
        assert "\x1b" not in report


def test_notes_give_way_to_everything_else(tmp_path: Path) -> None:
    """Forty of them, and one warning."""
    notes = {f"captures_{n}": f"said {n}" for n in range(40)}
    totals = Totals(at_step=1, notes=notes, faults={"tokens": "KeyError: 'x'"})
    spec = RankSpec(steps=make_steps(50, data_wait=30, forward=50), totals=totals)

    lines = [line.plain for line in text.lines(summary_of(tmp_path, [spec]), 100)]

    assert len(lines) == text.MOST_LINES
    assert any("tokens was switched off" in line for line in lines)
    assert any(line.startswith("  next") for line in lines)
    assert "  note  said 0" in lines
    assert "  note  said 39" not in lines


def test_the_mask_that_counted_the_tokens_is_printed(tmp_path: Path) -> None:
    """Effective means something only with it."""
    facts = {"tokens_effective": 50, "tokens_padded": 80}
    totals = Totals(at_step=1, notes={"tokens": "attention_mask"})
    spec = RankSpec(steps=make_steps(50, forward=50, facts=facts), totals=totals)

    assert "1,000 effective tokens/s (attention_mask)" in text.render(summary_of(tmp_path, [spec]))


def test_a_long_note_is_broken_and_one_that_is_cut_says_so(tmp_path: Path) -> None:
    """Every word of what is shown can be read, and what is not shown is seen to be missing."""
    long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    spec = RankSpec(
        steps=make_steps(50, forward=50),
        totals=Totals(at_step=1, notes={"captures": long}),
    )
    many = RankSpec(
        steps=make_steps(50, forward=50),
        totals=Totals(at_step=1, notes={str(n): f"{n} {long}" for n in range(9)}),
    )

    whole = [line.plain for line in text.lines(summary_of(tmp_path / "a", [spec]), 60)]
    cut = [line.plain for line in text.lines(summary_of(tmp_path / "b", [many]), 60)]

    start = next(n for n, line in enumerate(whole) if line.startswith("  note"))
    note = whole[start:]
    assert " ".join(line[8:].strip() for line in note).endswith(long)
    assert len(note) > 1
    assert all(line.startswith("        ") for line in note[1:])
    assert len(cut) == text.MOST_LINES
    assert cut[-1].endswith("…") == (not cut[-1].endswith("fourteen"))


@pytest.mark.parametrize(("h2d", "forward"), [(1, 99), (10, 40)])
def test_copies_say_what_they_reach_of_the_link_however_small_they_are(
    h2d: int, forward: int, tmp_path: Path
) -> None:
    """A hundredth of the step or a fifth of it: a tenth of the link's 64 GB/s either way."""
    facts = {"h2d_device_ns": h2d * 1_000_000, "h2d_bytes": h2d * 6_400_000, "h2d_tensors": 2}
    info = make_info(device="cuda", hardware={"device_name": "NVIDIA H100 80GB HBM3"})
    steps = make_steps(60, h2d=h2d, forward=forward, facts=facts)

    report = text.render(summary_of(tmp_path, [RankSpec(steps=steps, info=info)]))

    assert "at 6.40 GB/s, 10 % of the link's 64.0 GB/s" in report
