"""Mutations of the package that its tests have to notice: planted faults, one patch each.

    python -m scripts.mutations [--only NAME …] [--room-only] [--json FILE]

Run it from the root of the repository.  `tests/mutations/NAME.patch` holds a fault; its first line
says what is wrong, the next what the fault means, so that it can be written again once the code has
moved.  The tree is copied once, with all that is not committed yet; the faults are put into the
copy one after the other.

Tests run from the likeliest to the rest: the one that failed last time (`killed.json`), those of
the folders that mirror the patched file, the whole quick suite.  A test counts only if it fails
twice with the fault and passes without it, so one that this machine, or a change of the tests,
breaks kills nothing; nor does one that is no longer there.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


ROOT = Path(__file__).resolve().parents[1]
MUTATIONS = ROOT / "tests" / "mutations"
KILLED = MUTATIONS / "killed.json"

MOST_DISCARDED = 5
"""Tests of one fault that fail for other reasons, and are left out, before it is given up."""

ALONE = ("tests/device/", "tests/gpu/")
"""Folders whose tests run only where pytest is asked for nothing else."""

_PATCHED = re.compile(r"^\+\+\+ b/(\S+)$", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
_TESTS = re.compile(r"^# tests: (.+)$", re.MULTILINE)

_PASSED, _NO_TESTS = 0, 5
"""Exit codes of pytest."""

_QUICK = ("-q", "-m", "not slow and not corpus", "-p", "no:cacheprovider")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a mutation."""

    mutation: str
    fate: str
    """`killed`, `survived`, `survived its room`, or `does not apply`."""
    killed_by: str | None = None
    """Id of the first test that failed."""
    seconds: float = 0.0


