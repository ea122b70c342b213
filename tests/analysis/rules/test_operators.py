"""The rules on the operators of an audited step: planted operators, exact bounds, abstention."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.audits import CHIP, SMALL, capture_of, evidence_of, product, use

from trainperf.analysis.rules import Rule
from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.host.host_bound import host_bound
from trainperf.analysis.rules.host.launch_bound import launch_bound
from trainperf.analysis.rules.operators.attention import attention
from trainperf.analysis.rules.operators.autocast_casts import autocast_casts
from trainperf.analysis.rules.operators.base import audited
from trainperf.analysis.rules.operators.constant_rebuilt import constant_rebuilt
from trainperf.analysis.rules.operators.elementwise_chain import elementwise_chain
from trainperf.analysis.rules.operators.half_sensitive import half_sensitive
from trainperf.analysis.rules.operators.layout_copies import layout_copies
from trainperf.analysis.rules.operators.optimizer_not_fused import optimizer_not_fused
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.findings import Finding
from trainperf.core.steps.records import Scalar


MB = 10**6

BACKWARD = product("mm", 30.0, part="backward", line="net.py:9")
UPDATE = use("_fused_adamw_", 10.0, part="optimizer", line="fit.py:3")


def found(rule: Rule, evidence: Evidence) -> Finding:
    """The finding that must be there."""
    finding = rule(evidence)
    assert finding is not None
    return finding


def step(path: Path, *uses: OperatorUse) -> Evidence:
    """60 ms on a CPU: some operators in forward, 30 ms of products, 10 ms of fused update."""
    rest_s = 0.020 - sum(one.host_s for one in uses if one.part == "forward")
    rest = product("addmm", rest_s * 1e3, line="net.py:5")
    return evidence_of(path, [*uses, rest, BACKWARD, UPDATE])


# -- what all of them stand on ----------------------------------------------------------------


def test_an_operator_takes_its_share_of_its_phase(tmp_path: Path) -> None:
    """Ten of twenty milliseconds under the audit are half of a phase of 30 ms."""
    half = use("mul", 10.0)
    other = product("addmm", 9.995)
    evidence = evidence_of(
        tmp_path, [half, other, BACKWARD, UPDATE], forward=30.0, backward=30.0, optimizer=10.0
    )

    known = audited(evidence)
    assert known is not None
    times = {row.use.name: row.time_s for row in known.operators}
    assert times[half.name] == pytest.approx(15e-3, rel=0.01)
    assert known.basis == "measured"


def test_python_between_the_operators_is_not_theirs(tmp_path: Path) -> None:
    """A forward of 20 ms that computes for one: each call gets some launches' time besides."""
    half = use("mul", 0.995)
    evidence = evidence_of(
        tmp_path, [half, BACKWARD, UPDATE], forward=20.0, backward=30.0, optimizer=10.0
    )

    known = audited(evidence)
    assert known is not None
    times = {row.use.name: row.time_s for row in known.operators}
    assert times[half.name] == pytest.approx(2 * 0.995e-3 + 10 * 5e-6)


def test_a_loop_without_brackets_shares_out_all_of_its_time(tmp_path: Path) -> None:
    """Forward, backward and update are all in `other`."""
    uses = [product("addmm", 9.995), BACKWARD, UPDATE]
    evidence = evidence_of(tmp_path, uses, other=50.0)

    known = audited(evidence)
    assert known is not None
    assert {row.use.name: row.time_s for row in known.operators}[UPDATE.name] == pytest.approx(
        10e-3, rel=0.01
    )
    assert known.passes_s == pytest.approx(40e-3, rel=0.01)


def test_on_a_device_the_trace_has_the_times(tmp_path: Path) -> None:
    """Ten milliseconds of copies by the trace, whatever their floors say."""
    copy = use("clone", kind="copy", memory_bytes=MB)
    evidence = evidence_of(tmp_path, [copy], device="cuda")
    traced = capture_of({"copy_": (1, 10.0), "addmm": (1, 20.0)})

    known = audited(Evidence(**{**fields(evidence), "captures": (traced,)}))
    assert known is not None
    assert known.basis == "traced"
    times = {row.use.name: row.time_s for row in known.operators}
    assert times[copy.name] == pytest.approx(10e-3)


