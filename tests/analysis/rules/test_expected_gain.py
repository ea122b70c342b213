"""What a change usually gains comes from the corpus, and orders the findings."""

from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.gains import (
    ENOUGH,
    GainTable,
    Saved,
    gain_table,
    with_expected_gain,
)
from trainperf.analysis.rules.input.data_wait import data_wait
from trainperf.analysis.summary.schema import CauseFacts, MachineFacts
from trainperf.core.findings import Finding, ranked


TABLE = GainTable(source="a test", rules={"data_wait": Saved(low=0.5, high=0.8, scripts=3)})


def waiting(path: Path, device: str, *, workers: int = 8, table: GainTable = TABLE) -> Finding:
    """The finding of two hundred steps that wait 40 of 100 ms for data, with the table's range."""
    info = make_info(device=device, config={"num_workers": workers}, hardware={"cpu_count": 8})
    steps = make_steps(200, data_wait=40, forward=60)
    summary = summary_of(path, [RankSpec(steps=steps, info=info)])
    found = next(finding for finding in summary.findings if finding.id == "data_wait")
    found = msgspec.structs.replace(
        found, expected_gain=None, expected_from=0
    )  # by the package's table
    return with_expected_gain(found, summary, table)


def test_the_range_is_of_the_same_change_and_says_of_how_many_scripts(tmp_path: Path) -> None:
    """Of the 40 % that are lost between half and four fifths."""
    finding = waiting(tmp_path, "cpu")

    assert finding.expected_gain == pytest.approx((1 / 0.8, 1 / 0.68))
    assert finding.expected_from == 3


def test_scripts_that_gained_more_than_the_bound_were_another_kind(tmp_path: Path) -> None:
    """They saved a half more than they lost: with 60 ms around it the bound excludes that."""
    table = GainTable(source="", rules={"data_wait": Saved(low=0.5, high=1.5, scripts=3)})

    assert waiting(tmp_path, "cpu", table=table).expected_gain is None


def test_a_cheaper_dataset_says_nothing_of_workers(tmp_path: Path) -> None:
    """The scripts were mended in another way than this finding advises."""
    finding = waiting(tmp_path, "cpu", workers=0)

    assert "num_workers=1" in finding.action
    assert finding.expected_gain is None


def crowded(path: Path, others: float, fraction: float = 1.0) -> Finding:
    """Of steps on two CPUs that wait for data, while other processes kept so many busy."""
    info = make_info(config={"num_workers": 0}, hardware={"cpu_count": 2, "threads": 1})
    steps = make_steps(200, data_wait=40, forward=60)
    summary = summary_of(path, [RankSpec(steps=steps, info=info)])
    shared = CauseFacts(
        cause="host shared",
        host="a",
        fraction=fraction,
        steps=200,
        values={"others_cpus": others},
    )
    machine = MachineFacts(hosts=(), causes=(shared,))
    summary = msgspec.structs.replace(summary, machine=machine)
    finding = data_wait(Evidence(summary=summary))
    assert finding is not None
    table = GainTable(source="", rules={"data_wait: workers": Saved(low=0.5, high=0.8, scripts=3)})
    return with_expected_gain(finding, summary, table)


def test_a_worker_without_a_cpu_gains_what_none_of_the_scripts_did(tmp_path: Path) -> None:
    """It is advised with what it lacks, and without their range."""
    busy = crowded(tmp_path / "a", 1.4)
    free, moment = crowded(tmp_path / "b", 0.3), crowded(tmp_path / "c", 1.4, fraction=0.2)

    assert busy.action.endswith("other processes kept 1.4 of 2 CPUs busy, and a worker needs one")
    assert busy.expected_gain is None
    assert free.action == moment.action == "DataLoader(num_workers=1, persistent_workers=True)"
    assert free.expected_gain == moment.expected_gain == pytest.approx((1 / 0.8, 1 / 0.68))


def test_the_table_of_the_package_stands_on_enough_scripts() -> None:
    """Of each rule and change."""
    assert all(saved.scripts >= ENOUGH for saved in gain_table().rules.values())
    assert all(saved.low <= saved.high for saved in gain_table().rules.values())


def test_scripts_on_a_cpu_say_nothing_of_a_device(tmp_path: Path) -> None:
    """There is no range then."""
    assert waiting(tmp_path, "cuda").expected_gain is None


def test_what_is_expected_comes_before_what_is_merely_possible() -> None:
    """Half of the step at most, and nobody knows; a third of it, which scripts saved indeed."""
    loose = Finding(
        id="loose", title="", advice="", evidence=(), action="", fraction=0.5, gain_upper_bound=2.0
    )
    shown = msgspec.structs.replace(
        loose, id="shown", fraction=0.35, gain_upper_bound=1.6, expected_gain=(1.4, 1.55)
    )

    assert [finding.id for finding in ranked([loose, shown])] == ["shown", "loose"]
