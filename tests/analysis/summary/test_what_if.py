"""What a step would be without its delays, and where the time of all devices went."""

from pathlib import Path

import msgspec
import pytest
from support.runs import MS, RankSpec, make_gap, make_info, make_steps, summary_of

from trainperf.analysis.summary.ranks import saved_s
from trainperf.analysis.summary.schema import Summary
from trainperf.core.phases import Gap
from trainperf.core.steps.records import Totals
from trainperf.reports.layout.text import as_text
from trainperf.reports.run.document import run_document
from trainperf.reports.run.ranks import ranks_lost
from trainperf.reports.run.tables import split_line
from trainperf.reports.run.text import lines, render


def job(path: Path) -> Summary:
    """Four ranks, steps of 100 ms: rank 3 waits 25 ms longer for data than the others' 5."""
    planted = [
        make_steps(
            100,
            data_wait=5 + late,
            forward=25,
            backward=70 - late,
            facts={"tail_ns": (30 - late) * MS},
        )
        for late in (0, 0, 0, 25)
    ]
    gaps = [make_gap(Gap.CHECKPOINT, 2000)]
    infos = [make_info(rank=rank, world_size=4, config={"loop": "plain"}) for rank in range(4)]
    return summary_of(path, [RankSpec(steps=planted[i.rank], info=i, gaps=gaps) for i in infos])


def test_one_rank_loses_nothing_to_others(tmp_path: Path) -> None:
    """Its own ledger says where the fit went."""
    summary = summary_of(tmp_path, [RankSpec(steps=make_steps(100, forward=25))])

    assert saved_s(summary, "even_s") == 0
    assert ranks_lost(summary) == []


def sharded(path: Path, *, collectives: str) -> Summary:
    """Two ranks with FSDP2, steps of 100 ms: rank 1 is late by 20 ms, outside every phase."""
    waited = {"backward": 60} if "backward" in collectives else {"forward": 20}
    usual = {"forward": 20, "backward": 60}
    met = {name: ms + 20 for name, ms in waited.items()}
    specs = [
        RankSpec(
            steps=make_steps(100, **{**usual, **more}),
            info=make_info(
                rank=rank,
                world_size=2,
                config={"loop": "plain"},
                reasons={"tail_ns": "not covered: FSDP2 (fully_shard); only DDP has such a point"},
            ),
            totals=Totals(at_step=100, config={"collectives": collectives}),
        )
        for rank, more in enumerate((met, {"other": 20}))
    ]
    return summary_of(path, specs)


def test_without_the_late_rank_a_step_is_what_the_others_need(tmp_path: Path) -> None:
    """100 ms, of which 25 are lost to rank 3; the reduction itself takes 5.

    However much there is to say, the prediction is said whole.
    """
    summary = job(tmp_path)
    saves = [saved_s(summary, name) for name in ("named_s", "even_s")]
    crowded = msgspec.structs.replace(summary, warnings=("something to know",) * 12)
    whole = as_text(run_document(crowded)).splitlines()
    (step,) = ranks_lost(summary)
    (cut,) = (line.plain for line in lines(crowded) if "lost  up to 25.0 ms" in line.plain)

    assert summary.value("step_mean_s") == pytest.approx(0.100)
    assert saves == pytest.approx([0.025, 0.025])
    assert step.startswith(
        "up to 25.0 ms per step: 75.0 ms instead of 100 ms if rank 3 is as fast as the others"
    )
    assert step in " ".join(" ".join(whole).split())
    assert cut.endswith("if rank 3 is as fast as the others")
    assert sum("something to know" in line for line in whole) == 12
    finding = next(each for each in summary.findings if each.id == "straggler")
    assert finding.title == "25 % of the step is lost to stragglers; rank 3, data wait"


@pytest.mark.parametrize("collectives", ["forward 3", "forward 3, backward 6"])
def test_without_a_tail_the_late_rank_is_known_all_the_same(
    tmp_path: Path, collectives: str
) -> None:
    """What shards wait is no computing: on average over the two ranks 10 of 100 ms.

    Of the 60 ms of backward nothing tells what computes: none of it is a transfer.  `other` says
    nothing to anybody: it is *outside every phase*.
    """
    summary = sharded(tmp_path, collectives=collectives)
    finding = next(each for each in summary.findings if each.id == "straggler")
    report = render(summary)

    assert saved_s(summary, "named_s") == pytest.approx(0.020)
    assert summary.dimensions.shares["synchronisation"] == pytest.approx(0.10)
    assert summary.dimensions.shares["undivided"] == pytest.approx(0.80)
    assert split_line(summary).startswith(
        "time spent on compute, memory, launches and communication 80 %"
    )
    assert finding.title.endswith("; rank 1, outside every phase")
    assert finding.action == "find what rank 1 does outside every phase that the others do not"
    assert "20.0 ms outside every phase" in report
    assert "all-reduce tail not covered: FSDP2 (fully_shard)" in report