def test_on_a_device_without_a_trace_the_times_are_a_model_and_no_bound(tmp_path: Path) -> None:
    """Half of the floors, half of the work; said so, and with little confidence."""
    copy = use("clone", kind="copy", memory_bytes=100 * MB)
    rest = product("addmm", flops=10**10)
    evidence = evidence_of(tmp_path, [copy, rest], device="cuda")

    finding = found(layout_copies, evidence)
    assert finding.gain_upper_bound is None
    assert finding.confidence == "low"
    assert finding.fraction == pytest.approx(0.5, rel=0.01)
    assert "ScheduledProfiler" in finding.evidence[-1]


def fields(evidence: Evidence) -> dict[str, object]:
    """To make another one with."""
    return {
        "summary": evidence.summary,
        "documents": evidence.documents,
        "light": evidence.light,
        "typical": evidence.typical,
        "captures": evidence.captures,
    }


def test_an_audit_of_another_batch_size_carries_no_diagnosis(tmp_path: Path) -> None:
    """Its shares are not those of the other steps."""
    copies = use("clone", 15.0, kind="copy")
    sized = evidence_of(tmp_path / "a", [copies, BACKWARD, UPDATE], facts={"samples": 8})
    assert layout_copies(sized) is not None

    evidence = evidence_of(tmp_path / "b", [copies, BACKWARD, UPDATE])
    readings = {**evidence.summary.readings}
    readings["flops_per_s"] = type(readings["flops_per_s"])(
        value=None, unit="FLOP/s", reason="the audited step differs from the others"
    )
    unlike = msgspec.structs.replace(evidence.summary, readings=readings)
    assert layout_copies(Evidence(**{**fields(evidence), "summary": unlike})) is None


# -- copies, casts, constants -----------------------------------------------------------------


def test_layout_copies_are_named_by_line(tmp_path: Path) -> None:
    """A quarter of the step, at the line that weighs most."""
    copies = [
        use("clone", 12.0, kind="copy", line="net.py:20", calls=4),
        use("copy_", 3.0, kind="copy", line="net.py:30", dtypes=("fp32", "fp32")),
    ]

    finding = found(layout_copies, step(tmp_path, *copies))
    assert finding.fraction == pytest.approx(0.25, rel=0.01)
    assert finding.gain_upper_bound == pytest.approx(1 / 0.75, rel=0.01)
    assert finding.where == "net.py:20"
    assert "net.py:20" in finding.evidence[1]


def test_the_bound_of_a_copy_has_its_aftermath(tmp_path: Path) -> None:
    """Fifteen milliseconds, and ten megabytes through memory twice: 2 ms at 10 GB/s.

    Others have ten more megabytes in their caches without it: at most 1 ms.
    """
    copies = use("clone", 15.0, kind="copy", written_bytes=10 * MB)

    finding = found(layout_copies, step(tmp_path, copies))
    assert finding.fraction == pytest.approx(17 / 60, rel=0.01)
    assert finding.gain_upper_bound == pytest.approx(60 / (60 - 17 - 1), rel=0.01)


@pytest.mark.parametrize(
    "other",
    [
        use("clone", 5.5, kind="copy"),
        use("cat", 15.0, kind="copy"),
        use("clone", 15.0, kind="copy", constant=True),
        use("_to_copy", 15.0, kind="copy", result_dtype="bf16"),
        use("copy_", 15.0, kind="copy", dtypes=("fp32", "int64")),
    ],
)
def test_no_layout_copy(tmp_path: Path, other: OperatorUse) -> None:
    """Below a tenth of the step; or it joins, is constant, or converts."""
    assert layout_copies(step(tmp_path, other)) is None


def test_a_mask_converted_every_step_is_to_be_kept_converted(tmp_path: Path) -> None:
    """From truth values: in the dataset, or in a buffer."""
    casts = use("_to_copy", 15.0, kind="copy", dtypes=("bool",), result_dtype="fp32")

    finding = found(autocast_casts, step(tmp_path, casts))
    assert "bool to fp32" in finding.evidence[0]
    assert "register_buffer" in finding.action


