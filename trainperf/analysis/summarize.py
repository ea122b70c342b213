"""Summary of a run: readings, ledger, ranks and findings, from one pass over its directory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.findings import diagnose
from trainperf.analysis.diagnosis.of_capture import diagnosed as diagnosed_capture
from trainperf.analysis.diagnosis.of_run import account_of, light_of
from trainperf.analysis.diagnosis.regions import spent_on
from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.breakdown import with_time_split
from trainperf.analysis.summary.captures import disagreements, traces
from trainperf.analysis.summary.host_share import host_of, host_share
from trainperf.analysis.summary.lines import (
    SampledCode,
    before_fit,
    slow_steps,
    up_to_steady,
)
from trainperf.analysis.summary.long_term import long_term
from trainperf.analysis.summary.run_facts import restarts, run_facts, warnings_of
from trainperf.analysis.summary.run_folds import RunFolds, StepObserver
from trainperf.analysis.summary.schema import RunFacts, Summary
from trainperf.analysis.summary.standstill import hang_of
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.artifacts.folder import Documents, read_documents
from trainperf.core.artifacts.lines import SampledLines
from trainperf.core.groups import grouped, summed
from trainperf.core.loop_kind import loop_of
from trainperf.core.paths import AnyPath
from trainperf.core.phases import DISQUALIFYING, TAGS
from trainperf.core.readings import STEP_MEAN_S, STEP_S
from trainperf.core.run_directory import SUMMARY, write_atomically
from trainperf.core.steps.own_sums import answer_facts, named_phases
from trainperf.meters.utilisation import typical_audit
from trainperf.traces.capture_files import CaptureReport, read_all


def summarize(run: Run, *, now_s: float | None = None) -> Summary:
    """The summary of `examine`, findings included."""
    return examine(run, now_s=now_s).summary


def examine(
    run: Run,
    *,
    now_s: float | None = None,
    replay: Replay | None = None,
    observers: Sequence[StepObserver] = (),
    documents: Documents | None = None,
    captures: Sequence[CaptureReport] | None = None,
) -> Facts:
    """Read a run in constant memory: its summary, and all that findings are based on.

    Args:
        run: The opened run directory.
        now_s: Seconds since 1970, to tell a running fit from a killed one by the last write;
            without it only one whose process is seen to be gone counts as killed.
        replay: The pass itself, for observers that need its journals; a new one by default.
        observers: Called with every step.
        documents: In place of those in its directory.
        captures: What its traces say; those are read by default.
    """
    documents = documents or read_documents(run.path)
    traced = tuple(read_all(run.path)) if captures is None else captures
    folds = RunFolds(replay or Replay(run), documents, traced)
    folds.read(observers)
    return _diagnosed(folds, _summary_of(folds, now_s=now_s))


def _diagnosed(folds: RunFolds, summary: Summary) -> Facts:
    """The summary with its time split and findings, and all that these are based on.

    Args:
        folds: Fed with the steps.
        summary: What `_summary_of` makes of them.
    """
    documents = folds.documents
    usual = typical_audit(folds.steps, documents)
    resized = usual if isinstance(usual, StepAudit) else None
    step_s = None if resized is None else summary.value(STEP_S)
    captures = tuple(diagnosed_capture(each, summary.run.loop) for each in folds.traced)
    facts = Facts(
        summary=summary,
        documents=documents,
        light=light_of(documents, step_s),
        typical=light_of(replace(documents, audit=resized), step_s),
        captures=captures,
        traces=tuple(rank for capture in captures for rank in capture.ranks),
    )
    account = account_of(facts)
    findings, ordinary = diagnose(account, facts)
    divided = with_time_split(
        summary,
        documents.audit,
        facts.light,
        captures,
        typical=facts.typical,
        spent_s=spent_on(
            account.regions,
            None if facts.light is None else facts.light.chip,
            on_host=account.device is None,
        ),
    )
    summary = msgspec.structs.replace(
        divided,
        trials=documents.trials,
        findings=findings,
        ordinary=ordinary,
    )
    return replace(facts, summary=summary)


def save_summary(summary: Summary, run: AnyPath) -> None:
    """Write `summary.json` into the directory *run*, indented for people, whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    indented = msgspec.json.format(msgspec.json.encode(summary), indent=2)
    write_atomically(run / SUMMARY, indented + b"\n")


