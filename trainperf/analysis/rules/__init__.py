"""The diagnoses.  To add one: a file here and a line in `RULES`."""

import msgspec

from trainperf.analysis.evidence import Evidence
from trainperf.analysis.rules.base import Rule, all_steps_s, own_fit_s
from trainperf.analysis.rules.compiler.compile_latency import compile_latency
from trainperf.analysis.rules.compiler.first_step import first_step
from trainperf.analysis.rules.compiler.graph_breaks import graph_breaks
from trainperf.analysis.rules.compiler.recompiles import recompiles
from trainperf.analysis.rules.distributed.allreduce_tail import allreduce_tail
from trainperf.analysis.rules.distributed.data_parallel import data_parallel
from trainperf.analysis.rules.distributed.no_sync import no_sync
from trainperf.analysis.rules.distributed.straggler import straggler
from trainperf.analysis.rules.fit.checkpoint import checkpoint
from trainperf.analysis.rules.fit.no_steady_state import no_steady_state
from trainperf.analysis.rules.fit.noisy_run import noisy_run
from trainperf.analysis.rules.fit.slow_after_capture import slow_after_capture
from trainperf.analysis.rules.fit.validation import validation
from trainperf.analysis.rules.host.callbacks import callbacks
from trainperf.analysis.rules.host.debug_modes import debug_modes
from trainperf.analysis.rules.host.garbage import garbage
from trainperf.analysis.rules.host.hidden_syncs import hidden_syncs
from trainperf.analysis.rules.host.host_bound import host_bound
from trainperf.analysis.rules.host.host_code import host_code
from trainperf.analysis.rules.host.launch_bound import launch_bound
from trainperf.analysis.rules.host.logging import logging
from trainperf.analysis.rules.host.loop import loop
from trainperf.analysis.rules.host.metrics_every_batch import metrics_every_batch
from trainperf.analysis.rules.host.own_cost import own_cost
from trainperf.analysis.rules.input.data_hidden import data_hidden
from trainperf.analysis.rules.input.data_wait import data_wait
from trainperf.analysis.rules.input.epoch_start import epoch_start
from trainperf.analysis.rules.input.many_small_tensors import many_small_tensors
from trainperf.analysis.rules.input.padding import padding
from trainperf.analysis.rules.input.transfer import transfer
from trainperf.analysis.rules.memory.fragmentation import fragmentation
from trainperf.analysis.rules.memory.graph_held import graph_held
from trainperf.analysis.rules.memory.leak import leak
from trainperf.analysis.rules.memory.memory_limit import memory_limit
from trainperf.analysis.rules.memory.out_of_memory import out_of_memory
from trainperf.analysis.rules.operators.attention import attention
from trainperf.analysis.rules.operators.autocast_casts import autocast_casts
from trainperf.analysis.rules.operators.channels_last import channels_last
from trainperf.analysis.rules.operators.constant_rebuilt import constant_rebuilt
from trainperf.analysis.rules.operators.elementwise_chain import elementwise_chain
from trainperf.analysis.rules.operators.half_sensitive import half_sensitive
from trainperf.analysis.rules.operators.layout_copies import layout_copies
from trainperf.analysis.rules.operators.matmul_precision import matmul_precision
from trainperf.analysis.rules.operators.matmul_shapes import matmul_shapes
from trainperf.analysis.rules.operators.optimizer_not_fused import optimizer_not_fused
from trainperf.analysis.rules.training.overflow import overflow
from trainperf.analysis.rules.training.scheduler_per_micro_batch import scheduler_per_micro_batch
from trainperf.analysis.rules.training.validation_grad import validation_grad
from trainperf.analysis.rules.training.zero_grad import zero_grad
from trainperf.core.findings import Finding, Level, findings_of, ranked


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

__all__ = ["RULES", "Rule", "diagnose"]


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    """The findings of all rules, ranked.

    In a noisy run all shares of a steady step are less certain.
    """
    summary, findings = evidence.summary, findings_of(RULES, evidence)
    if any(finding.id == noisy_run.__name__ for finding in findings):
        findings = tuple(map(_less_certain, findings))
    fit_s = own_fit_s(summary)
    return ranked(findings, all_steps_s(summary) / fit_s if fit_s else 0.0)


def _less_certain(finding: Finding) -> Finding:
    if finding.fraction is None or finding.scope == "fit":
        return finding
    confidence: Level = "medium" if finding.confidence == "high" else "low"
    return msgspec.structs.replace(finding, confidence=confidence)
