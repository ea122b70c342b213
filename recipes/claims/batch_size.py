"""Dependence on the batch size: time per sample falls up to a knee."""

from torch import Tensor, nn

from recipes.cases.case import Case, Plot, PlotLine
from recipes.cases.measuring import paired
from recipes.cases.verdicts import verdict
from recipes.claims.bench import Batch, ClaimBench, Training, same, sgd
from recipes.claims.published import BATCH_SIZE
from trainperf.benchmark import sweep


SIZES = (1, 4, 16, 64, 256)
ROWS = 64


def batch_size(bench: ClaimBench) -> Case:
    """A sweep of trainperf's, then the same rows one by one against all at once."""
    single, together = _training(bench), _training(bench)
    swept = sweep(
        _training(bench).step,
        lambda rows, _: (bench.random(rows, 128),),
        bench.pick(SIZES[:2], SIZES),
        repeat=10,
    )

    def row_by_row(batch: Batch) -> Tensor:
        return single.accumulated(batch, ROWS)

    rows = paired(
        {f"{ROWS} batches of 1": row_by_row, f"1 batch of {ROWS}": together.step},
        (bench.random(ROWS, 128),),
        seconds=bench.seconds,
    )
    points = tuple((float(p.batch_size), p.per_s) for p in swept.points if p.per_s is not None)
    return Case(
        name="batch_size",
        claim="The same samples, for the same update, take less time in one larger batch, up to "
        "the knee of the curve.",
        before_note="no finding is about this; `trainperf.benchmark.sweep` decides it:",
        before=tuple(str(swept).splitlines()),
        change=("- DataLoader(data, batch_size=1)", f"+ DataLoader(data, batch_size={ROWS})"),
        measured=rows,
        published=BATCH_SIZE,
        plot=Plot(
            title="samples per second by batch size",
            lines=(PlotLine(name="samples/s", points=points),),
            across="batch size",
            up="samples per second",
            up_unit="1/s",
            log_across=True,
            log_up=True,
        ),
        **verdict(rows[1], "faster"),
    )


def _training(bench: ClaimBench) -> Training:
    width = bench.pick(32, 256)
    model = same(
        lambda: nn.Sequential(
            nn.Linear(128, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )
    )
    return sgd(model.to(bench.device), lambda module, batch: module(batch[0]).square().mean())
