"""One step of a fit is audited: written once, tagged, and nothing else of the fit changes."""

from pathlib import Path

from support.fits import Loader, Model, trainer

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.audit import StepAudit
from trainperf.lightning import TrainPerf


FORWARD = 2 * 2 * 4 * 1
"""FLOPs of the model's layer for a batch: two rows of four."""


def test_the_audit_sees_forward_backward_and_update_with_their_modules(tmp_path: Path) -> None:
    """The input requires no gradient: backward is one product."""
    trainer(tmp_path, TrainPerf(audit_at=3, report=False)).fit(Model(), Loader(6))

    audit = read_document(StepAudit, tmp_path / "trainperf")
    matmuls = [use for use in audit.operators if use.kind == "matmul"]
    assert [(use.part, use.module, use.flops) for use in matmuls] == [
        ("forward", "Model.layer", FORWARD),
        ("backward", "Model.layer", FORWARD),
    ]
    assert audit.of(["optimizer"])
    assert {use.line.rpartition(":")[0].rpartition("/")[2] for use in matmuls if use.line} == {
        "fits.py"
    }
