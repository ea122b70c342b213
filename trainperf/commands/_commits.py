"""Commits of a repository: their order, and checkouts of them that leave the user's own alone.

Each commit is checked out into a worktree of its own in a temporary folder.  What the user's
checkout has and git does not track, such as data, is brought into it: folders are made anew, small
files copied, larger ones linked.  So what a training adds or writes over stays in the checkout, but
for large files: those are the user's own, and a change of one is noticed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from trainperf.commands._trainings import TrainingCommand
from trainperf.comparison.bisection import State
from trainperf.core.errors import ConfigError, RunError
from trainperf.core.formatting.units import plural


MOST_FILES = 4000
"""A folder that has more is linked as a whole."""

COPIED_BYTES = 1 << 16
"""Up to so large a file is copied: those of a folder have 256 MiB at most."""

Stamps = dict[Path, tuple[int, int]]
"""Size of each file, and time of its last change in ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The repository of the working directory."""

    root: Path
    """Top of the user's checkout."""
    below: Path
    """The working directory, relative to it."""

    @classmethod
    def here(cls) -> "Repository":
        """That of this process.

        Raises:
            ConfigError: There is none.
        """
        try:
            top = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel"))
        except RunError as error:
            raise ConfigError(f"{Path.cwd()}: no git repository ({error})") from None
        return cls(root=top, below=Path.cwd().resolve().relative_to(top.resolve()))

    def state(self, revision: str) -> State:
        """A commit, by any name that git knows.

        Raises:
            ConfigError: There is no such commit.
        """
        try:
            commit = _git(self.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        except RunError:
            raise ConfigError(f"{revision}: no such commit; give a hash, tag or branch") from None
        return State(id=commit, title=_git(self.root, "show", "-s", "--format=%s", commit))

    def ends(self, good: str, bad: str) -> tuple[State, State]:
        """Two commits, of which the first is an ancestor of the second.

        Raises:
            ConfigError: It is none, or there is no such commit.
        """
        first, last = self.state(good), self.state(bad)
        names = f"{short(first.id)} and {short(last.id)}"
        if first == last:
            raise ConfigError(f"{names}: give two commits that differ")
        try:
            common = _git(self.root, "merge-base", first.id, last.id)
        except RunError:
            raise ConfigError(f"{names} have no common history") from None
        if common != first.id:
            raise ConfigError(
                f"{short(first.id)} is no ancestor of {short(last.id)}; both go back to "
                f"{short(common)}: try that as GOOD"
            )
        return first, last

    def uncommitted(self) -> list[str]:
        """A warning if files of the user's checkout differ from its commit."""
        changed = _names(_git(self.root, "diff", "--name-only", "-z", "HEAD"))
        if not changed:
            return []
        more = f" and {plural(len(changed) - 1, 'other file')}" if changed[1:] else ""
        return [f"changes of {changed[0]}{more} are in no commit, so they were not measured"]

    def left(self, fast: Collection[str], slow: str) -> list[State]:
        """Commits that may be the first slow one, without *slow* itself; the most telling first."""
        without = [f"^{commit}" for commit in fast]
        lines = _git(self.root, "rev-list", "--bisect-all", slow, *without).splitlines()
        commits = [line.split()[0] for line in lines]
        named = _git(self.root, "log", "--format=%H %s", slow, *without).splitlines()
        titles = dict(line.partition(" ")[::2] for line in named)
        return [State(id=each, title=titles[each]) for each in commits if each != slow]


def short(commit: str) -> str:
    """A hash as people write it."""
    return commit[:10]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkouts:
    """Worktrees of commits in a temporary folder, and the training in each."""

    repository: Repository
    words: Sequence[str]
    """The user's command."""
    folder: Path
    linked: tuple[str, ...] = ()
    """What of the untracked files trainings read; empty is what looks like input."""
    out: Path
    """The folder that the runs are written to, which no training reads."""
    warnings: list[str] = field(default_factory=list)
    """What to know about the trainings so far."""

    @contextmanager
    def training(self, state: State) -> Iterator[TrainingCommand]:
        """The command in a checkout that is there for as long as the context is open.

        Raises:
            ConfigError: The script is not in this commit, or there is no such program.
            RunError: Git cannot check it out.
        """
        root, path = self.repository.root, self.folder / short(state.id)
        # A hook of the user is for the user's checkout.
        hooks = ("-c", "core.hooksPath=/dev/null")
        _git(root, *hooks, "worktree", "add", "--detach", "--quiet", path, state.id)
        stamps: Stamps = {}
        try:
            for name in self._untracked():
                _bring(root / name, path / name, stamps)
            yield self._command(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)
            with suppress(RunError):
                _git(root, "worktree", "prune")
        for changed in (file for file, stamp in stamps.items() if _stamp(file) != stamp):
            self.warnings.append(
                f"{changed} has changed while {short(state.id)} trained; if the training wrote "
                "it through its link, name what trainings read with --link"
            )

    def _untracked(self) -> Sequence[str]:
        """Relative paths of what is to be there too."""
        root = self.repository.root
        if missing := [name for name in self.linked if not (root / name).exists()]:
            raise ConfigError(f"--link {missing[0]}: not in {root}")
        names = _names(_git(root, "ls-files", "--others", "--directory", "-z"))
        out = self.out.resolve()
        read = [n for n in names if not _is_output(Path(n)) and (root / n).resolve() != out]
        return self.linked or read

    def _command(self, checkout: Path) -> TrainingCommand:
        cwd = checkout / self.repository.below

        def here(word: str) -> str:
            """A path into the user's checkout as that of this one."""
            root = str(self.repository.root)
            inside = word == root or word.startswith(f"{root}/")
            return f"{checkout}{word[len(root) :]}" if inside else word

        program, *arguments = map(here, self.words)
        path = program if "/" in program else shutil.which(program)
        if program.endswith(".py"):
            if not (cwd / program).is_file():
                raise ConfigError(f"no {self.words[0]} in it")
            command = [sys.executable, program, *arguments]
        elif path is None:
            raise ConfigError(f"{program}: neither a Python file nor a command")
        else:
            command = [path, *arguments]
        # Modules of this checkout come first, also where the package is installed editably.
        ours = [str(path) for path in (checkout, checkout / "src") if path.is_dir()]
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        paths = [*ours, *(here(str(Path(path).absolute())) for path in given)]
        environment = {"PYTHONPATH": os.pathsep.join(paths)}
        return TrainingCommand(words=command, cwd=cwd, environment=environment)


def _bring(source: Path, target: Path, stamps: Stamps) -> None:
    """Bring a file or folder into a checkout, except where that has something itself."""
    if source.is_dir() and not (target.is_symlink() or _is_linked_whole(source)):
        target.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            _bring(path, target / path.name, stamps)
    elif source.exists() and not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_file() and source.stat().st_size <= COPIED_BYTES:
            shutil.copy2(source, target)
        else:
            target.symlink_to(source)
            stamps[source] = _stamp(source)


_OUTPUTS = frozenset(
    {
        *("lightning_logs", "runs", "wandb", "mlruns", "outputs", "checkpoints", "logs", "tb_logs"),
        *("__pycache__", "build", "dist", "site", "node_modules"),
    }
)


def _is_output(path: Path) -> bool:
    """Whether a training, or a tool, may have written it."""
    name = path.name
    hidden_cache = name.startswith(".") and name.endswith("_cache")
    return name in _OUTPUTS or hidden_cache or path.suffix in {".pyc", ".egg-info", ".ckpt"}


def _is_linked_whole(folder: Path) -> bool:
    """Whether its files are not looked at: an environment has thousands, and nobody's data."""
    if folder.is_symlink() or (folder / "pyvenv.cfg").is_file():
        return True
    files = (name for _, _, names in os.walk(folder) for name in names)
    return next(islice(files, MOST_FILES, None), None) is not None


def _stamp(path: Path) -> tuple[int, int]:
    """Of a folder nothing but that it is there: a training may write into it."""
    if not path.is_file():
        return (-path.is_dir(), 0)
    return (path.stat().st_size, path.stat().st_mtime_ns)


def _names(listed: str) -> list[str]:
    return [name for name in listed.split("\0") if name]


def _git(folder: Path, *arguments: str | Path) -> str:
    """What git prints.

    Raises:
        ConfigError: There is no git.
        RunError: It fails; with its last line.
    """
    program = shutil.which("git")
    if program is None:
        raise ConfigError("git: not found; install it, or compare two trainings with prove")
    ended = subprocess.run(  # noqa: S603 git itself, with a fixed command
        [program, "-C", folder, *arguments],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise RunError(f"git {arguments[0]}: {lines[-1]}")
    return ended.stdout.strip("\n")
