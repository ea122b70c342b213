"""Bisection of commits: `git bisect` searches, pairs in turns as in `prove` judge, this connects.

The good commit and the one that git asks for are each in a worktree of its own, so the user's
checkout stays as it is.  What git does not track, such as data, is linked into both: what a
training writes there it writes into the user's.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from trainperf.commands._comparison import ComparisonOptions, compared
from trainperf.commands._looks import proof_of
from trainperf.commands._paired_runs import ProofOptions, TrainingError
from trainperf.commands._trainings import TrainingCommand, sigterm_as_interrupt
from trainperf.commands.cli import CommandResult, say
from trainperf.comparison.results import Clock, Comparison, Speedup
from trainperf.core.errors import RunError
from trainperf.core.formatting.units import share
from trainperf.core.paths import local_path
from trainperf.reports.comparison import speed
from trainperf.reports.layout.document import Sentence, items
from trainperf.reports.layout.finding_view import NEXT
from trainperf.reports.layout.forms import rendered


_OUTPUTS = re.compile(
    r"(lightning_logs|runs|wandb|mlruns|outputs|checkpoints|logs|tb_logs|__pycache__|build|dist"
    r"|site|node_modules|results|models|ckpts?|saved|experiments|\..*_cache"
    r"|.*\.(pyc|egg-info|ckpt|pt|pth|safetensors))"
)
"""Names of what a training or a tool may have written."""

_NAMED = re.compile(r"^# (?:possible )?first slow commit: \[(\w+)\]", re.MULTILINE)
"""The end of a search in the log of `git bisect`: the commit, or those that may be it."""

Pace = Literal["fast", "slow", "skip"]
"""Of a commit, as `git bisect` is told it."""

_PACES: dict[str, Pace] = {"slower": "slow", "undecided": "skip"}
"""What the verdict on the slow end means; every other is *fast*."""


def bisected(given: argparse.Namespace) -> CommandResult:
    """The answer to the command line.

    Raises:
        RunError: Git refuses, or one of the two ends does not train.
    """
    root = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel"))
    if _git(root, "diff", "--name-only", "HEAD"):
        say("changes that are in no commit are not measured")
    try:
        with TemporaryDirectory(prefix="trainperf-bisect-") as folder, sigterm_as_interrupt():
            trees = [Path(folder).resolve() / side for side in ("good", "bad")]
            for tree, revision in zip(trees, (given.good, given.bad), strict=True):
                _git(root, "worktree", "add", "--detach", "--quiet", tree, revision)
            return _Search(
                given=given, root=root, good=trees[0], bad=trees[1], limit=given.slower
            ).result()
    finally:
        _git(root, "worktree", "prune")


@dataclass(slots=True, kw_only=True)
class _Search:
    """One bisection, while both worktrees are there."""

    given: argparse.Namespace
    root: Path
    """Top of the user's checkout."""
    good: Path
    """Worktree of the good commit."""
    bad: Path
    """Worktree in which git bisects."""
    limit: float | None
    """How much slower than the good commit, relatively, counts as slow; `None`: any slower one."""
    clock: Clock | None = None
    """That the change from good to bad moved: every commit is judged by it."""
    speeds: dict[str, str] = field(default_factory=dict)
    """Of each commit that was judged, in words."""

    def result(self) -> CommandResult:
        """The first slow commit, as far as it can be told."""
        good, bad = (_git(tree, "rev-parse", "HEAD") for tree in (self.good, self.bad))
        terms = ("--no-checkout", "--term-old=fast", "--term-new=slow")
        _git(self.bad, "bisect", "start", *terms, bad, good)
        whole = self._proved(bad)
        decides, pace = whole.headline, self._pace(whole)
        if decides is None:
            raise RunError(f"the two ends are not comparable: {whole.reason}")
        self.clock = decides.clock
        if self.limit is None:
            # Half way, as a ratio: what costs little on the way is fast.
            self.limit = decides.speedup.value**-0.5 - 1
        ends = f"{self._name(bad)} is not slower than {self._name(good)}"
        if pace == "fast":
            return _answer(f"{ends}: {self.speeds[bad]}.", code=1)
        if pace == "skip":
            return _answer(
                f"It cannot be told whether {ends}: {self.speeds[bad]}.",
                "more pairs (--pairs), longer trainings (--to-the-end), or a quieter machine",
                code=3,
            )
        while not (first := _NAMED.findall(_git(self.bad, "bisect", "log"))):
            self._next()
        names, step = (
            list(map(self._name, first)),
            f"git show {' '.join(commit[:10] for commit in first)}",
        )
        if names[1:]:
            several = f"The first slow commit is one of {len(names)}: {', '.join(names)}."
            return _answer(several, step, code=3)
        cost = f"{self.speeds[first[0]]} as {self._name(good)}"
        judged = f"judged by the {self.clock}: more than {share(self.limit)} slower is slow"
        return _answer(f"{names[0]} is the first slow commit: {cost}.", step, judged, code=0)

    def _next(self) -> None:
        """Judge the commit that git asks for, and tell it; one that does not train is skipped."""
        commit = _git(self.bad, "rev-parse", "BISECT_HEAD")
        try:
            pace = self._pace(self._proved(commit))
        except TrainingError as error:
            if error.side == 0:
                raise
            pace, self.speeds[commit] = "skip", str(error)
        say(f"{self._name(commit)}: {pace}, {self.speeds[commit]}")
        # 2 is git's for nothing but skipped commits left, which the log tells.
        say(_git(self.bad, "bisect", pace, accepted=(0, 2)).partition("\n")[0])

    def _proved(self, commit: str) -> Comparison:
        """A commit in turns with the good one."""
        commands = (self._training(self.good, "HEAD"), self._training(self.bad, commit))
        given, out = self.given, local_path(self.given.out).absolute()
        options = ProofOptions(
            pairs=given.pairs,
            steps=given.every,
            out=out / commit[:10],
            to_the_end=given.to_the_end,
        )
        shown = ComparisonOptions(form="json")
        proof = proof_of(commands, options, shown, lambda each: self._pace(each) != "skip")
        if proof.ended_by == "interrupted":
            raise KeyboardInterrupt
        comparison = compared(*proof.runs, proof.options())
        gain = self._gain(comparison)
        self.speeds[commit] = comparison.reason if gain is None else speed(gain)
        return comparison

    def _training(self, tree: Path, revision: str) -> TrainingCommand:
        """The user's command in a worktree that is as that commit was, with what is linked."""
        _git(tree, "clean", "-ffdxq")
        _git(tree, "reset", "--hard", "--quiet", revision)
        untracked = _git(self.root, "ls-files", "--others", "--directory", "-z").split("\0")
        inputs = [name for name in untracked if name and not _OUTPUTS.fullmatch(Path(name).name)]
        for name in self.given.link or inputs:
            if not (tree / name).exists():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                (tree / name).symlink_to(self.root / name)
        cwd = tree / Path.cwd().relative_to(self.root)
        cwd.mkdir(parents=True, exist_ok=True)
        words = [self._moved(word, tree) for word in self.given.command]
        is_python = words[0].endswith(".py") or words[0] == "-m"
        # Modules of this commit come first, also where the package is installed editably.
        given = self._moved(os.environ.get("PYTHONPATH", str(self.root)), tree)
        paths = [str(tree), str(tree / "src"), given]
        return TrainingCommand(
            words=[*[sys.executable] * is_python, *words],
            cwd=cwd,
            environment={"PYTHONPATH": os.pathsep.join(paths)},
        )

    def _moved(self, text: str, tree: Path) -> str:
        """Paths into the user's checkout as those of a worktree."""
        return re.sub(rf"{re.escape(str(self.root))}(?=[/:]|$)", lambda _: str(tree), text)

    def _gain(self, comparison: Comparison) -> Speedup | None:
        """By the clock that decides; `None` where nothing could be compared."""
        gains: dict[Clock | None, Speedup] = {c.clock: c.speedup for c in comparison.clocks}
        return gains.get(self.clock, comparison.speedup)

    def _pace(self, comparison: Comparison) -> Pace:
        """Slow if the whole interval is beyond the limit, fast if it is within."""
        gain, decides = self._gain(comparison), comparison.headline
        if gain is None or decides is None:
            return "skip"
        if self.limit is None:
            return _PACES.get(decides.verdict, "fast")
        if gain.low <= 1 / (1 + self.limit) <= gain.high:
            return "skip"
        return "slow" if gain.high < 1 / (1 + self.limit) else "fast"

    def _name(self, commit: str) -> str:
        """E.g. `1f0c2d3e4a “Sort the batches”`."""
        return _git(self.root, "show", "-s", "--abbrev=10", "--format=%h “%s”", commit)


def _answer(text: str, step: str = "", note: str = "", *, code: int) -> CommandResult:
    steps = [f"{NEXT}: {step}"] if step else []
    parts = [Sentence(text=text, kind="answer"), *items([note, *steps])]
    return CommandResult(text=rendered(parts, None, "text", sys.stdout), code=code)


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
