"""The diagnoses.  To add one: a file here and a line in `RULES`."""

import msgspec

from trainperf.evidence import Evidence
from trainperf.results import Finding, Level
from trainperf.rules.allreduce_tail import allreduce_tail
from trainperf.rules.attention import attention
from trainperf.rules.autocast_casts import autocast_casts
from trainperf.rules.base import LIMITS, Rule, Thresholds, all_steps_s, own_fit_s
from trainperf.rules.callbacks import callbacks
from trainperf.rules.channels_last import channels_last
from trainperf.rules.checkpoint import checkpoint
from trainperf.rules.compile_latency import compile_latency
from trainperf.rules.constant_rebuilt import constant_rebuilt
from trainperf.rules.data_hidden import data_hidden
from trainperf.rules.data_parallel import data_parallel
from trainperf.rules.data_wait import data_wait
from trainperf.rules.debug_modes import debug_modes
from trainperf.rules.elementwise_chain import elementwise_chain
from trainperf.rules.epoch_start import epoch_start
from trainperf.rules.first_step import first_step
from trainperf.rules.fragmentation import fragmentation
from trainperf.rules.garbage import garbage
from trainperf.rules.graph_breaks import graph_breaks
from trainperf.rules.graph_held import graph_held
from trainperf.rules.half_sensitive import half_sensitive
from trainperf.rules.hidden_syncs import hidden_syncs
from trainperf.rules.host_bound import host_bound
from trainperf.rules.host_code import host_code
from trainperf.rules.launch_bound import launch_bound
from trainperf.rules.layout_copies import layout_copies
from trainperf.rules.leak import leak
from trainperf.rules.logging import logging
from trainperf.rules.loop import loop
from trainperf.rules.many_small_tensors import many_small_tensors
from trainperf.rules.matmul_precision import matmul_precision
from trainperf.rules.matmul_shapes import matmul_shapes
from trainperf.rules.memory_limit import memory_limit
from trainperf.rules.metrics_every_batch import metrics_every_batch
from trainperf.rules.no_steady_state import no_steady_state
from trainperf.rules.no_sync import no_sync
from trainperf.rules.noisy_run import noisy_run
from trainperf.rules.optimizer_not_fused import optimizer_not_fused
from trainperf.rules.out_of_memory import out_of_memory
from trainperf.rules.overflow import overflow
from trainperf.rules.own_cost import own_cost
from trainperf.rules.padding import padding
from trainperf.rules.recompiles import recompiles
from trainperf.rules.scheduler_per_micro_batch import scheduler_per_micro_batch
from trainperf.rules.slow_after_capture import slow_after_capture
from trainperf.rules.straggler import straggler
from trainperf.rules.transfer import transfer
from trainperf.rules.validation import validation
from trainperf.rules.validation_grad import validation_grad
from trainperf.rules.zero_grad import zero_grad


RULES: tuple[Rule, ...] = (
    out_of_memory,
    zero_grad,
    graph_held,
    leak,
    no_steady_state,
    data_wait,
    many_small_tensors,
    epoch_start,
    transfer,
    callbacks,
    loop,
    straggler,
    no_sync,
    allreduce_tail,
    data_parallel,
    scheduler_per_micro_batch,
    recompiles,
    compile_latency,
    graph_breaks,
    hidden_syncs,
    metrics_every_batch,
    host_code,
    logging,
    debug_modes,
    host_bound,
    launch_bound,
    elementwise_chain,
    attention,
    matmul_precision,
    matmul_shapes,
    layout_copies,
    channels_last,
    autocast_casts,
    constant_rebuilt,
    optimizer_not_fused,
    half_sensitive,
    padding,
    overflow,
    validation_grad,
    validation,
    checkpoint,
    memory_limit,
    fragmentation,
    garbage,
    first_step,
    slow_after_capture,
    noisy_run,
    own_cost,
    data_hidden,
)

__all__ = ["LIMITS", "RULES", "Rule", "Thresholds", "diagnose"]


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    """What all rules find: what is urgent, then the largest predicted gain first.

    Gains are compared as shares of the whole fit.  A finding without a bound comes after those that
    gain a tenth of their scope, and before those that gain less; one of low severity comes last.
    In a noisy run all shares of a steady step are less sure.
    """
    summary = evidence.summary
    found = [finding for rule in RULES if (finding := rule(evidence)) is not None]
    if any(finding.id == noisy_run.__name__ for finding in found):
        found = [_less_sure(finding) for finding in found]
    steps = all_steps_s(summary) / own_fit_s(summary) if own_fit_s(summary) else 0.0
    return tuple(sorted(found, key=lambda one: (not one.urgent, *_rank(one, steps))))


def _rank(finding: Finding, steps: float) -> tuple[int, float]:
    """A class, and the place in it: smaller is earlier."""
    if finding.fraction is None:
        return (3, 0.0) if finding.severity == "low" else (1, float(finding.severity != "high"))
    of_fit = finding.fraction if finding.scope == "fit" else finding.fraction * steps
    return (0 if finding.fraction >= LIMITS.notable else 2, -of_fit)


def _less_sure(finding: Finding) -> Finding:
    if finding.fraction is None or finding.scope == "fit":
        return finding
    confidence: Level = "medium" if finding.confidence == "high" else "low"
    return msgspec.structs.replace(finding, confidence=confidence)
