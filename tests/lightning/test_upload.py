"""A Trainer whose run directory is in object storage."""

import json
from pathlib import Path

import pytest
from support.fits import Loader, Model, trainer
from support.object_store import ObjectStore, object_store

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.paths import listed
from trainperf.core.spool import ROOT_VARIABLE
from trainperf.lightning import TrainPerf


__all__ = ["object_store"]


def test_a_fit_arrives_behind_its_url(
    tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its summary and its audit; a checkpoint remembers the URL, not the spool."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "spools"))
    base = object_store.bucket / "job"
    perf = TrainPerf(dirpath=str(base), report=False, audit_at=4)

    trainer(tmp_path, perf).fit(Model(), Loader(12))

    (run,) = (file.path for file in listed(base))
    assert summarize(Run.open(run)).run.steps == 12
    assert {"audit.json", "summary.json"} <= {file.path.name for file in listed(run)}
    assert json.loads((run / "summary.json").read_bytes())["run"]["path"] == str(run)
    assert perf.state_dict()["run"] == str(run)
    assert list((tmp_path / "spools").iterdir()) == []
