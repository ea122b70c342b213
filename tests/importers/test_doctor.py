"""The doctor on runs from logs: what a log does not hold is unknown, and no fault."""

from pathlib import Path

import pytest
from support import logs
from support.imported import imported

from trainperf.analysis.doctor import MEASURE_IT, Case, examined
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine


TEXTS = {
    "torchtitan": lambda: logs.torchtitan(logs.steady(300, logs.TITAN)),
    "deepspeed": lambda: logs.deepspeed(logs.steady(300, logs.DEEPSPEED)),
    "megatron": lambda: logs.megatron(logs.steady(1000, logs.MEGATRON)),
    "huggingface": lambda: logs.trainer_state(2000, 10, 0.5, tokens=2048),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_log_fails_only_what_it_shows(tmp_path: Path, name: str) -> None:
    """A fifth of data wait is shown; a missing mask, event, precision or option is not."""
    run = Run.open(imported(tmp_path, TEXTS[name]()))

    checks = {check.id: check for check in examined(Case(facts=examine(run))).checks}

    failed = {"loader"} if name == "torchtitan" else set()
    assert {each.id for each in checks.values() if each.status == "fail"} == failed
    assert checks["warmed_up"].status == "unknown"
    assert "a step is" in checks["warmed_up"].evidence[0]
    assert checks["steady_state"].status == "pass"
    assert checks["mixed_precision"].status == "unknown"
    actions = {each.action for each in checks.values() if each.status == "unknown"}
    assert actions == {MEASURE_IT, "--baseline the run before the change"}
