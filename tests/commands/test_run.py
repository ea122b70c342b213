"""`trainperf run`: a training is measured without a change to its script."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import typed
from support.docs import ROOT, SCRIPT

from trainperf.core.launch_environment import ENTRY_POINTS, VARIABLE, LaunchOptions
from trainperf.plugins.lightning_factory import callbacks
from trainperf.plugins.torch_start import begin


UNTOUCHED = SCRIPT.replace(", callbacks=[TrainPerf()]", "").replace(
    "from trainperf.lightning import TrainPerf\n", ""
)


def written(script: str, place: Path) -> str:
    """A script in a file."""
    (place / "train.py").write_text(script, encoding="utf-8")
    return "train.py"


def test_a_script_gets_its_own_arguments_and_gives_its_own_exit_code(tmp_path: Path) -> None:
    """What looks like an option of ours behind the script is the script's."""
    script = written("import sys\nprint(sys.argv[1:])\nsys.exit(3)", tmp_path)

    ended = typed(tmp_path, "run", script, "--out", "x", "--lr=3", "data", code=3)

    assert ended.stdout == "['--out', 'x', '--lr=3', 'data']\n"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("print('done')", "no process of the script loaded PyTorch"),
        (
            "import torch; torch.nn.Linear(1, 1)(torch.ones(1)); print('done')",
            "to measure inference",
        ),
    ],
    ids=["no torch", "inference"],
)
def test_a_script_that_trains_nothing_is_told_so(script: str, why: str, tmp_path: Path) -> None:
    """Nothing was recorded, and why."""
    ended = typed(tmp_path, "run", written(script, tmp_path))

    assert ended.stdout == "done\n"
    assert ended.stderr.startswith("trainperf: nothing was recorded: ")
    assert why in ended.stderr


