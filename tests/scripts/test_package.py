"""The package that people install: what the wheel holds, and that it runs from there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import make_run

from scripts.check_package import SHIPPED, build, faults_of_sdist, faults_of_wheel, sources
from trainperf import __version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As it would be uploaded."""
    pytest.importorskip("hatchling", reason="the dependency group dev is not installed")
    (path,) = build(tmp_path_factory.mktemp("dist"), "wheel")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    """With schemas, the entry points of what is launched, and the tab's pages; without tests."""
    assert faults_of_wheel(wheel) == []
    assert wheel.name == f"trainperf-{__version__}-py3-none-any.whl"
    assert set(SHIPPED) <= sources()


def test_the_source_distribution_holds_what_the_wheel_is_made_of(tmp_path: Path) -> None:
    """And the files that say what it is."""
    pytest.importorskip("hatchling", reason="the dependency group dev is not installed")
    (sdist,) = build(tmp_path, "sdist")

    assert faults_of_sdist(sdist) == []


def test_the_wheel_runs_from_where_it_was_installed(wheel: Path, tmp_path: Path) -> None:
    """Its command, on a run; nothing of this repository is on the path."""
    place = tmp_path / "installed"
    pip = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place))
    subprocess.run([sys.executable, *pip, str(wheel)], check=True, timeout=120)
    make_run(tmp_path / "runs/a/trainperf", 60)
    beside = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    elsewhere = [entry for entry in beside if entry and not (Path(entry) / "trainperf").is_dir()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), *elsewhere])}

    def ends(*words: str) -> str:
        ended = subprocess.run(
            words,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return ended.stdout

    command = str(place / "bin/trainperf")
    where = ends(sys.executable, "-c", "import trainperf; print(trainperf.__file__)")
    assert Path(where.strip()).is_relative_to(place)
    assert "commands:" in ends(command, "--help")
    assert ends(command, "report", "runs/a").startswith("trainperf · a")
    assert "urn:trainperf:schema:summary" in ends(command, "explain", "--schema", "summary")
