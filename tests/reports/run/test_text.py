"""The report for a terminal: short, the answer first, and never obeying a name."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from support.cases import CASES
from support.golden import summary_of_case
from support.runs import RankSpec, make_info, make_step, make_steps, summary_of

from trainperf.core.findings import ChangeGain, Finding
from trainperf.core.phases import Tag
from trainperf.core.steps.records import StepRecord, Totals
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import as_text
from trainperf.reports.run import text
from trainperf.reports.run.document import run_document
from trainperf.reports.run.headline import headline
from trainperf.reports.run.rows import script_sum


@dataclass(frozen=True, kw_only=True)
class Told:
    """A run, and sentences that its report has and has not."""

    steps: Sequence[StepRecord] = field(default_factory=lambda: make_steps(100, forward=50))
    info: dict[str, Any] = field(default_factory=dict)
    """Of `make_info`."""
    ranks: int = 1
    totals: Totals | None = None
    end: str | None = "finished"
    has: Sequence[str] = ()
    lacks: Sequence[str] = ()

    def report(self, path: Path) -> str:
        """As plain text, on one line."""
        world = {"world_size": self.ranks} if self.ranks > 1 else {}
        specs = [
            RankSpec(
                steps=self.steps,
                info=make_info(rank=rank, **world, **self.info),
                totals=self.totals,
                end=self.end,
            )
            for rank in range(self.ranks)
        ]
        return " ".join(text.render(summary_of(path, specs)).split())


def _larger(phase: str) -> Sequence[StepRecord]:
    return make_steps(100, **{"forward": 5.0, phase: 60.0})


_VARYING = [
    *make_steps(112, data_wait=10, forward=30),
    *(make_step(112 + n, start_ns=10**12 + n, data_wait=10, forward=230) for n in range(25)),
]
_COMPUTE = "of it is compute (forward, backward, optimizer)."
_CUDA: dict[str, Any] = {"device": "cuda"}
_LINK = {"device": "cuda", "hardware": {"device_name": "NVIDIA H100 80GB HBM3"}}
_PLAIN: dict[str, Any] = {"config": {"loop": "plain"}}


def _copied(h2d: int, forward: int) -> Sequence[StepRecord]:
    facts = {"h2d_device_ns": h2d * 1_000_000, "h2d_bytes": h2d * 6_400_000, "h2d_tensors": 2}
    return make_steps(60, h2d=h2d, forward=forward, facts=facts)


TOLD = {
    "the first line is the answer: the largest share, what to do and the most it can gain": Told(
        steps=make_steps(200, data_wait=20, forward=15, backward=15),
        has=(
            "trainperf · gpt2 · 1 rank · CPU · 188 steady steps (excluded: 12 warm-up)",
            "Step time 50.0 ms",
            "40 % of it is data wait. First: fix the loader — about 1.39×, at most 1.79×.",
        ),
    ),
    "a run without a step has no sum, neither a time of nothing nor its parts": Told(
        steps=[], end=None, has=("No step was recorded.",), lacks=("fit",)
    ),
    # A worker takes 30 ms of a CPU that the model needs, too.
    "all of the wait is named, though the advice leaves a part": Told(
        steps=make_steps(100, data_wait=30, forward=20),
        info={"config": {"num_workers": 0}, "hardware": {"cpu_count": 2, "threads": 2}},
        has=("60 % of it is data wait",),
    ),
    "where the phases' means do not add up to the median, the mean is told": Told(
        steps=_VARYING, has=("Step time 40.0 ms, mean 80.0 ms; 12 % of it is data wait and",)
    ),
    **{
        f"the largest share is named: {phase}": Told(steps=_larger(phase), has=(f" is {name}.",))
        for phase, name in {
            "data_wait": "data wait",
            "h2d": "copying the batch to the device",
            "callbacks": "callbacks",
            "loop": "the framework's loop between steps",
            "other": "outside every phase",
        }.items()
    },
    **{
        f"the largest share is named: {phase}": Told(steps=_larger(phase), has=(_COMPUTE,))
        for phase in ("forward", "backward", "optimizer")
    },
    "the share to act on is named before a larger one that is just work": Told(
        steps=make_steps(100, data_wait=10, forward=40),
        has=("20 % of it is data wait and 80 % compute. First: fix the loader — about 1.16×, at ",),
    ),
    "a phase that nobody could see is not shown as nothing": Told(
        steps=make_steps(100, forward=9),
        info={**_CUDA, "reasons": {"phase_h2d_s": "training_step fetches by itself"}},
        has=("h2d not measured",),
    ),
    "below twenty steady steps nothing is said of waste": Told(
        steps=make_steps(12 + 19, data_wait=0.5, forward=9),
        has=("Too few steady steps to say what to change: 19 of at least 20.",),
        lacks=("no waste was seen in it.",),
    ),
    "from twenty on it is": Told(
        steps=make_steps(12 + 20, data_wait=0.5, forward=9),
        has=("no waste was seen in it.",),
        lacks=("Too few", "faster"),
    ),
    # `end_step()` of a plain loop is in `callbacks`, and so is what the user brackets as such.
    "callbacks of the user's own are not called trainperf": Told(
        steps=make_steps(100, forward=9, callbacks=5, facts={"overhead_ns": 300_000}),
        info=_PLAIN,
        lacks=("trainperf itself",),
    ),
    "callbacks that are mostly ours are": Told(
        steps=make_steps(100, forward=9, callbacks=5, facts={"overhead_ns": 3_000_000}),
        info=_PLAIN,
        has=("trainperf itself",),
    ),
    "host time of an asynchronous device is not called computing": Told(
        steps=make_steps(100, forward=20, backward=30),
        info=_CUDA,
        has=("forward, backward and optimizer (host time)",),
    ),
    "a run that was not closed is not called an error": Told(
        steps=make_steps(50, forward=9),
        end="not closed",
        has=("ended before its training was over after 50 steps",),
        lacks=("ended by", "close()"),
    ),
    "a loop of one's own is told how it is ended": Told(
        steps=make_steps(50, forward=9),
        info=_PLAIN,
        end="not closed",
        has=("ended without close() after 50 steps",),
    ),
    "sequence lengths are summed up in two numbers": Told(
        totals=Totals(at_step=1, sequence_lengths={512: 1, 64: 1, 128: 2, 256: 1}),
        has=("sequences longest ≤ 512, median ≤ 128 tokens",),
    ),
    "a loop that waits for ranks is said to": Told(
        steps=make_steps(50, forward=40, loop=10),
        info={"config": {"loop": "lightning"}},
        ranks=2,
        has=("includes waiting for ranks",),
    ),
    "a plain loop does not": Told(
        steps=make_steps(50, forward=40, loop=10),
        info=_PLAIN,
        ranks=2,
        lacks=("includes waiting for ranks",),
    ),
    "ranks of which nothing was measured have no line": Told(
        steps=[make_step(index, tags=int(Tag.WARMUP), forward=9) for index in range(5)],
        ranks=2,
        has=("2 ranks",),
        lacks=(" ranks data wait", " ranks skew"),
    ),
    "the mask that counted the tokens is printed": Told(
        steps=make_steps(50, forward=50, facts={"tokens_effective": 50, "tokens_padded": 80}),
        totals=Totals(at_step=1, notes={"tokens": "attention_mask"}),
        has=("1,000 effective tokens/s (attention_mask)",),
    ),
    **{
        f"copies of {h2d} ms say what they reach of the link": Told(
            steps=_copied(h2d, forward),
            info=_LINK,
            has=("at 6.40 GB/s, 10 % of the link's 64.0 GB/s",),
        )
        for h2d, forward in ((1, 99), (10, 40))
    },
}


@pytest.mark.parametrize("case", TOLD)
def test_a_run_is_told_in_these_words(case: str, tmp_path: Path) -> None:
    """And not in others."""
    report = TOLD[case].report(tmp_path)

    assert [sentence for sentence in TOLD[case].has if sentence not in report] == []
    assert [sentence for sentence in TOLD[case].lacks if sentence in report] == []


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


def test_a_script_that_works_before_its_fit_has_a_sum_of_its_own(tmp_path: Path) -> None:
    """One that only loads modules has none."""
    summary = summary_of(tmp_path, [RankSpec(steps=make_steps(100, forward=50))])

    def sum_of(**before_s: float) -> list[str]:
        run = msgspec.structs.replace(summary.run, before_s=before_s, fit_s=5.0)
        return script_sum(msgspec.structs.replace(summary, run=run))

    assert sum_of(before_fit=10.0, imports=2.0) == [
        "script 17.0 s = before the fit 10.0",
        "loading modules 2.0",
        "fit 5.0",
    ]
    assert sum_of(before_fit=0.1, imports=2.0) == []


def test_what_is_no_waste_or_saves_little_is_not_what_to_do_first(tmp_path: Path) -> None:
    """Whether a model learns as well in fewer digits is to be decided; a tenth is worth it."""
    change = ChangeGain(
        id="bf16", advice="Multiply in bf16", action="autocast", effort="hours", about=1.4
    )
    summary = summary_of(tmp_path, [RankSpec(steps=make_steps(100, forward=50))])

    def said_of(change: ChangeGain) -> str:
        first = Finding(
            id="matmul_precision",
            title="fp32 products",
            advice=change.advice,
            evidence=(),
            action=change.action,
            gain=change.about,
            changes=(change,),
        )
        return headline(msgspec.structs.replace(summary, findings=(first,)))

    assert "First: multiply in bf16 — about 1.40×." in said_of(change)
    small = said_of(msgspec.structs.replace(change, about=1.08))
    assert "no waste was seen in it." in small
    assert small.endswith("A small gain: multiply in bf16 — about 1.08×.")
    option = said_of(msgspec.structs.replace(change, option=True))
    assert "no waste was seen in it." in option
    assert option.endswith("An option: multiply in bf16 — about 1.40×.")


def test_names_cannot_steer_a_terminal(tmp_path: Path) -> None:
    """No escape, no bell, no reversed text, no line of their own."""
    summary = summary_of_case(CASES["hostile"](), tmp_path)
    parts = run_document(summary)

    for report in (text.render(summary), as_text(parts), as_markdown(parts)):
        assert not set(report) & set("\x1b\x07\u202e\r")
        assert "\nB" not in report
    # Rich's square brackets are letters here.
    assert "[bold]x[/bold]" in text.render(summary)


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
