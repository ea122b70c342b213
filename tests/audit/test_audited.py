"""The file of an audit: written whole, read back equal, refused when damaged."""

from pathlib import Path

import pytest
import torch
from torch import nn

from trainperf.audit import audit_step
from trainperf.core.artifacts import read_document, write_document
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.errors import RunError


@pytest.fixture
def audit() -> StepAudit:
    """One step of a small network."""
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    return audit_step(lambda: net(torch.ones(3, 4)).sum().backward())


def test_an_audit_survives_the_way_to_disk_and_back(audit: StepAudit, tmp_path: Path) -> None:
    """Equal in every field, and nothing else is left in the directory."""
    path = write_document(audit, tmp_path)

    assert read_document(StepAudit, tmp_path) == audit
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("contents", "complaint"),
    [("{", "damaged"), ('{"schema": 1}', "damaged"), ("", "damaged")],
)
def test_a_damaged_audit_is_refused_in_one_line(
    tmp_path: Path, contents: str, complaint: str
) -> None:
    """It names the file and what to do."""
    (tmp_path / "audit.json").write_text(contents)

    with pytest.raises(RunError, match=complaint):
        read_document(StepAudit, tmp_path)


def test_an_audit_of_another_version_is_refused(audit: StepAudit, tmp_path: Path) -> None:
    """Rather than misread."""
    path = write_document(audit, tmp_path)
    assert '"schema":1' in path.read_text()
    path.write_text(path.read_text().replace('"schema":1', '"schema":99'))

    with pytest.raises(RunError, match="version 99"):
        read_document(StepAudit, tmp_path)


def test_calls_that_agree_in_everything_are_one_row() -> None:
    """With the number of calls and the sums over them."""
    one = torch.ones(8, 8)

    def step() -> None:
        for _ in range(3):
            torch.mm(one, one)

    (use,) = audit_step(step).operators

    assert (use.calls, use.flops) == (3, 3 * 2 * 8**3)
    assert use.shapes == ((8, 8), (8, 8))
    assert use.dtypes == ("fp32", "fp32")


def test_cores_that_share_a_cache_count_it_once(tmp_path: Path) -> None:
    """Two cores with a second level each and a third one together; the first level is left out."""
    from trainperf.audit.chip_benchmark import cpu_cache_bytes

    for core in (0, 1):
        for index, (level, size, shared) in enumerate(
            [("1", "32K", str(core)), ("2", "1024K", str(core)), ("3", "8M", "0-1")]
        ):
            cache = tmp_path / f"cpu{core}" / "cache" / f"index{index}"
            cache.mkdir(parents=True)
            (cache / "level").write_text(f"{level}\n")
            (cache / "size").write_text(f"{size}\n")
            (cache / "shared_cpu_list").write_text(f"{shared}\n")

    assert cpu_cache_bytes(tmp_path) == 2 * 2**20 + 8 * 2**20
    assert cpu_cache_bytes(tmp_path / "nowhere") is None
