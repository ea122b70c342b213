"""`trainperf import FILE…`: a run directory from logs that a framework keeps anyway."""

import argparse
import sys

from trainperf.commands.cli import Command


_FOLDER = "imported"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    from pathlib import Path

    from trainperf.importers import FORMATS

    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="log of one run: one file per rank (torchtitan), or per restart (the others)",
    )
    parser.add_argument(
        "--format",
        choices=[kind.name for kind in FORMATS],
        help="what wrote the log (default: recognised by its lines)",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help=f"folder for the run directory (default: {_FOLDER}/NAME, of the first file)",
    )


def _run(given: argparse.Namespace) -> str:
    from pathlib import Path

    from trainperf.analysis.run.directory import Run
    from trainperf.analysis.summarize import save_summary
    from trainperf.importers import recognise
    from trainperf.importers.writing import write_run
    from trainperf.reports.run.page import load_page_data, save
    from trainperf.reports.run.text import rendered

    kind = recognise(given.files, given.format)
    base = given.out or Path(_FOLDER) / Path(given.files[0].name.removesuffix(".gz")).stem
    run = Run.open(write_run(kind, given.files, base))
    data = load_page_data(run)
    save_summary(data.summary, run.path)
    save(data, run.path)
    how = f"  recognised as {kind.title}\n  {run.path}\n"
    return f"{rendered(data.summary, sys.stdout)}\n{how}"


COMMAND = Command(
    name="import",
    about="Make a run of a log you have: torchtitan, DeepSpeed, Megatron-LM, Hugging Face, verl.",
    examples=("train.log", "rank0.jsonl rank1.jsonl --out imported/titan"),
    add_arguments=_add_arguments,
    run=_run,
)
