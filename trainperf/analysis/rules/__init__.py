"""The family of rules over a run, in folders by subject, and the ranking of what they find.

To add a rule: a file that defines a function of its own name, and a line in `RULES`.  Its limits
are constants of that file; what trace time shows its finding it may say as `TRACE_TIME`, and the
phase or gap whose sampled line is its `where` as `SAMPLED`.
"""

import sys
from dataclasses import replace
from types import ModuleType

import msgspec

from trainperf.analysis.rules.base import (
    Evidence,
    Rule,
    TraceTime,
    steps_fraction,
)
from trainperf.analysis.rules.fit.noisy_run import is_noisy
from trainperf.analysis.rules.gains import gain_table, with_expected_gain
from trainperf.analysis.rules.measured import with_measured_gain
from trainperf.analysis.rules.training.measured_change import measured_change
from trainperf.analysis.run.trial_offers import trials_of_finding
from trainperf.analysis.summary.schema import Summary
from trainperf.core.families import each
from trainperf.core.findings import Finding, Level, findings_of, ranked
from trainperf.core.formatting.units import share
from trainperf.core.phases import Gap, Phase


RULES: tuple[Rule, ...] = tuple(
    each(
        __name__,
        (
            "memory.out_of_memory",
            "inference.train_mode",
            "inference.dropout_left_on",
            "training.zero_grad",
            "memory.graph_held",
            "memory.leak",
            "fit.no_steady_state",
            "host.oversubscription",
            "input.data_wait",
            "input.many_small_tensors",
            "input.epoch_start",
            "input.transfer",
            "host.callbacks",
            "host.loop",
            "host.unnamed_time",
            "machine.device_throttled",
            "machine.device_shared",
            "machine.host_shared",
            "machine.host_pressure",
            "distributed.straggler",
            "distributed.no_sync",
            "distributed.allreduce_tail",
            "distributed.data_parallel",
            "training.scheduler_per_micro_batch",
            "compiler.recompiles",
            "compiler.compile_latency",
            "compiler.graph_breaks",
            "compiler.not_compiled",
            "host.hidden_syncs",
            "host.metrics_every_batch",
            "host.host_code",
            "host.python_in_step",
            "host.logging",
            "host.debug_modes",
            "host.host_bound",
            "host.launch_bound",
            "host.small_micro_batches",
            "operators.elementwise_chain",
            "operators.attention",
            "operators.matmul_precision",
            "operators.matmul_shapes",
            "operators.layout_copies",
            "operators.channels_last",
            "operators.autocast_casts",
            "operators.constant_rebuilt",
            "operators.optimizer_not_fused",
            "operators.half_sensitive",
            "inference.gradients_on",
            "input.padding",
            "training.overflow",
            "training.validation_grad",
            "training.measured_change",
            "fit.validation",
            "fit.checkpoint",
            "fit.slow_steps",
            "fit.slower_since",
            "fit.slow_drift",
            "fit.growing_pauses",
            "memory.recompute",
            "memory.alloc_retries",
            "memory.memory_limit",
            "memory.fragmentation",
            "host.garbage",
            "compiler.first_step",
            "fit.slow_after_capture",
            "fit.noisy_run",
            "host.own_cost",
            "input.data_hidden",
        ),
    )
)
"""In the order in which findings that rank alike are shown."""

__all__ = ["RULES", "Rule", "diagnose", "trace_time"]


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    """The findings of all rules, ranked.

    In a noisy run all shares of a steady step are less certain.
    """
    summary = evidence.summary
    findings = tuple(
        with_expected_gain(finding, summary, gain_table())
        for finding in findings_of(
            (rule for rule in RULES if rule is not measured_change), evidence
        )
    )
    if is_noisy(summary):
        findings = tuple(map(_less_certain, findings))
    findings = tuple(_located(_with_offers(finding), summary) for finding in findings)
    findings = _with_trials(findings, evidence)
    return ranked(findings, steps_fraction(summary))


def _with_trials(findings: tuple[Finding, ...], evidence: Evidence) -> tuple[Finding, ...]:
    """With what was measured of their changes, and a finding for a change that none advises."""
    documents = evidence.documents
    if documents.trials is None:
        return findings
    others = msgspec.structs.replace(evidence.summary, findings=findings)
    further = measured_change(replace(evidence, summary=others))
    trials = documents.trials.trials
    measured = (with_measured_gain(each, trials, documents.trials_from) for each in findings)
    return (*measured, *(() if further is None else (further,)))


def _with_offers(finding: Finding) -> Finding:
    """With the trials that would measure its change."""
    return msgspec.structs.replace(finding, trials=trials_of_finding(finding.id))


def _less_certain(finding: Finding) -> Finding:
    if finding.fraction is None or finding.scope == "fit":
        return finding
    confidence: Level = "medium" if finding.confidence == "high" else "low"
    return msgspec.structs.replace(finding, confidence=confidence)


def _located(finding: Finding, summary: Summary) -> Finding:
    """With the line that was seen most in the phase it is about, where it names none."""
    slot: Phase | Gap | None = getattr(_module(finding), "SAMPLED", None)
    if slot is None or finding.where:
        return finding
    line = summary.owner(slot.label)
    # With workers the main process only waits there, at the line of the loop itself.
    if line is None or (slot is Phase.DATA_WAIT and summary.run.config.get("num_workers") != 0):
        return finding
    samples = f"{line.name}: {share(line.fraction)} of {slot.label} in {line.samples} samples"
    return msgspec.structs.replace(finding, where=line.where, evidence=(*finding.evidence, samples))


def trace_time(finding: Finding) -> TraceTime | None:
    """The time of a trace that shows what *finding* is about; `None` where a trace cannot tell."""
    return getattr(_module(finding), "TRACE_TIME", None)


def _module(finding: Finding) -> ModuleType:
    name = next((rule.__module__ for rule in RULES if rule.__name__ == finding.id), __name__)
    return sys.modules[name]
