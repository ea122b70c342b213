"""A Hugging Face training whose run directory is in object storage."""

from pathlib import Path

import pytest
from support.hugging_face import quiet, trainer
from support.object_store import ObjectStore, object_store

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.paths import listed
from trainperf.core.spool import ROOT_VARIABLE


__all__ = ["object_store"]


def test_a_training_arrives_behind_its_url(
    tmp_path: Path, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its summary; nothing of it stays here."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path / "spools"))
    base = object_store.bucket / "job"

    trainer(tmp_path, quiet(dirpath=str(base))).train()

    (run,) = (file.path for file in listed(base))
    assert summarize(Run.open(run)).run.steps == 12
    assert "summary.json" in {file.path.name for file in listed(run)}
    assert list((tmp_path / "spools").iterdir()) == []