def test_a_module_runs_as_python_runs_it(tmp_path: Path) -> None:
    """Its name, its arguments and its path are what `python -m` makes them."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "train.py").write_text(
        "import os, sys\nassert sys.path[0] == os.getcwd()\nprint(__name__, sys.argv[1:])"
    )

    ended = typed(tmp_path, "run", "-m", "package.train", "-m", "--lr=3")

    assert ended.stdout == "__main__ ['-m', '--lr=3']\n"


def test_a_script_is_started_as_python_starts_it(tmp_path: Path) -> None:
    """The first place of its path, its name, and the traceback of its error."""
    code = "import sys\nassert sys.path[0] == sys.argv[1]\nif __name__ == '__main__':\n    1 / 0"
    script = written(code, tmp_path)

    ended = typed(tmp_path, "run", script, tmp_path, code=1)
    bare = subprocess.run(
        [sys.executable, script, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )

    assert bare.returncode == 1
    assert ended.stderr.startswith(bare.stderr)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signals here")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_signals_of_a_scheduler_reach_the_script(name: str, tmp_path: Path) -> None:
    """It is ours that torchrun and Slurm know, and the script that has to end."""
    script = written(
        f"import signal, sys, time\nsignal.signal(signal.{name}, lambda *_: sys.exit(7))\n"
        "print('ready', flush=True)\ntime.sleep(60)",
        tmp_path,
    )
    with subprocess.Popen(
        [sys.executable, "-m", "trainperf", "run", script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(getattr(signal, name))

        assert process.wait(30) == 7


@pytest.mark.parametrize(
    ("given", "audited"),
    [((), (None, True)), (("--no-audit",), (None, False)), (("--audit-at", "3"), (3, True))],
    ids=["by default", "none", "the one that is named"],
)
def test_a_step_is_audited_unless_the_command_is_told_not_to(
    given: tuple[str, ...], audited: tuple[int | None, bool], tmp_path: Path
) -> None:
    """What the launched process is told."""
    script = written(f"import os; print(os.environ['{VARIABLE}'])", tmp_path)

    told = LaunchOptions.parse(typed(tmp_path, "run", *given, script).stdout)

    assert (told.audit_at, told.audit) == audited


def test_the_command_says_whose_choice_was_kept(tmp_path: Path) -> None:
    """In one line, however many processes have said so."""
    code = (
        "from trainperf.core.launch_environment import LaunchOptions\n"
        "LaunchOptions.of_this_process().joined(dirpath='mine', audit_at=5)"
    )

    ended = typed(tmp_path, "run", "--out", "x", "--audit-at", "3", written(code, tmp_path))

    said = "trainperf: --out and --audit-at: the script's own choice was kept"
    assert said in ended.stderr.splitlines()


GROUPS = (
    "lightning.pytorch.callbacks_factory",
    "pytorch_lightning.callbacks_factory",
    "torch.backends",
)
"""Where Lightning and PyTorch ask installed packages."""

LISTED = """
import sys
from importlib.metadata import entry_points
points = {group: entry_points(group=group) for group in sys.argv[1:]}
print([group for group in points if any("trainperf" in point.value for point in points[group])])
"""


def listed(path: Path, environment: dict[str, str]) -> str:
    """The groups in which a process with trainperf installed at a path sees something of ours."""
    return subprocess.run(
        [sys.executable, "-S", "-c", LISTED, *GROUPS],  # without what is installed here
        cwd=path,
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=True,
    ).stdout.strip()


@pytest.mark.parametrize("editable", [False, True], ids=["wheel", "editable"])
def test_an_installed_package_has_no_part_in_a_training(editable: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Lightning and PyTorch find us in the processes that a command starts alone."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = tmp_path / "trainperf-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trainperf\nVersion: 0.1.0\n")
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    (info / "entry_points.txt").write_text(
        "\n".join(
            f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in points.items())
            for group, points in groups.items()
        )
    )
    paths = [str(tmp_path)]
    if editable:
        paths.append(str(ROOT))
    else:
        shutil.copytree(ROOT / "trainperf", tmp_path / "trainperf")
    installed = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    assert listed(tmp_path, installed) == "[]"
    assert listed(tmp_path, LaunchOptions().environment(installed)) == str(list(GROUPS))


def test_a_python_without_us_trains_as_ever(tmp_path: Path) -> None:
    """Its entry points are there, the package is not: a word on stderr, and no error."""
    asked = "import trainperf_launched as t; t.torch_loaded(); print(t.lightning_callbacks())"
    environment = {**os.environ, "PYTHONPATH": str(ENTRY_POINTS), VARIABLE: "{}"}

    ended = subprocess.run(
        [sys.executable, "-S", "-c", asked],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=True,
    )

    assert ended.stdout == "[]\n"
    assert "trainperf: not measured" in ended.stderr


def test_without_a_command_nothing_is_attached_and_nothing_is_loaded() -> None:
    """Also where an older installation still has its entry points."""
    code = (
        "import sys; from trainperf.plugins.lightning_factory import callbacks; "
        "print(callbacks(), sorted(m for m in sys.modules if m in {'torch', 'lightning', 'numpy'}))"
    )

    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    ).stdout

    assert answer == "[] []\n"


@pytest.mark.parametrize("options", ["no JSON", "[]", "{}x", '{"audit_at": "twenty"}'])
def test_the_entry_points_never_raise(options: str) -> None:
    """Nobody's training is broken, whatever the variable holds."""
    assert callbacks(options) == []
    begin(options)


def test_a_part_that_cannot_be_loaded_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a package that does not fit raises while it is imported."""

    def unfit(**options: object) -> object:
        raise RuntimeError(f"built for another version: {options}")

    monkeypatch.setattr("trainperf.lightning.callback.AutoTrainPerf", unfit)

    assert callbacks("{}") == []


def test_ranks_on_other_machines_are_measured_too() -> None:
    """The folder of the command is on one machine only; a rank left out would make all wait."""
    assert len(callbacks('{"signals": "/no/such/folder"}')) == 1


@pytest.mark.slow
@pytest.mark.parametrize("script", [UNTOUCHED, SCRIPT], ids=["untouched", "with its own TrainPerf"])
def test_a_fit_is_measured_once(script: str, tmp_path: Path) -> None:
    """Beside a `TrainPerf` of the script's own it is a no-op: one run, of all steps."""
    ended = typed(tmp_path, "run", "--out", "out", written(script, tmp_path))

    runs = list(tmp_path.rglob("summary.json"))
    assert len(runs) == 1
    assert runs[0].is_relative_to(tmp_path / "out")
    records = list(tmp_path.rglob("steps-rank0.jsonl"))
    assert json.loads(records[0].read_text(encoding="utf-8").splitlines()[-1])["steps"] == 40
    assert "nothing was recorded" not in ended.stderr
