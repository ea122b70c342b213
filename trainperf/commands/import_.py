"""`trainperf import FILE…`: a run directory from logs that a framework keeps anyway."""

import argparse
import sys
from pathlib import Path

from trainperf.commands.cli import Command, argument


_FOLDER = "imported"


def _run(given: argparse.Namespace) -> str:
    from trainperf.analysis.run.directory import Run
    from trainperf.importers import FORMATS, recognise
    from trainperf.importers.writing import write_run
    from trainperf.reports.run.page import save_reports
    from trainperf.reports.run.text import rendered

    kind = FORMATS[given.format] if given.format else recognise(given.files)
    base = given.out or Path(_FOLDER) / Path(given.files[0].name.removesuffix(".gz")).stem
    run = Run.open(write_run(kind, given.files, base))
    how = f"  recognised as {kind.title}\n  {run.path}\n"
    return f"{rendered(save_reports(run), sys.stdout)}\n{how}"


COMMAND = Command(
    name="import",
    about="Make a run of a log you have: torchtitan, DeepSpeed, Megatron-LM, Hugging Face, verl.",
    examples=("train.log", "rank0.jsonl rank1.jsonl --out imported/titan"),
    arguments=(
        argument(
            "files",
            metavar="FILE",
            nargs="+",
            type=Path,
            help="log of one run: one file per rank (torchtitan), or per restart (the others)",
        ),
        argument(
            "--format",
            choices=("torchtitan", "deepspeed", "megatron", "huggingface", "verl"),
            help="what wrote the log (default: recognised by its lines)",
        ),
        argument(
            "--out",
            metavar="DIR",
            type=Path,
            help=f"folder for the run directory (default: {_FOLDER}/NAME, of the first file)",
        ),
    ),
    run=_run,
)
