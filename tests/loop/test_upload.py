"""A plain loop whose run directory is in object storage; the network may be lost, or the loop."""

import logging
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from support.object_store import ObjectStore, object_store

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.commands import main
from trainperf.core import run_directory, spool
from trainperf.core.errors import ConfigError
from trainperf.core.paths import AnyPath, is_remote, listed, reread
from trainperf.core.spool import ROOT_VARIABLE
from trainperf.loop import LoopMonitor
from trainperf.recording.shared_run import shared_run_directory


__all__ = ["object_store"]


@pytest.fixture(autouse=True)
def spools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the spools of a test are."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "spools"))
    return tmp_path / "spools"


def trained(base: AnyPath, before_end: Callable[[], object] = lambda: None) -> LoopMonitor:
    """Thirty steps."""
    monitor = LoopMonitor(str(base), report=True, lines=False)
    for _ in monitor.batches([torch.ones(2)] * 30):
        with monitor.phase("forward"):
            torch.ones(8, 8).sum()
        monitor.end_step()
    before_end()
    monitor.close()
    return monitor


def uploaded(base: AnyPath) -> AnyPath:
    """The only run directory below a URL."""
    (run,) = (file.path for file in listed(base) if file.is_dir)
    assert is_remote(run)
    return run


def wait_for(happened: Callable[[], bool]) -> None:
    """Until something has happened; a minute at most."""
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def test_a_run_arrives_behind_its_url(
    object_store: ObjectStore, spools: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it, when the fit ends; no spool is left, and the report names the URL."""
    monitor = trained(object_store.bucket / "job")

    run = uploaded(object_store.bucket / "job")
    assert monitor._fit.address == str(run)
    facts = summarize(Run.open(run)).run
    assert re.fullmatch(r"trainperf-\d{8}-\d{6}-[0-9a-f]{6}", run.name)
    assert (facts.state, facts.steps) == ("finished", 30)
    names = {file.path.name for file in listed(run)}
    assert {"steps-rank0.jsonl", "summary.json", "report.html"} <= names
    assert list(spools.iterdir()) == []
    assert capsys.readouterr().out.endswith(f"{run}\n")
    assert str(run).encode() in (run / "summary.json").read_bytes()


def test_two_runs_below_one_url_have_directories_of_their_own(object_store: ObjectStore) -> None:
    """Begun in the same second, perhaps by two jobs that do not know each other."""
    names = {str(run_directory.create(object_store.bucket)) for _ in range(20)}

    assert len(names) == 20
    assert not object_store.bucket.is_dir() or listed(object_store.bucket) == []


def test_a_run_that_could_not_be_uploaded_is_kept_and_uploaded_later(
    object_store: ObjectStore,
    spools: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The loop never notices; the warning and the report say where it is, and the command helps."""
    base = object_store.bucket / "job"
    with caplog.at_level(logging.WARNING, "trainperf"):
        monitor = trained(base, before_end=object_store.stop)

    kept = monitor.run
    url = spool.url_of(kept)
    (warning,) = [record.message for record in caplog.records]
    assert f"kept in {kept}; upload it with `trainperf merge {kept} --out {url}`" in warning
    assert warning.removeprefix("trainperf: ") in summarize(Run.open(kept)).warnings
    assert summarize(Run.open(kept)).run.steps == 30
    assert monitor.monitor.guard.faults == {}

    object_store.restart()
    monkeypatch.setattr(sys, "argv", ["trainperf", "merge", str(kept), "--out", str(url)])

    assert main() == 0
    assert capsys.readouterr().out.endswith(f"{url}\n")
    assert summarize(Run.open(url)).run.steps == 30
    assert summarize(Run.open(kept)).warnings == ()


def test_a_process_that_uploads_no_more_costs_only_the_upload(
    object_store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has killed it; what it did not upload is kept."""
    monitor = LoopMonitor(str(object_store.bucket), report=False, lines=False)
    for _ in monitor.batches([torch.ones(2)] * 30):
        monitor.end_step()
        for child in psutil.Process().children():
            with suppress(psutil.ZombieProcess):
                if spool.__name__ in child.cmdline():
                    child.kill()
    with caplog.at_level(logging.WARNING, "trainperf"):
        monitor.close()

    assert summarize(Run.open(monitor.run)).run.steps == 30
    (warning,) = [record.message for record in caplog.records]
    assert f"kept in {monitor.run}" in warning


KILLED = """
import os, signal, sys, torch
from trainperf.loop import LoopMonitor
monitor = LoopMonitor(sys.argv[1], report=False, lines=False)
for step, _ in enumerate(monitor.batches([torch.ones(2)] * 400)):
    monitor.end_step()
    if step == 300:
        monitor.monitor.flush()
        print("flushed", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_training_wrote_is_uploaded(object_store: ObjectStore, spools: Path) -> None:
    """By the process that outlives it for a moment; then it is gone too, and so is the spool."""
    base = object_store.bucket / "job"
    result = subprocess.run(
        [sys.executable, "-c", KILLED, str(base)], capture_output=True, check=False, timeout=120
    )
    assert result.returncode == -signal.SIGKILL, result.stderr

    wait_for(lambda: spools.exists() and not any(spools.iterdir()))

    summary = summarize(Run.open(uploaded(base)))
    assert summary.run.steps >= 290
    assert summary.run.state == "killed"


def test_an_upload_goes_on_while_the_fit_does(tmp_path: Path, object_store: ObjectStore) -> None:
    """Every so many seconds; what is said on its standard input ends it."""
    url = object_store.bucket / "run"
    run = spool.local(url)
    records = run / "steps-rank3.jsonl"
    records.write_bytes(b"1\n")
    child = subprocess.Popen(
        [sys.executable, "-m", "trainperf.core.spool", str(run), str(url), "3", "0.2"],
        stdin=subprocess.PIPE,
    )
    try:
        for content in (b"1\n", b"1\n2\n"):
            records.write_bytes(content)
            wait_for(lambda: _content(url / records.name) == records.read_bytes())
        records.write_bytes(b"1\n2\n3\n")
        child.communicate(b"end\n", timeout=60)
    finally:
        child.kill()

    assert child.returncode == 0
    assert _content(url / records.name) == b"1\n2\n3\n"
    assert not run.exists()


def _content(path: AnyPath) -> bytes:
    return reread(path.read_bytes) if path.exists() else b""


def test_storage_without_its_package_is_refused_before_anything_runs() -> None:
    """With the package that it takes."""
    with pytest.raises(ConfigError, match="install gcsfs"):
        LoopMonitor("gs://bucket/job")


def test_a_restart_goes_on_in_the_run_it_restarts(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are next to those of the attempt before, and read with them."""
    base = object_store.bucket / "job"
    trained(base)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")

    trained(base)

    run = Run.open(uploaded(base))
    assert [files[0].attempt for files in run.attempts] == [0, 1]
    assert summarize(run).run.steps == 60


def test_ranks_of_one_machine_share_the_spool_and_the_url(object_store: ObjectStore) -> None:
    """Rank 0 chooses, the others hear it; each has files of its own."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        runs = [shared_run_directory(object_store.bucket, rank, 3) for rank in range(3)]
    finally:
        dist.destroy_process_group()

    assert runs[0] is not None
    assert runs == runs[:1] * 3
    assert str(runs[0]).startswith("s3://records/trainperf-")
    assert len({spool.local(run) for run in runs if run is not None}) == 1
