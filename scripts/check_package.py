"""Check of the package as people get it: what wheel and sdist hold, and that they run.

    python -m scripts.check_package                           this Python, wheel and sdist
    python -m scripts.check_package --python python3.12       another one
    python -m scripts.check_package --offline python3.13      one without torch: what reads runs

Both are built, looked into, and installed with the pinned dependencies and no extra, each in an
environment of its own that is removed afterwards (2 GiB on a CPU, 7 GiB where pip takes torch with
CUDA).  There the examples train and every command is typed, far from this repository.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


ROOT = Path(__file__).parents[1]
PACKAGE = "trainperf"

SHIPPED = (
    "trainperf/py.typed",
    "trainperf/schemas/summary.json",
    "trainperf/core/formatting/html/style.css",
    "trainperf/plugins/launched/trainperf_launched.py",
    "trainperf/plugins/launched/trainperf_launched-0.dist-info/entry_points.txt",
    "trainperf/tensorboard/static/index.html",
    "trainperf/tensorboard/static/app.js",
)
"""Files that are no modules, and without which a part does not work."""

BESIDE_SOURCES = {
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "pyproject.toml",
    "PKG-INFO",
    ".gitignore",
}

EXTRAS = (
    *("transformers", "distributed", "s3fs", "pynvml"),
    "opentelemetry.sdk",
)
"""Modules of the extras: none is installed, and every other command works."""

PROFILED = """
import torch

model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=3)) as prof:
    for _ in range(4):
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
        prof.step()
prof.export_chrome_trace("trace.json")
"""


def sources() -> set[str]:
    """Files of the package in this repository."""
    files = (path for path in (ROOT / PACKAGE).rglob("*") if path.is_file())
    names = (path.relative_to(ROOT).as_posix() for path in files)
    return {name for name in names if "__pycache__/" not in name}


def build(folder: Path, *targets: str) -> list[Path]:
    """Build the *targets*, `sdist` or `wheel`, into the folder, and return them in that order.

    Raises:
        SystemExit: There is nothing to build with.
    """
    chosen = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), *chosen]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{ended.stderr}hatchling build failed: is hatchling installed?")
    artifacts = (path for path in folder.iterdir() if path.suffix in {".whl", ".gz"})
    return sorted(artifacts, key=lambda path: path.suffix)


def faults_of_wheel(wheel: Path) -> list[str]:
    """What it lacks of the package, and what it has besides; empty if it is right."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    meta = {name for name in names if re.match(rf"{PACKAGE}-[^/]+\.dist-info/", name)}
    return _faults(names - meta)


def faults_of_sdist(sdist: Path) -> list[str]:
    """The same of a source distribution, which also has the files that describe it."""
    with tarfile.open(sdist) as archive:
        names = {each.name.partition("/")[2] for each in archive.getmembers() if each.isfile()}
    return _faults(names - BESIDE_SOURCES)


def _faults(names: Iterable[str]) -> list[str]:
    held, wanted = set(names), sources() | set(SHIPPED)
    lacks = [f"lacks {name}" for name in sorted(wanted - held)]
    return [*lacks, *(f"has {name}" for name in sorted(held - wanted))]


@dataclass(frozen=True, slots=True)
class Clean:
    """An environment with the package and nothing of this repository on its path."""

    folder: Path
    """With `env`, the environment, and `work`, where commands run."""

    def install(self, python: str, *what: str) -> None:
        """Make it, and install something; says where pip's words are if it fails."""
        quietly(python, "-m", "venv", "--clear", self.folder / "env")
        quietly(
            self.python, "-m", "pip", "install", "--constraint", ROOT / "constraints.txt", *what
        )
        (self.folder / "work").mkdir()

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "env/bin/python"

    @property
    def work(self) -> Path:
        """Where its commands run."""
        return self.folder / "work"

    def run(self, *words: object, code: int = 0) -> str:
        """A command of the environment; what it printed.

        Raises:
            SystemExit: It ended with another exit code.
        """
        environment = without_ours()
        environment["PATH"] = f"{self.folder / 'env/bin'}:{environment['PATH']}"
        ended = subprocess.run(
            [str(word) for word in words],
            cwd=self.work,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
            check=False,
        )
        if ended.returncode != code:
            typed = " ".join(map(str, words))
            raise SystemExit(f"{ended.stdout}{ended.stderr}{typed}: exit code {ended.returncode}")
        return ended.stdout

    def expect(self, text: str, *words: object, code: int = 0) -> None:
        """A command of trainperf that prints *text*."""
        printed = self.run(PACKAGE, *words, code=code)
        if text not in printed:
            raise SystemExit(f"{printed}\ntrainperf {' '.join(map(str, words))}: lacks {text!r}")


def without_ours() -> dict[str, str]:
    """The environment without what leads to this repository: pip looks there, too."""
    own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TRAINPERF_TRACES")
    return {name: value for name, value in os.environ.items() if name not in own}


