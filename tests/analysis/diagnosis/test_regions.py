"""One audited step laid over steady phases: planted times come back, never more than there are."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audits import CHIP, product, use
from support.light import make_audit

from trainperf.analysis.diagnosis.account import Region
from trainperf.analysis.diagnosis.regions import (
    SLOWED,
    as_sampled,
    on_device,
    on_host,
    pooled,
    spent_on,
    unexplained_s,
)
from trainperf.analysis.roofline.roofline import roofline
from trainperf.analysis.summary.schema import LineShare, PhaseLines, PlainCode
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.stats.quantiles import wilson


LAUNCH_MS = 5e-3
"""Of the planted chip."""


def laid(*uses: OperatorUse, slowed: float = 1.0, **phases_ms: float) -> dict[str, Region]:
    """The regions of an audited step in steady phases of so many milliseconds, by their line."""
    made = roofline(make_audit(*uses), CHIP)
    loop_s = {slot: ms / 1e3 for slot, ms in phases_ms.items()}
    regions = on_host(made, loop_s, slowed)
    return {region.use.line or "": region for region in regions}


def ms(*regions: Region) -> float:
    """Of them together."""
    return 1e3 * sum(region.seconds for region in regions)


PRODUCTS = (
    product("mm", 1.505, before_s=5e-6, line="net.py:1", flops=10**9),
    product("mm", 1.505, before_s=5e-6, line="net.py:2", shapes=((8, 8),)),
)
"""A millisecond and a half each, and a launch."""

SMALL = use("add", 50 * LAUNCH_MS, calls=50, before_s=50 * 25e-6, line="net.py:3")
"""Fifty calls that compute nothing, with 20 µs of Python before each beyond what the audit adds."""


def test_what_is_no_work_of_operators_is_python_before_their_calls() -> None:
    """Of a forward of 4 ms products computed 3: the other one is before the small ones."""
    rows = laid(*PRODUCTS, SMALL, forward=4)

    assert [1e3 * rows[f"net.py:{place}"].run_s for place in (1, 2)] == pytest.approx([1.5, 1.5])
    assert 1e3 * rows["net.py:3"].run_s == 0.0
    assert 1e3 * rows["net.py:3"].python_s == pytest.approx(1 - 2 * LAUNCH_MS)
    assert ms(*rows.values()) == pytest.approx(4)


def test_an_interruption_of_the_audited_step_is_in_no_steady_one() -> None:
    """The phase takes what its operators compute and their launches: nothing else is left."""
    printed = use("exp", 0.505, before_s=30e-3, line="net.py:4")
    phase_ms = 3.5 + 53 * LAUNCH_MS
    rows = laid(*PRODUCTS, SMALL, printed, forward=phase_ms)

    assert 1e3 * rows["net.py:4"].python_s < 2 * LAUNCH_MS
    assert ms(*rows.values()) == pytest.approx(phase_ms)


def test_what_the_steady_steps_take_as_well_is_where_the_audit_saw_it() -> None:
    """Thirty milliseconds before one call, in every step."""
    printed = use("exp", 0.505, before_s=30e-3, line="net.py:4")

    rows = laid(*PRODUCTS, SMALL, printed, forward=34.5)

    assert 1e3 * rows["net.py:4"].python_s == pytest.approx(30, rel=0.02)


def test_a_busy_machine_slows_operators_down_twice_at_most() -> None:
    """What even that does not explain belongs to no operator."""
    rows = laid(*PRODUCTS, SMALL, forward=20)

    assert 1e3 * sum(row.run_s for row in rows.values()) == pytest.approx(SLOWED * 3)
    assert ms(*rows.values()) < 20


def test_seconds_are_spent_on_launches_and_on_what_bounds_the_rest() -> None:
    """A product of 2.5 ms, a copy of 1, and 50 calls of which all is Python and launches."""
    copy = use("copy_", 1.005, read_bytes=10**7, line="net.py:5")
    regions = list(laid(PRODUCTS[0], copy, SMALL, forward=3.5).values())

    spent_s = spent_on(regions, CHIP, on_host=True)

    launches = 52 * LAUNCH_MS / 1e3
    assert spent_s["compute"] == pytest.approx(regions[0].run_s - LAUNCH_MS / 1e3)
    assert spent_s["memory"] == pytest.approx(regions[1].run_s - LAUNCH_MS / 1e3)
    assert sum(spent_s.values()) == pytest.approx(sum(region.seconds for region in regions))
    assert spent_s["launch"] > launches / 2
    assert spent_on([], CHIP, on_host=True) is None


def seen_at(
    line: str, fraction: float, samples: int = 100, host: PlainCode | None = None
) -> PhaseLines:
    """Samples of a forward, so many of them in one line."""
    share = LineShare(where=line, function="", fraction=fraction, samples=samples)
    return PhaseLines(slot="forward", samples=samples, owner=None, lines=(share,), host=host)


def python(fraction: float) -> PlainCode:
    """So much of it is no operator."""
    line = LineShare(where="net.py:1", function="", fraction=fraction, samples=100)
    return PlainCode(line=line, low=fraction, high=fraction, names=("Python",))


def test_a_line_that_grows_is_as_long_as_samples_of_all_steps_show_it_to_be() -> None:
    """Half of the audited step was each product: of 6 ms, samples saw the first in 4.5."""
    regions = list(laid(*PRODUCTS, forward=6).values())

    first, second = as_sampled(regions, seen_at("net.py:1", 0.75, host=python(0.04)), 6e-3)

    assert (ms(first), ms(second)) == (pytest.approx(4.5), pytest.approx(1.5))
    # Its work has grown, and not the Python before it.
    assert first.python_s == regions[0].python_s
    _, high = wilson(0.75, 100)
    unexplained = unexplained_s([first, second], {"forward": 6e-3})["forward"]
    # A bound allows for what the samples leave open, and for what the other line has of the growth.
    assert unexplained == pytest.approx((high - 0.75) * 6e-3 + 1.5e-3 - second.explained_s)


@pytest.mark.parametrize(
    "lines",
    [
        seen_at("net.py:1", 0.55),  # 0.45 to 0.64 at so many samples
        seen_at("net.py:1", 0.75, samples=4),
        seen_at("net.py:1", 0.53, samples=100_000),
        seen_at("net.py:9", 0.9),
        seen_at("net.py:1", 0.9, host=python(0.3)),
    ],
    ids=["as in the audit", "too few samples", "by a trifle", "a line without operators", "Python"],
)
def test_what_samples_do_not_show_clearly_stays_as_it_was_audited(lines: PhaseLines) -> None:
    """Nor does Python make operators longer."""
    regions = list(laid(*PRODUCTS, forward=6).values())

    assert as_sampled(regions, lines, 6e-3) == tuple(regions)


def test_lines_of_a_phase_that_holds_backward_too_say_nothing_of_its_operators() -> None:
    """Samples stand at `loss.backward()`, and operators have the lines of their forward."""
    rows = (*PRODUCTS, product("mm", 1.505, line="net.py:1", part="backward"))
    regions = [replace(region, slot="forward") for region in laid(*rows, forward=6).values()]

    assert as_sampled(regions, seen_at("net.py:2", 0.9), 9e-3) == tuple(regions)


def test_where_others_use_the_cpus_all_of_a_phase_takes_longer() -> None:
    """Three times as long: work and Python alike."""
    alone, slowed = (
        laid(*PRODUCTS, SMALL, forward=4),
        laid(*PRODUCTS, SMALL, forward=12, slowed=3.0),
    )

    for line, row in alone.items():
        assert slowed[line].run_s == pytest.approx(3 * row.run_s)
        assert slowed[line].python_s == pytest.approx(3 * row.python_s)


def test_each_phase_is_divided_among_its_own_operators() -> None:
    """What is computed again belongs to backward."""
    parts = ("forward", "recompute", "backward", "optimizer")
    rows = laid(
        *(product("mm", 5.005, part=part, line=part) for part in parts),
        forward=5,
        backward=10,
        optimizer=5,
    )

    assert {line: row.slot for line, row in rows.items()} == {
        "forward": "forward",
        "recompute": "backward",
        "backward": "backward",
        "optimizer": "optimizer",
    }
    assert [ms(rows[part]) for part in parts] == pytest.approx([5, 5, 5, 5])


def test_a_loop_without_brackets_shares_out_all_of_its_time() -> None:
    """Forward, backward and update are all in one slot."""
    rows = laid(
        product("mm", 20.005, line="a"),
        product("mm", 30.005, part="backward", line="b"),
        use("_fused_adamw_", 10.005, part="optimizer", line="c"),
        other=60,
    )

    assert {row.slot for row in rows.values()} == {"forward"}
    assert [ms(rows[line]) for line in "abc"] == pytest.approx([20, 30, 10], rel=0.01)


def test_the_roofline_of_a_row_is_no_longer_than_the_row() -> None:
    """A chip that was measured while it was busy would say so."""
    slow = product("mm", 1.005, flops=5 * 10**9, line="a")

    row = laid(slow, forward=1)["a"]

    assert row.ideal_s == row.seconds
    assert row.compute_s == row.run_s


def test_what_runs_elsewhere_is_no_part_of_the_computing() -> None:
    """Copies over the link, and the host next to a device."""
    rows = laid(*PRODUCTS, use("_to_copy", 1.0, place="link", line="away"), forward=4)

    assert "away" not in rows


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["forward", "backward", "recompute", "optimizer"]),
        st.integers(1, 500),
        st.floats(1e-4, 50.0),
        st.floats(0.0, 50.0),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(rows=ROWS, phases=st.tuples(*[st.floats(0.0, 100.0)] * 4), slowed=st.floats(1.0, 2.0))
def test_no_phase_is_given_more_than_it_takes(
    rows: list[tuple[str, int, float, float]],
    phases: tuple[float, float, float, float],
    slowed: float,
) -> None:
    """Whatever the audit timed, and whatever the steady steps take."""
    uses = [
        use("mul", busy, part=part, calls=calls, before_s=before / 1e3, line=str(place))
        for place, (part, calls, busy, before) in enumerate(rows)
    ]
    spent = dict(zip(("forward", "backward", "optimizer", "other"), phases, strict=True))

    made = laid(*uses, slowed=slowed, **spent)

    loop_s = pooled(tuple(made.values()), {slot: each / 1e3 for slot, each in spent.items()})
    for slot, spent_s in loop_s.items():
        own = [row for row in made.values() if row.slot == slot]
        assert sum(row.seconds for row in own) <= 1.001 * spent_s + 1e-12
        assert all(row.run_s >= 0 and row.python_s >= 0 for row in own)
        assert all(row.ideal_s <= row.seconds + 1e-12 for row in own)
    assert sum(loop_s.values()) <= 1.001 * sum(phases) / 1e3 + 1e-12


# -- devices ------------------------------------

COPY = use("clone", kind="copy", memory_bytes=100 * 10**6, line="copy")
PRODUCT = product("addmm", flops=10**10, line="product")
"""Ten milliseconds each on the planted chip."""


def on_gpu(work_ms: float = 60, **traced_ms: float) -> tuple[dict[str, Region], str]:
    """Both operators, in so many milliseconds of computing."""
    made = roofline(make_audit(COPY, PRODUCT, device="cuda"), CHIP)
    traced_s = {name: took_ms / 1e3 for name, took_ms in traced_ms.items()}
    regions, basis = on_device(made.own, work_ms / 1e3, traced_s)
    return {region.use.line or "": region for region in regions}, basis


@pytest.mark.parametrize(
    ("traced_ms", "basis", "expected_ms"),
    [
        # The work is shared out by the floors, and said to be a model.
        ({}, "modelled", (30, 30)),
        # Whatever the floors say.
        ({"copy_": 5, "addmm": 40}, "traced", (5, 40)),
        # It lists the longest: what it does not takes less.
        ({"addmm": 4}, "traced", (4, 4)),
    ],
)
def test_a_trace_has_the_times_of_a_device(
    traced_ms: dict[str, float], basis: str, expected_ms: tuple[float, float]
) -> None:
    """Of what it lists."""
    rows, found = on_gpu(**traced_ms)

    assert found == basis
    assert tuple(ms(rows[line]) for line in ("copy", "product")) == pytest.approx(expected_ms)
