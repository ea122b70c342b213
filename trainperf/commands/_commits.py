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

    def uncommitted(self) -> list[str]:
        """Tracked files of the user's checkout that differ from its commit."""
        return _names(_git(self.root, "diff", "--name-only", "-z", "HEAD"))

    def check_order(self, good: State, bad: State) -> None:
        """Refuse two commits of which the first is no ancestor of the second.

        Raises:
            ConfigError: With the commit that both go back to.
        """
        ends = f"{short(good.id)} and {short(bad.id)}"
        if good.id == bad.id:
            raise ConfigError(f"{ends}: give two commits that differ")
        try:
            common = _git(self.root, "merge-base", good.id, bad.id)
        except RunError:
            raise ConfigError(f"{ends} have no common history") from None
        if common != good.id:
            raise ConfigError(
                f"{short(good.id)} is no ancestor of {short(bad.id)}; both go back to "
                f"{short(common)}: try that as GOOD"
            )

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
    """Worktrees of commits in a temporary folder."""

    repository: Repository
    folder: Path
    linked: tuple[str, ...] = ()
    """What of the untracked files trainings read; empty is what looks like input."""
    out: Path
    """The folder that the runs are written to, which no training reads."""

    @contextmanager
    def of(self, commit: str) -> Iterator["Checkout"]:
        """A checkout of a commit for as long as the context is open.

        Raises:
            RunError: Git cannot check it out.
        """
        root, path = self.repository.root, self.folder / short(commit)
        # A hook of the user is for the user's checkout.
        hooks = ("-c", "core.hooksPath=/dev/null")
        _git(root, *hooks, "worktree", "add", "--detach", "--quiet", path, commit)
        try:
            checkout = Checkout(repository=self.repository, path=path)
            for name in self._untracked():
                checkout.bring(root / name, path / name)
            yield checkout
        finally:
            shutil.rmtree(path, ignore_errors=True)
            with suppress(RunError):
                _git(root, "worktree", "prune")

    def _untracked(self) -> Sequence[str]:
        """Relative paths of what is to be there too."""
        root = self.repository.root
        if missing := [name for name in self.linked if not (root / name).exists()]:
            raise ConfigError(f"--link {missing[0]}: not in {root}")
        names = _names(_git(root, "ls-files", "--others", "--directory", "-z"))
        out = self.out.resolve()
        read = [n for n in names if not _is_output(Path(n)) and (root / n).resolve() != out]
        return self.linked or read


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """One of them."""

    repository: Repository
    path: Path
    linked: Stamps = field(default_factory=dict)
    """How the linked files were then."""

    def bring(self, source: Path, target: Path) -> None:
        """Bring a file or folder here, except where the checkout has something itself."""
        if source.is_dir() and not (target.is_symlink() or _is_linked_whole(source)):
            target.mkdir(parents=True, exist_ok=True)
            for path in source.iterdir():
                self.bring(path, target / path.name)
        elif source.exists() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_file() and source.stat().st_size <= COPIED_BYTES:
                shutil.copy2(source, target)
            else:
                target.symlink_to(source)
                self.linked[source] = _stamp(source)

    def changed(self) -> list[Path]:
        """Files of the user that are not as they were when they were linked."""
        return [path for path, stamp in self.linked.items() if _stamp(path) != stamp]

    def training(self, words: Sequence[str]) -> TrainingCommand:
        """The user's command in this checkout.

        Raises:
            ConfigError: The script is not in this commit, or there is no such program.
        """
        cwd = self.path / self.repository.below
        program, *arguments = map(self._here, words)
        found = program if "/" in program else shutil.which(program)
        if program.endswith(".py"):
            if not (cwd / program).is_file():
                raise ConfigError(f"no {words[0]} in it")
            command = [sys.executable, program, *arguments]
        elif found is None:
            raise ConfigError(f"{program}: neither a Python file nor a command")
        else:
            command = [found, *arguments]
        # Modules of this checkout come first, also where the package is installed editably.
        ours = [str(path) for path in (self.path, self.path / "src") if path.is_dir()]
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        paths = [*ours, *(self._here(str(Path(path).absolute())) for path in given)]
        environment = {"PYTHONPATH": os.pathsep.join(paths)}
        return TrainingCommand(words=command, cwd=cwd, environment=environment)

    def _here(self, word: str) -> str:
        """A path into the user's checkout as that of this one."""
        root = str(self.repository.root)
        inside = word == root or word.startswith(f"{root}/")
        return f"{self.path}{word[len(root) :]}" if inside else word


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
        raise ConfigError("git: not found; bisect two environments with --python instead")
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