class Copy:
    """A copy of the working tree in which faults are planted and tests run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _tracked():
            source, target = ROOT / name, folder / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        if (ROOT / ".venv").exists():
            (folder / ".venv").symlink_to(ROOT / ".venv")  # tests look for its tools there
        traces = os.environ.get("TRAINPERF_TRACES", str(ROOT.parent / "shared" / "traces"))
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(folder),
            "TRAINPERF_TRACES": str(Path(traces).resolve()),
            "HF_HUB_OFFLINE": "1",
            # As in `_env.sh`: on a machine that others use, threads must not spin at barriers.
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        }
        self._probe()

    def apply(self, patch: Path, *, back: bool = False) -> bool:
        """Put a fault in, or take it *back* out; returns whether the patch applies."""
        command = ["git", "apply", "-p1", *(["--reverse"] if back else []), str(patch)]
        # Below a repository git would take paths from its root.
        alone = {**self._environment, "GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        done = subprocess.run(command, cwd=self.folder, env=alone, capture_output=True, check=False)
        for name in _patched(patch):
            # Two states of a file within a second, of one size, share their byte code's key.
            file = self.folder / name
            for cached in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
                cached.unlink()
        return done.returncode == 0

    def failing(
        self, tests: Sequence[str], *, without: Sequence[str] = (), processes: int = 2
    ) -> str | None:
        """Id of the first test that fails; `None` when all pass, or there are none."""
        failed = self._failing(tests, without, processes, "-x")
        return failed[0] if failed else None

    def passing(self, tests: Sequence[str]) -> set[str]:
        """Those of the *tests* that are there and pass."""
        files = {test.partition("::")[0] for test in tests}
        present = sorted(file for file in files if (self.folder / file).is_file())
        if not present:
            return set()
        collected = set(self._pytest("--collect-only", *present).stdout.splitlines())
        left = [test for test in tests if test in collected]
        return {*left} - {*self._failing(left, (), 2)} if left else set()

    def _failing(
        self, tests: Sequence[str], without: Sequence[str], processes: int, *more: str
    ) -> list[str]:
        left_out = [f"--deselect={test}" for test in without]
        done = self._pytest("-n", str(processes), *more, *left_out, *tests)
        if done.returncode in (_PASSED, _NO_TESTS):
            return []
        failed: list[str] = _FAILED.findall(done.stdout)
        # A fault that keeps a file from being imported fails before there is a test to name.
        return failed or [f"pytest ended with {done.returncode}"]

    def _pytest(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "pytest", *_QUICK, *arguments],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def _probe(self) -> None:
        """Make sure that it is the copy's package that tests import.

        Raises:
            SystemExit: It is another one.
        """
        source = "import trainperf; print(trainperf.__file__)"
        command = [sys.executable, "-c", source]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
        )
        imported = Path(done.stdout.strip()).resolve()
        if not imported.is_relative_to(self.folder.resolve()):
            raise SystemExit(f"{imported}: imported in place of the copy; unset PYTHONPATH")


def main() -> int:
    """Plant every fault that was asked for, and say which tests noticed."""
    given = _arguments()
    patches = [MUTATIONS / f"{name}.patch" for name in given.only] or sorted(_all())
    if missing := [patch.stem for patch in patches if not patch.is_file()]:
        print(f"{', '.join(missing)}: no such mutation in {MUTATIONS.relative_to(ROOT)}")
        return 2
    begun = time.monotonic()
    killed: dict[str, str] = json.loads(KILLED.read_text()) if KILLED.exists() else {}
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Copy(Path(folder))
        remembered = _sound(copy, {patch.stem: killed.get(patch.stem, "") for patch in patches})
        width = max(len(patch.stem) for patch in patches)
        for patch in patches:
            outcome = _outcome(copy, patch, remembered, room_only=given.room_only)
            outcomes.append(outcome)
            _remember(killed, outcome)
            print(_row(outcome, width), flush=True)
    seconds = time.monotonic() - begun
    if given.json is not None:
        rows = [asdict(outcome) for outcome in outcomes]
        given.json.write_text(json.dumps({"mutations": rows, "seconds": round(seconds)}, indent=2))
    number = sum(outcome.fate == "killed" for outcome in outcomes)
    print(f"{number} of {len(outcomes)} killed, {_duration(seconds)}")
    return 0 if number == len(outcomes) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.mutations", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[], help="these mutations")
    parser.add_argument(
        "--room-only", action="store_true", help="leave the whole quick suite out (12 min each)"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the outcomes there, too")
    return parser.parse_args()


def _all() -> Iterator[Path]:
    return MUTATIONS.glob("*.patch")


def _sound(copy: Copy, remembered: dict[str, str]) -> dict[str, str]:
    """What killed each mutation, as far as these tests are there and pass without a fault."""
    tests = sorted({test for test in remembered.values() if test})
    alone = [test for test in tests if test.startswith(ALONE)]
    passing = copy.passing(alone) | copy.passing([test for test in tests if test not in alone])
    return {name: test for name, test in remembered.items() if test in passing}


def _outcome(copy: Copy, patch: Path, remembered: dict[str, str], *, room_only: bool) -> Outcome:
    begun = time.monotonic()
    if not copy.apply(patch):
        return Outcome(mutation=patch.stem, fate="does not apply")
    try:
        test = _killer(copy, patch, remembered.get(patch.stem, ""), room_only=room_only)
    finally:
        copy.apply(patch, back=True)
    survived = "survived its room" if room_only else "survived"
    return Outcome(
        mutation=patch.stem,
        fate=survived if test is None else "killed",
        killed_by=test,
        seconds=round(time.monotonic() - begun, 1),
    )


def _killer(copy: Copy, patch: Path, remembered: str, *, room_only: bool) -> str | None:
    """The first test that fails because of the fault, which is in the copy."""
    if remembered and copy.failing([remembered], processes=0) == remembered:
        return remembered  # it has passed without the fault: see `_sound`
    stages = [[folder] for folder in _mirrors(copy, patch)]
    stages += [] if room_only else [[]]
    discarded: list[str] = []
    for stage in stages:
        while (test := copy.failing(stage, without=discarded)) is not None:
            is_named = (copy.folder / test.partition("::")[0]).is_file()
            alone = [test] if is_named else stage
            if copy.failing(alone, processes=0) and _pass_without(copy, patch, alone):
                return test
            discarded.append(test)
            if len(discarded) > MOST_DISCARDED:
                raise SystemExit(f"these fail, and not by the fault: {', '.join(discarded)}")
    return None


def _pass_without(copy: Copy, patch: Path, tests: Sequence[str]) -> bool:
    copy.apply(patch, back=True)
    try:
        return copy.failing(tests, processes=0) is None
    finally:
        copy.apply(patch)


def _mirrors(copy: Copy, patch: Path) -> list[str]:
    """Folders of tests: those that the patch names, then those like its files', inner first."""
    named = _TESTS.search(patch.read_text(encoding="utf-8"))
    folders = named.group(1).split() if named else []
    for name in _patched(patch):
        rooms = Path(name).parts[1:-1]
        folders += ["/".join(("tests", *rooms[:depth])) for depth in range(len(rooms), 0, -1)]
    return [folder for folder in dict.fromkeys(folders) if (copy.folder / folder).exists()]


def _patched(patch: Path) -> list[str]:
    return _PATCHED.findall(patch.read_text(encoding="utf-8"))


def _tracked() -> list[str]:
    """Files of the working tree that git knows, or would."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in dict.fromkeys(done.stdout.split("\0")) if name]


def _remember(killed: dict[str, str], outcome: Outcome) -> None:
    if outcome.killed_by is None or "::" not in outcome.killed_by:
        return
    killed[outcome.mutation] = outcome.killed_by
    kept = {name: killed[name] for name in sorted(killed) if (MUTATIONS / f"{name}.patch").exists()}
    KILLED.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def _row(outcome: Outcome, width: int) -> str:
    what = outcome.killed_by or outcome.fate
    return f"{outcome.mutation:<{width}} · {what} · {outcome.seconds:.0f} s"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    sys.exit(main())