def test_weights_converted_per_micro_batch_want_fewer_of_them(tmp_path: Path) -> None:
    """Four micro-batches, four casts of each weight."""
    casts = use("_to_copy", 15.0, kind="copy", calls=4, result_dtype="bf16")
    evidence = evidence_of(tmp_path, [casts, BACKWARD, UPDATE], micro_batches=4)

    assert "micro-batch" in found(autocast_casts, evidence).action


@pytest.mark.parametrize(
    ("config", "advice"),
    [({"autocast": "bfloat16"}, "Compare with fp32"), ({}, "Convert once")],
)
def test_conversions_of_autocast_are_its_price(
    tmp_path: Path, config: dict[str, Scalar], advice: str
) -> None:
    """Nobody wrote `.to(dtype)` there, and without it every product is another one: no bound."""
    casts = use("_to_copy", 15.0, kind="copy", result_dtype="bf16")
    evidence = step(tmp_path, casts)
    run = msgspec.structs.replace(evidence.summary.run, config=config)
    summary = msgspec.structs.replace(evidence.summary, run=run)

    finding = found(autocast_casts, replace(evidence, summary=summary))
    assert finding.advice == advice
    assert (finding.gain_upper_bound is None) is bool(config)


def test_casts_that_keep_the_dtype_are_none(tmp_path: Path) -> None:
    """`_to_copy` also moves and reorders."""
    same = use("_to_copy", 15.0, kind="copy", result_dtype="fp32")

    assert autocast_casts(step(tmp_path, same)) is None
    assert layout_copies(step(tmp_path / "2", same)) is not None


def test_constants_of_forward_are_to_be_made_once(tmp_path: Path) -> None:
    """Those of backward (a gradient of one) are torch's own."""
    made = use("sin", 15.0, constant=True, line="net.py:40")
    theirs = use("ones_like", 15.0, constant=True, part="backward")

    assert found(constant_rebuilt, step(tmp_path, made)).where == "net.py:40"
    assert constant_rebuilt(step(tmp_path / "2", theirs)) is None
    assert constant_rebuilt(step(tmp_path / "3", use("sin", 15.0))) is None


# -- chains and attention -----------------------------------------------------------------------


def link(ms: float, **fields_: object) -> OperatorUse:
    """One of a chain: all it moves passes on inside."""
    given = {"read_bytes": MB, "written_bytes": MB, "inner_bytes": 2 * MB, **fields_}
    return use("mul", ms, **given)


def test_a_chain_can_save_all_but_its_fused_floor(tmp_path: Path) -> None:
    """Twelve milliseconds of which fusion leaves 30 MB: 3 ms at 10 GB/s."""
    chain = link(12.0, memory_bytes=100 * MB, fused_bytes=30 * MB, calls=10)

    finding = found(elementwise_chain, step(tmp_path, chain))
    assert finding.fraction == pytest.approx(9 / 60, rel=0.01)
    assert finding.effort == "hours"


def test_a_chain_at_the_roof_is_to_be_fused_away_not_made_faster(tmp_path: Path) -> None:
    """Ten of twelve milliseconds are memory's."""
    near = link(12.0, memory_bytes=100 * MB, fused_bytes=30 * MB)
    far = link(12.0, memory_bytes=10 * MB, fused_bytes=3 * MB)

    said = [
        " ".join(found(elementwise_chain, step(tmp_path / name, chain)).evidence)
        for name, chain in (("near", near), ("far", far))
    ]
    assert ["only fusing helps" in words for words in said] == [True, False]


