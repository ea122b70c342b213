"""A bound holds though the rest of the step gets faster with its cause gone."""

from pathlib import Path

import pytest
from support.audits import evidence_of, product, use
from support.runs import MS, RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.rules import diagnose
from trainperf.core.findings import Finding
from trainperf.core.steps.records import Totals


def bound(path: Path, device: str, **phases_ms: float) -> float | None:
    """Of the callbacks in two hundred equal steps."""
    spec = RankSpec(steps=make_steps(200, **phases_ms), info=make_info(device=device))
    findings: dict[str, Finding] = {
        finding.id: finding for finding in summary_of(path, [spec]).findings
    }
    return findings["callbacks"].gain_upper_bound


def test_in_a_short_step_all_else_may_take_a_third(tmp_path: Path) -> None:
    """Of 4 ms, callbacks take 2: the other 2 ms are those of cold caches."""
    assert bound(tmp_path, "cpu", callbacks=2, forward=2) == pytest.approx(4 / (2 / 3))


def test_in_a_long_step_a_refill_is_all_that_is_won(tmp_path: Path) -> None:
    """Two milliseconds of fifty."""
    assert bound(tmp_path, "cpu", callbacks=50, forward=50) == pytest.approx(100 / 48)


def test_a_device_that_is_ahead_does_not_mind_its_hosts_caches(tmp_path: Path) -> None:
    """Amdahl's law alone."""
    assert bound(tmp_path, "cuda", callbacks=2, forward=2) == pytest.approx(2)


def test_what_callbacks_hand_to_a_thread_goes_with_them(tmp_path: Path) -> None:
    """Of 100 ms they take 40; the thread computes 20 more, and the rest waits for 30."""
    totals = Totals(at_step=199, threads_ns={"tensorboard": 200 * 20 * MS, "_pin_memory_loop": MS})
    steps = make_steps(200, callbacks=40, forward=60)
    summary = summary_of(tmp_path, [RankSpec(steps=steps, totals=totals)])

    finding = next(each for each in summary.findings if each.id == "callbacks")
    assert finding.fraction == pytest.approx(0.4)
    assert finding.gain_upper_bound == pytest.approx(100 / (60 - 2 - 1.5 * 20))
    assert "a thread of tensorboard computes 20.0 ms per step meanwhile" in finding.evidence
    assert finding.expected_gain is None, "the scripts behind the range had no such thread"


def test_what_is_logged_by_the_loop_is_handed_to_threads_too(tmp_path: Path) -> None:
    """Of 40 ms the loop takes 10, and a logger's thread 4 more; another serves the loader."""
    totals = Totals(at_step=199, threads_ns={"wandb": 200 * 4 * MS, "_pin_memory_loop": 200 * MS})
    steps = make_steps(200, loop=10, forward=30)
    spec = RankSpec(steps=steps, totals=totals, info=make_info())
    summary = summary_of(tmp_path, [spec])

    finding = next(each for each in summary.findings if each.id == "loop")
    assert finding.gain_upper_bound == pytest.approx(40 / (30 - 2 - 1.5 * 4))


def test_scores_of_attention_empty_the_caches_of_a_cpu_in_every_layer(tmp_path: Path) -> None:
    """Of 60 ms they take 20; two layers lose 20 MB each in forward and in backward: 4 × 2 ms."""
    scores = (1, 8, 1000, 1000)
    audit = [
        product("bmm", 5.0, shapes=((8, 1000, 16), (8, 16, 1000))),
        use("_softmax", 10.0, shapes=(scores,), kind="reduction", calls=2),
        product("bmm", 5.0, shapes=((8, 1000, 1000), (8, 1000, 16))),
        use("mul", 40.0),
    ]
    evidence = evidence_of(tmp_path, audit, forward=60.0)

    finding = next(each for each in diagnose(evidence) if each.id == "attention")
    assert finding.fraction == pytest.approx(20 / 60, rel=0.01)
    assert finding.gain_upper_bound == pytest.approx(60 / (40 - 4 * 2), rel=0.01)


def test_arithmetic_in_a_short_step_has_amdahls_bound_and_no_more(tmp_path: Path) -> None:
    """Of 4 ms fp32 can save 1.5: nothing next to a product was cold before it."""
    double = product("mm", 1.995, flops=5 * 10**8, precision="fp64", dtypes=("fp64", "fp64"))
    evidence = evidence_of(tmp_path, [double, use("relu", 2.0)], forward=4.0)

    finding = next(each for each in diagnose(evidence) if each.id == "matmul_precision")
    assert finding.fraction == pytest.approx(1.495 / 4, rel=0.1)
    assert finding.gain_upper_bound == pytest.approx(1 / (1 - finding.fraction))


def test_workers_share_the_processor_with_a_step_however_warm_it_is(tmp_path: Path) -> None:
    """A batch of 6 ms and 4 ms of work: two workers leave 3 ms, not the 2 of a warm step."""
    info = make_info(config={"num_workers": 0}, hardware={"cpu_count": 2})
    steps = make_steps(200, data_wait=6, forward=4)
    findings = summary_of(tmp_path, [RankSpec(steps=steps, info=info)]).findings

    waiting = next(finding for finding in findings if finding.id == "data_wait")
    assert waiting.gain_upper_bound == pytest.approx(10 / 3)