def _with_start(facts: RunFacts, folds: RunFolds, lines: SampledLines | None) -> RunFacts:
    """What is known of a run, with the ledger of what came before its steady steps."""
    before_s = before_fit(lines)
    if lines is None or not before_s:
        return facts
    prepared_s = [file.info.prepared_s for file in folds.run.attempts[-1]]
    return msgspec.structs.replace(
        facts,
        before_s=before_s,
        seen_from=lines.seen_from,
        first_s=up_to_steady(
            folds.steps.rows(),
            folds.replay.journals[folds.run.ranks[0]].ledger_s(),
            folds.documents.compilation,
            outside=facts.loop.outside,
        ),
        prepared_ranks=sum(2 * each >= max(prepared_s) for each in prepared_s),
    )


def _summary_of(folds: RunFolds, *, now_s: float | None) -> Summary:
    """Everything but the time split, the trials and the findings."""
    run, replay, documents = folds.run, folds.replay, folds.documents
    first = replay.journals[run.ranks[0]]
    all_readings = folds.readings()
    facts = run_facts(run, replay, folds.longest, all_readings[STEP_MEAN_S].value, now_s=now_s)
    traced = traces(folds.steps, folds.traced, run.ranks, restarted=len(run.attempts) > 1)
    # Samples of a later attempt are numbered by its own steps.
    lines = documents.lines if len(run.attempts) == 1 else None
    apart = loop_of(run.info.config).data_wait_is_bound
    code = SampledCode(lines, apart=apart) if lines else None
    if facts.state != "running" and not facts.window:
        facts = _with_start(facts, folds, lines)
    hang = hang_of(replay, documents.standstills, now_s)
    if hang is not None and not hang.over and facts.state == "killed":  # it writes of itself
        facts = msgspec.structs.replace(facts, state="running", ended_otherwise=())
    own_sums = _summed(replay, "own")
    # Means over the steady steps of what has no column.
    steps = own_sums.pop("steps", 0)
    own = {name: number / steps for name, number in own_sums.items() if steps}
    return Summary(
        run=facts,
        hang=hang,
        readings=all_readings,
        ledger_s=first.ledger_s(),
        gaps={gap: len(pauses) for gap, pauses in first.pauses.items()},
        excluded={tag.label: n for tag in TAGS if (n := folds.excluded[tag.label])},
        # Hosts of the latest attempt.
        synchronisation=folds.lateness.points(
            {file.rank: host_of(file.info) for files in run.attempts for file in files}
        ),
        traces=traced,
        sequence_lengths=dict(sorted(_summed(replay, "sequence_lengths").items())),
        longest_tokens=sum(each.totals.longest_tokens for each in replay.journals.values()),
        actions_s=_slowest_s(replay, "actions_ns"),
        threads_s=_slowest_s(replay, "threads_ns"),
        named_phases=named_phases(own),
        answers=answer_facts(own),
        memory=documents.memory,
        compilation=documents.compilation,
        host=host_share(
            [file.info for file in run.attempts[-1]],
            [journal.totals.contention for journal in replay.journals.values()],
        ),
        lines=code.phases(folds.steps.numbers(DISQUALIFYING)) if code else (),
        collects=code.collecting(folds.steps.numbers()) if code else (),
        slow_steps=slow_steps(folds.steps, code),
        long_term=long_term(dict(zip(run.ranks, folds.levels.levels(), strict=False))),
        restarts=restarts(run, first),
        machine=folds.machine.facts(),
        warnings=(
            *warnings_of(run, replay, facts),
            *folds.machine.problems,
            *disagreements(traced),
            *documents.problems.values(),
        ),
    )


def _summed(replay: Replay, counts: str) -> dict[Any, int]:
    """What the ranks have counted together, by its name; *counts* is a field of `Totals`."""
    of_ranks = (getattr(journal.totals, counts) for journal in replay.journals.values())
    return summed(pair for rank in of_ranks for pair in rank.items())


def _slowest_s(replay: Replay, spent: str) -> dict[str, float]:
    """Seconds of each hook or thread per step, on the rank where they are most, longest first.

    Args:
        replay: Read to its end.
        spent: Field of `Totals`: a name to nanoseconds.
    """
    of_ranks = grouped(
        (name, spent_ns / 1e9 / max(1, journal.steps))
        for journal in replay.journals.values()
        for name, spent_ns in getattr(journal.totals, spent).items()
    )
    slowest = {name: max(per_step_s) for name, per_step_s in of_ranks.items()}
    return dict(sorted(slowest.items(), key=lambda item: -item[1]))