@pytest.mark.parametrize(
    "other",
    [
        link(5.5),
        link(12.0, inner_bytes=0),
        link(12.0, inner_bytes=MB // 4),
        link(12.0, calls=2400),
        link(12.0, part="optimizer"),
        link(12.0, constant=True),
        link(12.0, kind="reduction"),
    ],
)
def test_no_chain(tmp_path: Path, other: OperatorUse) -> None:
    """Small, alone, mostly alone, tiny, an update, constant, or not elementwise."""
    assert elementwise_chain(step(tmp_path, other)) is None


SCORES = (2, 4, 128, 128)
EAGER = (
    product("bmm", 2.0, shapes=((8, 128, 16), (8, 16, 128)), flops=10**9),
    use("mul", 3.0, shapes=(SCORES,), read_bytes=MB, written_bytes=MB, inner_bytes=MB),
    use("_softmax", 5.0, shapes=(SCORES,), kind="reduction", line="net.py:50"),
    product("bmm", 2.0, shapes=((8, 128, 128), (8, 128, 16)), flops=10**9),
)
"""Twelve milliseconds, two of which are arithmetic at the peak."""


def test_eager_attention_keeps_only_the_arithmetic_of_its_products(tmp_path: Path) -> None:
    """Two milliseconds of twelve; the line is that of the softmax."""
    finding = found(attention, step(tmp_path, *EAGER))

    assert finding.fraction == pytest.approx(10 / 60, rel=0.01)
    assert finding.where == "net.py:50"
    assert "2 × 4 × 128 × 128" in finding.evidence[0]


@pytest.mark.parametrize(
    ("softmax", "more", "advice", "code"),
    [
        ("_softmax", "where", "Use fused attention", 'attn_implementation="sdpa"'),
        ("_safe_softmax", "bernoulli_", "Attend without dropout", "attn_pdrop=0.0"),
        ("_safe_softmax", "where", "Have attention fused", "SDPBackend.FLASH_ATTENTION"),
    ],
)
def test_where_the_fused_call_is_there_and_does_not_fuse_it_is_not_advised_again(
    tmp_path: Path, softmax: str, more: str, advice: str, code: str
) -> None:
    """Nothing else calls `_safe_softmax`; on a CPU dropout is a reason."""
    eager = [
        use(softmax, 5.0, shapes=(SCORES,), kind="reduction") if i == 2 else row
        for i, row in enumerate(EAGER)
    ]
    other = use(more, 2.0, shapes=(SCORES,), read_bytes=MB, written_bytes=MB)
    finding = found(attention, step(tmp_path, *eager, other))

    assert finding.advice == advice
    assert code in finding.action


def test_what_is_done_to_scores_is_no_chain_of_its_own(tmp_path: Path) -> None:
    """Two findings for one cause would promise it twice."""
    more = use("where", 8.0, shapes=(SCORES,), read_bytes=MB, written_bytes=MB, inner_bytes=2 * MB)

    evidence = step(tmp_path, *EAGER, more)
    assert attention(evidence) is not None
    assert elementwise_chain(evidence) is None


@pytest.mark.parametrize("missing", [0, 2, 3])
def test_a_softmax_that_is_not_between_two_products_is_no_attention(
    tmp_path: Path, missing: int
) -> None:
    """The scores must be made by a product and used by one."""
    rest = [one for place, one in enumerate(EAGER) if place != missing]

    assert attention(step(tmp_path, *rest)) is None


def test_scores_of_a_few_tokens_are_too_small(tmp_path: Path) -> None:
    """Sixteen by sixteen."""
    small = (
        product("bmm", 2.0, shapes=((8, 16, 16), (8, 16, 16))),
        use("_softmax", 8.0, shapes=((2, 4, 16, 16),), kind="reduction"),
        product("bmm", 2.0, shapes=((8, 16, 16), (8, 16, 16))),
    )

    assert attention(step(tmp_path, *small)) is None


# -- updates and launches ---------------------------------------------------------------------


def updated(path: Path, *update: OperatorUse) -> Evidence:
    """60 ms on a CPU, 10 of them for an update of these operators."""
    return evidence_of(path, [product("addmm", 19.995), BACKWARD, *update])


def test_an_update_tensor_by_tensor_can_save_all_but_its_traffic(tmp_path: Path) -> None:
    """Ten milliseconds, of which 10 MB at 10 GB/s remain."""
    update = use("mul_", 10.0, part="optimizer", calls=800, fused_bytes=10 * MB)

    finding = found(optimizer_not_fused, updated(tmp_path, update))
    assert finding.fraction == pytest.approx(9 / 60, rel=0.01)
    assert "foreach=False" in finding.evidence[1]
    assert "fused=True" in finding.action


def test_an_update_of_lists_is_said_to_be_one(tmp_path: Path) -> None:
    """It is torch's default on a GPU."""
    update = use("_foreach_mul_", 10.0, part="optimizer", calls=8)

    assert "foreach)" in found(optimizer_not_fused, updated(tmp_path, update)).evidence[1]


def test_a_fused_update_is_left_alone(tmp_path: Path) -> None:
    """However long it takes; clipping beside it has no fused form."""
    clipping = use("_foreach_mul_", 4.0, part="optimizer")

    assert optimizer_not_fused(updated(tmp_path, UPDATE, clipping)) is None


def test_a_short_update_is_left_alone(tmp_path: Path) -> None:
    """Five of sixty milliseconds."""
    update = use("mul_", 5.0, part="optimizer", calls=10)
    evidence = evidence_of(tmp_path, [BACKWARD, update], forward=25.0, backward=30.0, optimizer=5.0)

    assert optimizer_not_fused(evidence) is None


TINY = use("add", 15.0, calls=1500, shapes=((4, 16),))
"""Ten microseconds each."""


def test_tiny_operators_can_save_all_of_the_passes_but_the_others(tmp_path: Path) -> None:
    """Fifty milliseconds of passes, of which thirty are large products."""
    finding = found(launch_bound, evidence_of(tmp_path, [TINY, BACKWARD, UPDATE]))

    assert finding.fraction == pytest.approx(20 / 60, rel=0.02)
    assert "1,501 tiny operators" in finding.title


@pytest.mark.parametrize(
    "other",
    [
        use("add", 15.0, calls=15, shapes=((4, 16),)),
        use("add", 15.0, calls=1500, part="optimizer"),
    ],
)
def test_few_operators_or_those_of_the_update_are_not_launch_bound(
    tmp_path: Path, other: OperatorUse
) -> None:
    """A millisecond each is no launch; an update has a rule of its own."""
    large = product("addmm", 10.0, calls=5, flops=10**9)

    assert launch_bound(evidence_of(tmp_path, [other, large, BACKWARD, UPDATE])) is None


def on_device(path: Path, lead: int) -> Evidence:
    """Many launches on a device that is so many marks behind."""
    facts: dict[str, int | float | None] = {"lead_forward": lead, "lead_backward": lead}
    return evidence_of(path, [TINY], device="cuda", facts=facts)


def test_on_a_device_the_marks_must_say_that_it_waits(tmp_path: Path) -> None:
    """A device that lags behind hides its launches."""
    waits, lags = on_device(tmp_path / "a", 0), on_device(tmp_path / "b", 9)

    assert launch_bound(waits) is not None
    assert launch_bound(lags) is None


def test_where_an_audit_says_why_the_marks_alone_are_silent(tmp_path: Path) -> None:
    """One cause, one finding."""
    evidence = on_device(tmp_path, 0)
    bare = Evidence(summary=evidence.summary)

    assert host_bound(evidence) is None
    assert host_bound(bare) is not None


# -- half precision -----------------------------------------------------------------------------


def test_a_loss_in_half_precision_is_a_matter_of_digits(tmp_path: Path) -> None:
    """No gain is promised."""
    loss = use("_log_softmax", dtypes=("bf16",), line="fit.py:8")

    finding = found(half_sensitive, step(tmp_path, loss))
    assert (finding.fraction, finding.gain_upper_bound) == (None, None)
    assert finding.title == "the loss is computed in bf16"
    assert finding.where == "fit.py:8"


def test_a_norm_in_fp16_can_overflow(tmp_path: Path) -> None:
    """In bf16 it cannot, and computes in fp32 inside."""
    norms = [use("native_layer_norm", dtypes=(kind,)) for kind in ("fp16", "bf16")]

    assert found(half_sensitive, step(tmp_path, norms[0])).severity == "low"
    assert half_sensitive(step(tmp_path / "2", norms[1])) is None


def test_in_fp32_nothing_is_said(tmp_path: Path) -> None:
    """Nor of a product in bf16."""
    uses = [use("_log_softmax", dtypes=("fp32",)), product("addmm", dtypes=("bf16",))]

    assert half_sensitive(step(tmp_path, *uses)) is None


def test_small_is_part_of_every_planted_step(tmp_path: Path) -> None:
    """What tells a launch from work under the audit."""
    known = audited(step(tmp_path))

    assert known is not None
    assert known.smallest_s == pytest.approx(SMALL.busy_s)
    assert CHIP.launch_s == pytest.approx(SMALL.busy_s)
