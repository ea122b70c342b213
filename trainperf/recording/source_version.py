"""Version of the training script: the commit that its repository is at, and whether it was changed.

Git is asked once, before the first step, and given a second: a repository on a slow file system
has no version then.  It writes nothing, and starts no program that the repository names.
"""

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from trainperf.core.steps.records import Scalar


PATIENCE_S = 1.0
"""Longest wait for git."""


def source_version(patience_s: float = PATIENCE_S) -> dict[str, Scalar]:
    """`git_commit`, and `git_dirty`: whether a file that git knows was changed since.

    Both `None` where there is no repository, no git, or no answer in time.
    """
    return dict(_status(_folder(), patience_s))


def _folder() -> Path:
    """Of the script; of what was started by a tool that is installed, the working directory."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    installed = script is None or "site-packages" in script or Path(script).suffix != ".py"
    return Path.cwd() if installed else Path(str(script)).resolve().parent


@lru_cache(maxsize=8)
def _status(folder: Path, patience_s: float) -> tuple[tuple[str, Scalar], ...]:
    commit, dirty = None, None
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), "status"]
    try:
        answer = subprocess.run(  # noqa: S603 fixed arguments
            [*command, "--porcelain=v2", "--branch", "--untracked-files=no"],
            capture_output=True,
            timeout=patience_s,
            check=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return (("git_commit", None), ("git_dirty", None))
    for line in answer.splitlines():
        if line.startswith("# branch.oid "):
            commit = line.removeprefix("# branch.oid ")
            dirty = dirty or False
        elif not line.startswith("#"):
            dirty = True
    if commit == "(initial)":
        commit = None
    return (("git_commit", commit), ("git_dirty", dirty))
