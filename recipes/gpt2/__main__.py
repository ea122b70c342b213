"""`python -m recipes.gpt2 --preset tiny --stages all --out runs/gpt2`."""

import argparse
import os
import sys
from pathlib import Path

from recipes.gpt2.stages import PRESETS, STAGES, chosen


def main(arguments: list[str] | None = None) -> None:
    """Run the walkthrough that the command line describes."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        stages = chosen(options.stages)
    except ValueError as error:
        parser.error(str(error))
    # Before transformers is imported, which reads it then: nothing is needed from the hub.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # The profiler of torch 2.13 prints marks of its own otherwise; read when torch is imported.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from recipes.gpt2.train import Recipe, free_folder, last_folder  # noqa: PLC0415 - seconds
    from recipes.gpt2.walk import walkthrough  # noqa: PLC0415 - the same: --help needs none

    preset = PRESETS[options.preset]
    out = options.out or Path("runs") / f"gpt2-{preset.name}"
    work = Recipe(
        preset=preset,
        steps=options.steps or preset.steps,
        seed=options.seed,
        text=options.text,
        out=last_folder(out) if options.resume else free_folder(out),
        accelerator=options.accelerator,
        minutes=options.minutes or preset.minutes,
        trial_minutes=options.trials,
    )
    try:
        walkthrough(work, stages)
    except ValueError as error:
        parser.error(str(error))
    print(f"\nresults: {work.out}/walkthrough.html")
    print(f"all runs: {_command('tensorboard')} --logdir {work.out}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.gpt2",
        description="GPT-2 on real text, made faster one change at a time.",
        epilog="stages: " + "; ".join(f"{stage.name} ({stage.change})" for stage in STAGES),
    )
    parser.add_argument("--preset", choices=PRESETS, default="tiny", help="size of the work")
    parser.add_argument("--stages", default="all", help="comma-separated names; default: all")
    parser.add_argument("--resume", action="store_true", help="continue the last walkthrough")
    parser.add_argument("--text", type=Path, help="file or folder; default: Python's own sources")
    parser.add_argument("--steps", type=_positive, help="updates per run; default: the preset's")
    parser.add_argument(
        "--minutes", type=float, help="time limit of all runs; default: the preset's"
    )
    parser.add_argument(
        "--trials",
        type=float,
        default=0.0,
        metavar="MINUTES",
        help="of trials as in `trainperf try` once no finding is left; default: none",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder of the runs; default: runs/gpt2-PRESET")
    parser.add_argument("--accelerator", default="auto", help="cpu, gpu, …; default: auto")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be at least 1")
    return number


def _command(name: str) -> str:
    """A command that works in this shell, whether or not the environment is activated."""
    installed = Path(sys.executable).with_name(name)
    return os.path.relpath(installed) if installed.exists() else name


if __name__ == "__main__":
    main()
