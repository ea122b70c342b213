"""The gate of `trainperf compare` where more than one run is held against the first."""

from pathlib import Path

import pytest
from support.doctor import Planted

from trainperf.commands import main


FAST_MS, SLOW_MS = 20, 45


def run(path: Path, forward_ms: float) -> Path:
    """A run whose steps compute for so long."""
    phases_ms = {"data_wait": 0.5, "forward": forward_ms}
    Planted(phases_ms=phases_ms, facts={"samples": 8}, config={}).write(path / "trainperf")
    return path


@pytest.mark.parametrize("gate", [("--fail-on-regression", "5%"), ("--decide",)])
@pytest.mark.parametrize("order", [("slow", "same"), ("same", "slow")])
def test_one_slow_run_of_several_fails_the_gate(
    gate: tuple[str, ...],
    order: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Wherever it stands among them; `--undecided` forgives no regression."""
    before = run(tmp_path / "before", FAST_MS)
    forward_ms = {"slow": SLOW_MS, "same": FAST_MS}
    after = [run(tmp_path / name, forward_ms[name]) for name in order]
    given = ["trainperf", "compare", before, *after, *gate, "--undecided", "pass"]
    monkeypatch.setattr("sys.argv", list(map(str, given)))

    assert main() == 1
    assert "slow against before: " in capfd.readouterr().out
