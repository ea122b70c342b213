"""`python -m recipes.claims [NAME…] [--out DIR] [--size small|full]`."""

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from recipes.cases.case import Case, RecipeRun, save
from recipes.cases.outputs import leave, parser, quiet_environment
from recipes.claims import NAMES
from trainperf.core.families import load_members


COMMAND = "python -m recipes.claims"

ABOUT = (
    "Claims that are passed on about the speed of training, each run on this machine: what "
    "trainperf says before the change, what is changed, and both versions timed in turns. The "
    "ratio is that of the first version's time (or bytes) to the changed one's, with its 95 % "
    "interval; a claim is decided where all of the interval is on one side of 1, or within 5 % "
    "of it. A claim that does not hold here is shown as such."
)


def main(arguments: Sequence[str] | None = None) -> RecipeRun:
    """Run the claims that the command line names, or all."""
    options = parser("claims", "Claims of the field, each run and measured here.")
    options.add_argument(
        "names", nargs="*", metavar="NAME", help=f"default: all: {', '.join(NAMES)}"
    )
    given = options.parse_args(arguments)
    if unknown := [name for name in given.names if name not in NAMES]:
        options.error(f"{', '.join(unknown)}: no such claim; there are {', '.join(NAMES)}")
    quiet_environment()
    names = [name for name in NAMES if not given.names or name in given.names]
    small = given.size == "small"
    return leave(
        run(names, given.out, small=small, also=given.json), given.out, [given.json], given.note
    )


def run(names: Sequence[str], out: Path, *, small: bool, also: Path | None = None) -> RecipeRun:
    """Run claims one after the other; *also* is written again after each."""
    from recipes.cases.measuring import machine  # noqa: PLC0415 - loads torch
    from recipes.cases.processor import threads  # noqa: PLC0415 - the same
    from recipes.claims.bench import ClaimBench  # noqa: PLC0415 - the same

    begun_s = time.perf_counter()
    bench = ClaimBench(out=out, small=small, seconds=0.05 if small else 1.6)
    claims: list[Callable[[ClaimBench], Case]] = list(load_members("recipes.claims", names))
    cases: list[Case] = []

    def so_far() -> RecipeRun:
        return RecipeRun(
            recipe="claims",
            title="Claims of the field",
            about=ABOUT,
            command=COMMAND + (" --size small" if small else ""),
            machine=machine(),
            took_s=time.perf_counter() - begun_s,
            cases=tuple(cases),
        )

    for name, claim in zip(names, claims, strict=True):
        print(f"{name} …", file=sys.stderr, flush=True)
        with threads(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases.append(replace(claim(bench), title=NAMES[name], command=f"{COMMAND} {name}"))
        if also is not None:  # what is done survives a time limit
            save(so_far(), also)
    return so_far()


if __name__ == "__main__":
    main()
