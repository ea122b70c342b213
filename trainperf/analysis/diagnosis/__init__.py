"""Diagnosis: why a step takes as long as it does, what to change first, and what that would gain.

One chapter, in this order: an *account* of the step in seconds (`account`, made in `of_run` and
`of_capture`, its computing in `regions`), *facts* beside it (`facts`), *detectors* that claim
seconds for *causes* (`cause`, `detectors`), *changes* that would remove them (`changes`), the *law*
that says what a change gains (`law`), *trials* that measured some (`tried`), and *findings*, which
put all that into words (`findings`).

Detectors claim in the order of `DETECTORS`: broken runs, then habits with a line of code, then
named parts, then resources, then the rest.  What one has claimed is gone from the account that the
next ones see, so each second has one owner; what nobody claims is ordinary computing, and is said
as that.

To add one: a file in `detectors` that defines a function of its own name, and a line here.
"""

from collections.abc import Iterable

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Detector
from trainperf.analysis.diagnosis.changes import BY_ID
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.choice import first_that_holds
from trainperf.core.families import load_members
from trainperf.core.findings import Ordinary


DETECTORS: tuple[Detector, ...] = tuple(
    load_members(
        f"{__name__}.detectors",
        (
            # Broken runs.
            "memory:out_of_memory",
            "broken:train_mode",
            "broken:dropout_left_on",
            "broken:zero_grad",
            "same_inputs:same_batches",
            "memory:leak",
            "memory:worker_memory",
            "broken:scheduler_per_micro_batch",
            "fit:no_steady_state",
            "fit:before_first_step",
            "fit:overflow",
            # Habits with a line.
            "ranks:straggler",
            "ranks:broadcast_buffers",
            "ranks:object_collectives",
            "fit:slow_steps",
            "loader:epoch_start",
            "host:debug_modes",
            "operators:convolution_search",
            "host:logging",
            "launches:equal_passes",
            "code:metrics_every_batch",
            "code:hidden_syncs",
            "host:device_calls",
            "code:python_in_step",
            "operators:constant_rebuilt",
            "operators:recompute",
            "padding:padding",
            "needless:ignored_targets",
            "needless:compute_once",
            "needless:computed_again",
            "needless:unheld_gradients",
            "needless:dropped_gradients",
            "needless:sparse_gradients",
            "operators:attention",
            "transfer:offloaded_update",
            "operators:optimizer_not_fused",
            "precision:autocast_casts",
            "operators:layout_copies",
            "ranks:no_sync",
            "launches:small_micro_batches",
            "launches:equal_modules",
            "launches:launch_bound",
            "operators:elementwise_chain",
            "precision:half_sensitive",
            "operators:gradients_on",
            # Named parts.
            "loader:workers_compete",
            "loader:oversubscription",
            "transfer:many_small_tensors",
            "loader:idle_workers",
            "unread:unread_fields",
            "loader:data_wait",
            "loader:data_hidden",
            "transfer:transfer",
            "host:callbacks",
            "host:loop",
            "ranks:allreduce_tail",
            "ranks:data_parallel",
            "post_training:longest_answer",
            "post_training:reward_functions",
            "post_training:weight_transfer",
            "post_training:useless_answers",
            "post_training:named_phase",
            "host:unnamed_time",
            "host:busy_thread",
            "drift:slower_since",
            "same_inputs:same_validation",
            "fit:validation",
            "fit:checkpoint",
            "fit:epoch_boundary",
            "fit:shutdown",
            "compiler:recompiles",
            "compiler:graph_breaks",
            "compiler:cuda_graphs",
            "compiler:ddp_pieces",
            "compiler:not_compiled",
            "compiler:first_step",
            "host:garbage",
            # Resources.
            "machine:idle_cores",
            "precision:matmul_precision",
            "machine:device_throttled",
            "machine:device_shared",
            "machine:host_shared",
            "machine:host_pressure",
            "machine:far_cpus",
            "memory:memory_limit",
            "memory:driver_allocations",
            # The rest.
            "fit:noisy_run",
            "host:own_cost",
        ),
    )
)
"""In the order in which they claim, which is that of findings that rank alike."""


def causes_of(account: StepAccount, facts: Facts) -> tuple[Cause, ...]:
    """All causes in the order of the detectors, each of which sees what no earlier one claims."""
    causes: list[Cause] = []
    left = account
    for detect in DETECTORS:
        cause = detect(left, facts)
        if cause is not None:
            causes.append(cause)
            left = left.without(cause.claim or Claim())
    return tuple(causes)


def ordinary(account: StepAccount, causes: Iterable[Cause], facts: Facts) -> Ordinary | None:
    """The computing that no waste claims; `None` where there are too few steady steps.

    Args:
        account: All of the step.
        causes: Of the run.  What only an option would save is ordinary: it is what the model asks
            for.
        facts: Of the run.
    """
    if not account.step_s:
        return None
    left = account
    for cause in causes:
        if cause.claim is not None and not all(BY_ID[use.change].option for use in cause.changes):
            left = left.without(cause.claim)
    computing_s = left.computing_s
    return Ordinary(
        fraction=account.share(computing_s),
        of_light=sum(region.ideal_s for region in left.regions) / computing_s
        if left.regions and computing_s
        else None,
        look=first_that_holds(
            (facts.loop.audit, not account.regions and facts.documents.audit is None),
            ("", account.device is None or facts.traces),
            (facts.loop.capture, True),
        ),
    )
