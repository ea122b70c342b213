"""The machine in reports: its table, energy and cost; and its tracks under the timeline."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from analysis.summary.test_machine import STEP_MS, hot, run_of, scattered, summed_up
from support.machines import H200, plant_machine
from support.runs import RankSpec, make_run_dir, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summary.costs import cost_of_energy, cost_of_time, prices_of
from trainperf.commands import main
from trainperf.reports.html.run import load_page_data, render
from trainperf.reports.run.machine_view import energy_facts, joules, of_machine
from trainperf.reports.run.run_view import run_view
from trainperf.reports.run.text import render as as_text


@pytest.fixture
def hot_run(tmp_path: Path) -> Path:
    """Two minutes, of which forty seconds were 12 % slower on a hot GPU that counts no energy."""
    run = run_of(tmp_path / "a" / "trainperf", scattered(120, hot(40, 80)))
    warm = {"sm_mhz": 1305.0, "reasons": 0x20, "celsius": 88.0, "energy_j": None}
    plant_machine(
        run, 120, devices=(H200,), device=lambda s: warm if 40 < s <= 80 else {"energy_j": None}
    )
    return run


def test_the_headline_says_what_the_machine_did_to_which_steps(hot_run: Path) -> None:
    """No phase is to blame."""
    text = " ".join(as_text(summed_up(hot_run)).split())

    assert "were 12 % slower: the GPU lowered its clock (thermal). First: cool the GPU" in text


def test_the_table_has_what_was_sampled_and_the_stretches(hot_run: Path) -> None:
    """Mean and worst, and what the sampling itself took."""
    beside, slower = of_machine(summed_up(hot_run))
    rows = {row[0]: row[1:] for row in beside.rows}

    assert rows["GPU clock"][1] == "1,305 MHz"
    assert rows["GPU temperature"][1] == "88 °C"
    assert rows["GPU clock lowered: thermal"][0] == "33 %"
    assert any("NVIDIA H200" in note for note in beside.notes)
    assert slower.rows[0][1:] == ("thermal (GPU 0)", "12 %")


def test_a_run_without_a_machine_has_no_table(tmp_path: Path) -> None:
    """Nor any other word."""
    summary = summed_up(run_of(tmp_path, scattered(20, lambda _: 1.0)))

    assert of_machine(summary) == []
    assert not any(fact.name == "energy" for fact in run_view(summary).facts)


@pytest.fixture
def report(
    hot_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """What the command says of that run."""

    def printed(*options: str) -> str:
        monkeypatch.setattr("sys.argv", ["trainperf", "report", str(hot_run), *options])
        main()
        captured = capsys.readouterr()
        return " ".join((captured.out + captured.err).split())

    return printed


def test_energy_and_cost_are_among_the_numbers(report: Callable[..., str]) -> None:
    """At prices that the reader gives, in a currency of their own."""
    text = report("--price-per-hour", "36", "--price-per-kwh", "3.6")

    assert "J/step" in text
    # 120 s at a hundredth per second; 72 kJ at a millionth per joule.
    assert "cost 1.2 for the fit" in text
    assert "electricity 0.072 for the fit" in text


def test_without_a_price_nothing_is_said_of_cost(report: Callable[..., str]) -> None:
    """Nobody knows what others pay."""
    assert "cost" not in report()


def test_a_price_of_energy_that_nobody_measured_is_not_passed_over(tmp_path: Path) -> None:
    """Whoever gives it wants to know what became of it."""
    spec = RankSpec(steps=make_steps(40, forward=10))
    summary = summed_up(make_run_dir(tmp_path, [spec]))

    facts = energy_facts(msgspec.structs.replace(summary, prices=prices_of(None, 0.3)))

    assert [each.value for each in facts] == ["not known: no device's power was sampled"]


@pytest.mark.parametrize(("per_hour", "shown"), [(999.7, "1,000"), (999.4, "999"), (0.5, "0.5")])
def test_a_price_is_never_in_powers_of_ten(tmp_path: Path, per_hour: float, shown: str) -> None:
    """Of a fit of an hour: just below a thousand as well."""
    spec = RankSpec(steps=make_steps(40, forward=90_000))
    summary = summed_up(make_run_dir(tmp_path, [spec]))
    assert summary.run.fit_s == pytest.approx(3600)

    (cost,) = energy_facts(msgspec.structs.replace(summary, prices=prices_of(per_hour, None)))

    assert cost.value.startswith(f"{shown} for the fit")


def test_a_price_below_zero_is_refused(report: Callable[..., str]) -> None:
    """With what to do."""
    assert "must be 0 or more" in report("--price-per-hour", "-1")


def test_the_cost_of_a_step_and_of_a_token_is_that_of_its_time(hot_run: Path) -> None:
    """A thousand steps of 50 ms take 50 s; a million tokens as long."""
    summary = msgspec.structs.replace(summed_up(hot_run), prices=prices_of(3600, 3.6))
    time, energy = cost_of_time(summary), cost_of_energy(summary)

    assert time is not None
    assert time.steps == pytest.approx(STEP_MS, rel=0.06)
    assert time.tokens == pytest.approx(STEP_MS, rel=0.06)
    assert energy is not None
    assert energy.steps == pytest.approx(0.6 * STEP_MS / 1000, rel=0.06)
    assert prices_of(None, None) is None


def test_clock_and_load_are_drawn_under_the_timeline(hot_run: Path) -> None:
    """The clock is the planted one at the planted steps."""
    data = load_page_data(Run.open(hot_run))
    charts = {chart.key: chart for chart in data.series.charts}
    assert data.series.steps is not None
    (clock,) = charts["machine_clock"].lines
    slow = [
        value
        for begin, value in zip(data.series.steps.begins, clock.values, strict=True)
        if 900 <= begin <= 1400
    ]
    page = render(data)

    assert set(slow) == {1305}
    assert max(value for value in clock.values if value is not None) == 1980
    assert {"machine_heat", "machine_power", "machine_cpus", "machine_waits"} <= charts.keys()
    assert page.index("GPU clock") < page.index("Distribution")


@pytest.mark.parametrize(
    ("amount", "words"),
    [(0.0312, "31.2 mJ"), (37.2, "37.2 J"), (72_000, "72 kJ"), (1.2e6, "1.20 MJ"), (3e9, "3 GJ")],
)
def test_energy_is_said_in_the_unit_that_fits(amount: float, words: str) -> None:
    """Three digits are enough."""
    assert joules(amount) == words
