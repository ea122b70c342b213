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

_COMMIT = "# branch.oid "


def source_version(patience_s: float = PATIENCE_S) -> dict[str, Scalar]:
    """`git_commit`, and `git_dirty`: whether a file that git knows was changed since.

    Both `None` where there is no repository, no git, or no answer in time.
    """
    lines = _status(_folder(), patience_s)
    commits = [line.removeprefix(_COMMIT) for line in lines if line.startswith(_COMMIT)]
    return {
        "git_commit": next((commit for commit in commits if commit != "(initial)"), None),
        "git_dirty": any(not line.startswith("#") for line in lines) if lines else None,
    }


def _folder() -> Path:
    """Of the script; of what was started by a tool that is installed, the working directory."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    installed = script is None or "site-packages" in script or Path(script).suffix != ".py"
    return Path.cwd() if installed else Path(str(script)).resolve().parent


@lru_cache(maxsize=8)
def _status(folder: Path, patience_s: float) -> tuple[str, ...]:
    """Lines of `git status`: comments, and one for each file that was changed."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), "status"]
    try:
        answer = subprocess.run(  # noqa: S603 fixed arguments
            [*command, "--porcelain=v2", "--branch", "--untracked-files=no"],
            capture_output=True,
            timeout=patience_s,
            check=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(answer.stdout.decode(errors="replace").splitlines())
