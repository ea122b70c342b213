"""The commands a person types first: what they choose, install, reuse, run and say."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
SYSTEM = "/usr/bin:/bin"
COPIED = ("scripts/_env.sh", "scripts/test", "scripts/walkthrough", ".ci/run")


def stub(path: Path, script: str) -> Path:
    """A command that runs this shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The scripts beside two small files that decide the environment's content."""
    root = tmp_path / "clone"
    for name in COPIED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "constraints.txt").write_text("torch==2.13.0\n")
    return root


@pytest.fixture
def installed(clone: Path) -> Path:
    """A clone whose environment is complete; each tool in it writes down how it was called."""
    for tool in ("python", "ruff", "mypy", "lint-imports", "mkdocs", "pytest"):
        stub(clone / ".venv/bin" / tool, f'echo "{tool} $*" >>"{clone}/calls"')
    stamp = bash(clone, "source scripts/_env.sh; fingerprint").stdout
    (clone / ".venv/trainperf-test").write_text(stamp)
    return clone


def bash(
    cwd: Path, command: str, path: str = SYSTEM, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a line of bash with nothing on stdin and only these variables set."""
    return subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=cwd,
        env={"PATH": path, "HOME": os.environ.get("HOME", "/"), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def calls(clone: Path) -> list[str]:
    """How the tools of the environment were called, in order."""
    return (clone / "calls").read_text().splitlines()


def test_the_newest_python_that_really_runs_is_taken(clone: Path, tmp_path: Path) -> None:
    """A version manager leaves shims of Pythons that it does not have: those are passed over."""
    pythons = tmp_path / "pythons"
    stub(pythons / "python3.13", "echo 'not installed' >&2; exit 127")
    for name in ("python3.12", "python3.11", "python3"):
        stub(pythons / name, f'exec "{sys.executable}" "$@"')

    found = bash(clone, "source scripts/_env.sh; find_python", path=f"{pythons}:{SYSTEM}")

    assert found.stdout.strip() == str(pythons / "python3.12")


def test_an_environment_with_the_present_pins_is_reused_silently(installed: Path) -> None:
    """Nothing is called and nothing printed; what the tests need contains what a run needs."""
    for purpose in ("test", "run"):
        found = bash(installed, f"source scripts/_env.sh; need_env {purpose}")
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")

    assert not (installed / "calls").exists()


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml"])
def test_an_environment_is_completed_again_when_what_decides_it_changes(
    installed: Path, name: str
) -> None:
    """A new pin or a new dependency reaches people who already have `.venv`."""
    (installed / name).write_text((installed / name).read_text() + "# changed\n")

    assert bash(installed, "source scripts/_env.sh; need_env test; current test").returncode == 0
    installs = [call for call in calls(installed) if " install " in call]
    assert len(installs) == 2
    assert all(f"--constraint {installed}/constraints.txt" in call for call in installs)
    assert f"--editable {installed}[recipes] --group {installed}/pyproject.toml:dev" in installs[1]


def test_an_install_that_fails_shows_its_noise_and_is_tried_again(clone: Path) -> None:
    """Only a finished install is remembered; what pip said is hidden until it fails."""
    stub(clone / ".venv/bin/python", 'case "$*" in *install*) echo "no such torch"; exit 1;; esac')

    for _ in range(2):
        found = bash(clone, "source scripts/_env.sh; need_env run")
        assert found.returncode == 1
        assert "no such torch" in found.stderr

    assert not (clone / ".venv/trainperf-run").exists()


@pytest.mark.parametrize(
    ("arguments", "ours"),
    [
        ("-k stage", "not slow and not corpus --numprocesses 2 --dist worksteal -k stage"),
        ("--all -x", "not corpus -x"),
        ("--corpus -x", "corpus -x"),
    ],
)
def test_the_tests_leave_out_what_is_slow_unless_it_is_asked_for(
    installed: Path, arguments: str, ours: str
) -> None:
    """Further arguments go to pytest, behind ours, so that a caller's -m holds."""
    assert bash(installed, f"bash scripts/test {arguments}", PATH=SYSTEM).returncode == 0
    (tests,) = (call for call in calls(installed) if call.startswith("pytest"))
    assert tests.partition("-m ")[2] == ours


def test_every_check_runs_and_one_that_fails_is_named(installed: Path) -> None:
    """A format error must not hide a failing test, nor the other way round."""
    stub(installed / ".venv/bin/mypy", f'echo mypy >>"{installed}/calls"; exit 1')

    found = bash(installed, "bash scripts/test")

    assert found.returncode == 1
    assert found.stderr.splitlines()[-1] == "failed: mypy"
    assert [call.split()[0] for call in calls(installed)] == [
        "ruff",
        "ruff",
        "mypy",
        "lint-imports",
        "mkdocs",
        "pytest",
    ]


def test_continuous_integration_runs_everything(installed: Path, tmp_path: Path) -> None:
    """From any folder, without stdin; a chromium that exists is not installed again."""
    stub(tmp_path / "bin/chromium", "exit 0")
    stub(tmp_path / "bin/apt-get", f'echo apt-get >>"{installed}/calls"')

    found = bash(tmp_path, f"bash {installed}/.ci/run", path=f"{tmp_path}/bin:{SYSTEM}", CI="true")

    assert found.returncode == 0
    assert "no chromium" not in found.stderr
    assert calls(installed)[-2:] == [
        "pytest -m (not slow or beside) and not corpus --numprocesses 2 --dist worksteal",
        "pytest -m slow and not beside and not corpus",
    ]
    assert "apt-get" not in calls(installed)
