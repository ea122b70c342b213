"""The whole recipe: every measurement in turn, and what is shown of it."""

import time
from pathlib import Path

from recipes.cases.case import RecipeRun
from recipes.cases.measuring import machine
from recipes.cases.processor import threads
from recipes.inference.batch_sizes import batch_curve
from recipes.inference.clocks import clock_case, first_calls, first_calls_table
from recipes.inference.loops import loops
from recipes.inference.model import SIZES, Size, batch_of, device, model_of
from recipes.inference.operators import operator_tables
from recipes.inference.versions import compared, versions_table
from recipes.inference.waits import waits_case


ABOUT = (
    "A small transformer sorts texts into classes, and is measured from a single call to a loop of "
    "requests: which clock is right, what the first call costs, which version answers fastest, "
    "where the time of a call goes, which lines wait for the device, how many requests a call "
    "should take, and what is wrong with a loop in which eval() and inference_mode were forgotten. "
    "A server makes such batches of the requests of many callers, e.g. LitServe's `max_batch_size`."
)


def run(size: str, out: Path) -> RecipeRun:
    """Measure all of it and leave the loops' run directories and traces below *out*."""
    with threads():
        return _measured(SIZES[size], out)


def _measured(shape: Size, out: Path) -> RecipeRun:
    begun_s = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    # Before anything else has run the model: nothing is cold afterwards.
    eager = first_calls(model_of(shape), batch_of(shape).to(device()))
    clock = clock_case(shape)
    versions = compared(shape, out)
    operators = operator_tables(shape)
    waits = waits_case(shape)
    curve = batch_curve(shape)
    looped = loops(shape, out)
    return RecipeRun(
        recipe="inference",
        title="Inference, from a call to a loop of requests",
        about=ABOUT,
        command="python -m recipes.inference",
        machine=machine(),
        took_s=time.perf_counter() - begun_s,
        cases=(clock, *versions.cases, waits, curve.case, *looped.cases),
        tables=(
            first_calls_table([("eager", eager), *versions.first_calls]),
            versions_table(versions.comparison),
            *operators,
            *looped.tables,
        ),
        plots=curve.plots,
    )
