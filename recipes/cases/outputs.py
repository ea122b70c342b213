"""What a run of a recipe prints and leaves: its text, its JSON, its page."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from recipes.cases.case import RecipeRun, save
from recipes.cases.page import page_of
from recipes.cases.text import run_text


SIZES = ("small", "full")


def parser(recipe: str, about: str) -> argparse.ArgumentParser:
    """The options of every recipe: `--out` and `--size`."""
    options = argparse.ArgumentParser(prog=f"python -m recipes.{recipe}", description=about)
    options.add_argument(
        "--out", type=Path, default=Path("runs") / recipe, help=f"folder; default: runs/{recipe}"
    )
    options.add_argument("--size", choices=SIZES, default="full", help="small: for tests")
    options.add_argument("--json", type=Path, help="write the run here, too")
    options.add_argument(
        "--note", default="", help="what readers have to know of this run, e.g. what ran beside it"
    )
    return options


def quiet_environment() -> None:
    """Before torch is imported: no look at the network, no marks of the profiler's own."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def leave(run: RecipeRun, out: Path, also: Sequence[Path | None] = (), note: str = "") -> RecipeRun:
    """Print a run and write `NAME.json`, `NAME.txt` and `NAME.html` into *out*.

    Args:
        run: All of it, except for what is printed.
        out: Folder of the recipe's files.
        also: Further paths for the JSON.
        note: What readers have to know of this run.
    """
    run = msgspec.structs.replace(run, note=note)
    printed = run_text(run)
    run = msgspec.structs.replace(run, printed=tuple(printed))
    print("\n".join(printed))
    for path in (out / f"{run.recipe}.json", *also):
        if path is not None:
            save(run, path)
    (out / f"{run.recipe}.txt").write_text("\n".join(printed) + "\n", encoding="utf-8")
    (out / f"{run.recipe}.html").write_text(page_of(run), encoding="utf-8")
    print(f"\npage: {out / run.recipe}.html")
    return run
