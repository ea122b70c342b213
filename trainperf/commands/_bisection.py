"""Bisection of commits: `git bisect` searches, pairs in turns as in `prove` judge.

The good commit and the one that git asks for are each in a worktree of its own, so the user's
checkout stays as it is.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from trainperf.commands._comparison import ComparisonOptions
from trainperf.commands._looks import proof_of
from trainperf.commands._paired_runs import ProofOptions
from trainperf.commands._trainings import TrainingCommand, sigterm_as_interrupt
from trainperf.commands.cli import CommandResult, say
from trainperf.comparison.clocks import gate
from trainperf.comparison.results import Comparison
from trainperf.core.errors import RunError
from trainperf.core.paths import local_path
from trainperf.reports.comparison import answer
from trainperf.reports.layout.document import Sentence, items
from trainperf.reports.layout.finding_view import NEXT
from trainperf.reports.layout.forms import rendered


_NAMED = re.compile(r"^# (?:possible )?first slow commit: \[(\w{10})", re.MULTILINE)
"""The end of a search in the log of `git bisect`: the commit, or those that may be it."""

_PACES = {"pass": "fast", "regression": "slow", "undecided": "skip"}
"""The verdict of the gate, as `git bisect` is told it."""


def bisected(given: argparse.Namespace) -> CommandResult:
    """The answer to the command line.

    Raises:
        RunError: Git refuses, or one of the two ends does not train.
    """
    root = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel"))
    try:
        with TemporaryDirectory(prefix="trainperf-bisect-") as folder, sigterm_as_interrupt():
            trees = [Path(folder).resolve() / side for side in ("good", "bad")]
            for tree, revision in zip(trees, (given.good, given.bad), strict=True):
                _git(root, "worktree", "add", "--detach", "--quiet", tree, revision)
            text, step, code = _searched(trees[0], trees[1], partial(_pace, given, root, trees))
    finally:
        _git(root, "worktree", "prune")
    parts = [Sentence(text=text, kind="answer"), *items([f"{NEXT}: {step}"])]
    return CommandResult(text=rendered(parts, None, "text", sys.stdout), code=code)


def _searched(good: Path, bad: Path, pace_of: Callable[[str], str]) -> tuple[str, str, int]:
    """The first slow commit, as far as it can be told; what to do next, and the exit code."""
    ends = [_git(tree, "rev-parse", "HEAD") for tree in (bad, good)]
    terms = ("--term-old=fast", "--term-new=slow")
    _git(bad, "bisect", "start", "--no-checkout", *terms, *ends)
    pace, names = pace_of(ends[0]), [_name(bad, end) for end in ends]
    if pace == "fast":
        return f"{names[0]} is not slower than {names[1]}.", "a smaller limit (--slower)", 1
    if pace == "skip":
        doubt = f"It cannot be told whether {names[0]} is slower than {names[1]}."
        return doubt, "more pairs (--pairs), longer trainings (--to-the-end), or a quiet machine", 3
    while not (first := _NAMED.findall(_git(bad, "bisect", "log"))):
        try:
            pace = pace_of(_git(bad, "rev-parse", "BISECT_HEAD"))
        except RunError as error:
            pace = "skip"
            say(f"{_name(bad, 'BISECT_HEAD')}: skip, {error}")
        # 2 is git's for nothing but skipped commits left, which the log tells.
        say(_git(bad, "bisect", pace, accepted=(0, 2)).partition("\n")[0])
    names, step = [_name(bad, commit) for commit in first], f"git show {' '.join(first)}"
    if names[1:]:
        return f"The first slow commit is one of {len(names)}: {', '.join(names)}.", step, 3
    return f"{names[0]} is the first slow commit.", step, 0


def _pace(given: argparse.Namespace, root: Path, trees: Sequence[Path], commit: str) -> str:
    """A commit in turns with the good one, by the gate of `prove` on both clocks."""
    good, bad = trees
    commands = (_training(given, root, good, "HEAD"), _training(given, root, bad, commit))
    options = ProofOptions(
        pairs=given.pairs,
        steps=given.every,
        out=local_path(given.out).absolute() / commit[:10],
        to_the_end=given.to_the_end,
    )

    def outcome(comparison: Comparison) -> str:
        # A loss that differs from that of an old commit says nothing of the speed.
        return _PACES[gate(replace(comparison, verdict="undecided"), given.slower)]

    shown = ComparisonOptions(form="json", most_slower=given.slower)
    proof = proof_of(commands, options, shown, lambda each: outcome(each) != "skip")
    if proof.comparison is None or proof.ended_by == "interrupted":
        raise KeyboardInterrupt
    pace = outcome(proof.comparison)
    say(f"{_name(root, commit)}: {pace}, {answer(proof.comparison)}")
    return pace


def _training(given: argparse.Namespace, root: Path, tree: Path, revision: str) -> TrainingCommand:
    """The user's command in a worktree that is as that commit was, with what is linked."""

    def moved(text: str) -> str:
        """Paths into the user's checkout as those of the worktree."""
        return re.sub(rf"{re.escape(str(root))}(?=[/:]|$)", lambda _: str(tree), text)

    _git(tree, "clean", "-ffdxq")
    _git(tree, "reset", "--hard", "--quiet", revision)
    for name in given.link:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).symlink_to(root / name)
    cwd = tree / Path.cwd().relative_to(root)
    cwd.mkdir(parents=True, exist_ok=True)
    is_python = given.command[0].endswith(".py") or given.command[0] == "-m"
    # Modules of this commit come first, also where the package is installed editably.
    paths = [str(tree), str(tree / "src"), moved(os.environ.get("PYTHONPATH", str(root)))]
    return TrainingCommand(
        words=[*[sys.executable] * is_python, *map(moved, given.command)],
        cwd=cwd,
        environment={"PYTHONPATH": os.pathsep.join(paths)},
    )


def _name(folder: Path, commit: str) -> str:
    """E.g. `1f0c2d3e4a “Sort the batches”`."""
    return _git(folder, "show", "-s", "--abbrev=10", "--format=%h “%s”", commit)


def _git(folder: Path, *arguments: str | Path, accepted: Sequence[int] = (0,)) -> str:
    """What git prints; no hook of the user's runs.

    Raises:
        OSError: There is no git.
        RunError: It fails; with its last line.
    """
    ended = subprocess.run(  # noqa: S603 git itself, with a fixed command
        ["git", "-C", folder, "-c", "core.hooksPath=/dev/null", *arguments],  # noqa: S607
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        stdin=subprocess.DEVNULL,
        # An alias or a hook of git's tells its children which repository they are in.
        env={name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        check=False,
    )
    if ended.returncode not in accepted:
        lines = (ended.stderr.strip() or ended.stdout).splitlines() or ["failed"]
        raise RunError(f"git {arguments[0]}: {lines[-1]}")
    return ended.stdout.strip("\n")
