"""Commits of a repository: their order, and checkouts of them that leave the user's own alone.

Each commit is checked out into a worktree of its own in a temporary folder.  What the user's
checkout has and git does not track, such as data, is linked into it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trainperf.commands._linked_data import LinkedData
from trainperf.commands._paired_runs import TrainingCommand
from trainperf.comparison.bisection import State
from trainperf.core.errors import ConfigError, RunError


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
        changed = _git(self.root, "diff", "--name-only", "-z", "HEAD", raw=True)
        return [name for name in changed.split("\0") if name]

    def parent(self, commit: str) -> State:
        """The first parent of a commit."""
        return self.state(f"{commit}^1")

    def check_order(self, good: State, bad: State) -> None:
        """Refuse two commits of which the first is no ancestor of the second.

        Raises:
            ConfigError: With the commit that both go back to.
        """
        if good.id == bad.id:
            raise ConfigError(f"{short(good.id)} and {short(bad.id)}: give two commits that differ")
        with suppress(RunError):
            _git(self.root, "merge-base", "--is-ancestor", good.id, bad.id)
            return
        with suppress(RunError):
            common = _git(self.root, "merge-base", good.id, bad.id)
            raise ConfigError(
                f"{short(good.id)} is no ancestor of {short(bad.id)}; both go back to "
                f"{short(common)}: try that as GOOD"
            )
        raise ConfigError(f"{short(good.id)} and {short(bad.id)} have no common history")

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
class Outside:
    """What is outside of the commits."""

    linked: tuple[str, ...]
    """What of the untracked files is linked into them; empty is what looks like input."""
    out: Path
    """The folder that the runs are written to, which is not linked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkouts:
    """Worktrees of commits in a temporary folder."""

    repository: Repository
    folder: Path
    outside: Outside

    @contextmanager
    def of(self, commit: str) -> Iterator["Checkout"]:
        """A checkout of a commit for as long as the context is open.

        Raises:
            RunError: Git cannot check it out, or a training wrote through a link.
        """
        path = self.folder / short(commit)
        # A hook of the user is for the user's checkout.
        hooks = ("-c", "core.hooksPath=/dev/null")
        _git(self.repository.root, *hooks, "worktree", "add", "--detach", "--quiet", path, commit)
        try:
            data = LinkedData.into(path, self.repository.root, self._untracked())
            yield Checkout(repository=self.repository, path=path, data=data)
        finally:
            with suppress(RunError):
                _git(self.repository.root, "worktree", "remove", "--force", "--force", path)
            shutil.rmtree(path, ignore_errors=True)
            with suppress(RunError):
                _git(self.repository.root, "worktree", "prune")

    def _untracked(self) -> list[Path]:
        """Relative paths of what is to be linked."""
        root = self.repository.root
        linked = self.outside.linked
        if linked:
            missing = [name for name in linked if not (root / name).exists()]
            if missing:
                raise ConfigError(f"--link {missing[0]}: not in {root}")
            return [Path(name) for name in linked]
        names = _git(root, "ls-files", "--others", "--directory", "-z", raw=True).split("\0")
        out = self.outside.out.resolve()
        paths = [Path(name) for name in names if name]
        return [path for path in paths if not _is_output(path) and (root / path).resolve() != out]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """One of them."""

    repository: Repository
    path: Path
    data: LinkedData

    def training(self, words: Sequence[str]) -> TrainingCommand:
        """The user's command in this checkout.

        Raises:
            ConfigError: The script is not in this commit, or there is no such program.
        """
        cwd = self.path / self.repository.below
        program, *arguments = (self._here(word) for word in words)
        if program.endswith(".py"):
            if not (cwd / program).is_file():
                raise ConfigError(f"no {words[0]} in it")
            command = [sys.executable, program, *arguments]
        else:
            path = program if "/" in program else shutil.which(program)
            if path is None:
                raise ConfigError(f"{program}: neither a Python file nor a command")
            command = [path, *arguments]
        return TrainingCommand(words=command, cwd=cwd, environment=self._environment())

    def _here(self, word: str) -> str:
        """A path into the user's checkout as that of this one."""
        root = str(self.repository.root)
        inside = word == root or word.startswith(f"{root}/")
        return f"{self.path}{word[len(root) :]}" if inside else word

    def _environment(self) -> dict[str, str]:
        """Modules of this checkout come first, also where the package is installed editably."""
        sources = [self.path, self.path / "src"]
        ours = [str(path) for path in sources if path.is_dir()]
        given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        absolute = (str(Path(path).absolute()) for path in given)
        return {"PYTHONPATH": os.pathsep.join([*ours, *map(self._here, absolute)])}


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


def _git(folder: Path, *arguments: str | Path, raw: bool = False) -> str:
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
    return ended.stdout if raw else ended.stdout.strip()