def quietly(*words: object) -> None:
    """A command whose words are shown if it fails."""
    command = [str(word) for word in words]
    ended = subprocess.run(command, env=without_ours(), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{ended.stdout}{ended.stderr}{command[0]} failed")


def train(clean: Clean) -> None:
    """The examples, and a Lightning script that knows nothing of trainperf, in `runs/`."""
    for name in ("plain_loop", "slow_loader", "lightning_digits"):
        shutil.copy(ROOT / "examples" / f"{name}.py", clean.work)
    lines = (clean.work / "lightning_digits.py").read_text(encoding="utf-8").splitlines()
    bare = "\n".join(line for line in lines if not line.endswith("# trainperf"))
    (clean.work / "bare.py").write_text(bare, encoding="utf-8")
    (clean.work / "profiled.py").write_text(PROFILED, encoding="utf-8")
    for script in ("plain_loop.py", "slow_loader.py"):
        if "trainperf · " not in clean.run("python", script):
            raise SystemExit(f"{script}: no report was printed")
    clean.run("python", "profiled.py")
    clean.expect("trainperf · ", "run", "--out", "runs/bare", "bare.py")
    clean.expect(
        "trainperf try", "try", "--minutes", "0.1", "--only", "workers_N", "slow_loader.py"
    )
    after = "slow_loader.py --num-workers 2"
    clean.expect("keep: ", "prove", "slow_loader.py", after, "--decide", "--to-the-end")


def read(clean: Clean) -> None:
    """Every command that trains nothing, on the runs in `runs/`."""
    clean.expect("commands:", "--help")
    listed = clean.run(PACKAGE, "--help").partition("commands:\n")[2]
    for line in listed.splitlines():
        clean.expect("examples:", line.split()[0], "--help")
    run = "runs/plain"
    for form, text in (("text", "trainperf · "), ("markdown", "#"), ("json", '"findings"')):
        clean.expect(text, "report", run, "--format", form)
    clean.expect("<!doctype html>", "report", run, "--format", "html")
    clean.expect("against", "compare", run, "runs/slow")
    clean.expect("trainperf doctor", "doctor", run)
    clean.expect("GPU", "trace", "trace.json")
    clean.expect("a finding of a run", "explain", "data_wait")
    clean.expect('"$id"', "explain", "--schema", "summary")
    clean.expect("workers_N", "try", "--list")
    clean.expect("trainperf · ", "merge", run, "--out", "runs/copied")
    clean.run("bash", "-c", "source <(trainperf completion bash) && complete -p trainperf")
    for module in EXTRAS:
        clean.run("python", "-c", f"import {module}", code=1)
    clean.expect("", "compare", run, run, "--engine", "dask://127.0.0.1:1", code=2)
    clean.expect("", "watch", run, code=2)


def without_torch(wheel: Path) -> list[str]:
    """The wheel and its dependencies, torch and what needs it excepted."""
    needs = ("torch", "lightning", "torch-tb-profiler")
    with zipfile.ZipFile(wheel) as archive:
        own = re.compile(rf"{PACKAGE}-[^/]+\.dist-info/METADATA")
        (meta,) = filter(own.fullmatch, archive.namelist())
        lines = archive.read(meta).decode().splitlines()
    wanted = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    names = {line: re.split(r"[^\w-]", line)[0] for line in wanted}
    return [line for line in wanted if "extra ==" not in line and names[line] not in needs]


def check(artifacts: Sequence[Path], full: Sequence[str], offline: Sequence[str]) -> None:
    """Install and use each of them with each Python, the *offline* ones to read alone."""
    with tempfile.TemporaryDirectory(prefix="trainperf-package-") as folder:
        runs = None
        for python in full:
            for artifact in artifacts:
                clean = Clean(Path(tempfile.mkdtemp(dir=folder)))
                clean.install(python, str(artifact))
                train(clean)
                read(clean)
                shutil.rmtree(clean.folder / "env")
                runs = clean.work
                print(f"{python} {artifact.name}: trains, and every command works")
        for python in offline:
            clean = Clean(Path(tempfile.mkdtemp(dir=folder)))
            wheel = next(path for path in artifacts if path.suffix == ".whl")
            clean.install(python, *without_torch(wheel))
            quietly(clean.python, "-m", "pip", "install", "--no-deps", wheel)
            if runs is not None:
                shutil.copytree(runs, clean.work, dirs_exist_ok=True)
                shutil.rmtree(clean.work / "runs/copied", ignore_errors=True)
            read(clean)
            shutil.rmtree(clean.folder / "env")
            print(f"{python} {wheel.name}: every command that reads works without torch")


def main() -> int:
    """Build, look inside, install, use."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", action="append", default=[], help="may be repeated")
    parser.add_argument("--offline", action="append", default=[], help="may be repeated")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trainperf-dist-") as folder:
        sdist, wheel = build(Path(folder), "sdist", "wheel")
        faults = faults_of_wheel(wheel) + faults_of_sdist(sdist)
        if faults:
            raise SystemExit("\n".join(faults))
        print(f"{wheel.name} and {sdist.name} hold the package and nothing else")
        check([wheel, sdist], given.python or [sys.executable], given.offline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
