"""Built-in trials: what each does, which causes it is about, and whether it applied to a run.

Which trial measures which change is said once, in the catalogue of changes; a ceiling takes a cause
away as a whole and names it here.  Whether a trial applies it says itself, once the training runs:
what was tried in a run tells.
"""

from collections.abc import Sequence

import msgspec

from trainperf.analysis.diagnosis.changes import CHANGES
from trainperf.core.artifacts.trials import TrialKind, TrialResult, Trials


class OfferedTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A built-in trial, or a family of them whose names begin alike, and what a run says of it."""

    id: str
    """Name for `--only` and `--without`; in capitals what each member of the family has there."""
    kind: TrialKind
    does: str
    applies: bool | None
    """`None` where it was not tried in that run, or no run was named."""
    why_not: str = ""
    rules: tuple[str, ...] = ()
    """Causes whose change it is, or whose bound it measures."""

    def covers(self, trial: str) -> bool:
        """Whether a trial of that name is this, or one of the family."""
        stem = self.id.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        return trial == self.id if stem == self.id else trial.startswith(stem.rstrip("_"))


def _trial(name: str, kind: TrialKind, does: str, *ceiling_of: str) -> OfferedTrial:
    """One, by the catalogue and by the causes that it takes away as a whole."""
    causes = [cause for change in CHANGES if name in change.trials for cause in change.of]
    rules = tuple(dict.fromkeys([*causes, *ceiling_of]))
    return OfferedTrial(id=name, kind=kind, does=does, applies=None, rules=rules)


OFFERS = (
    _trial("autocast_bf16", "change", "AMP in bf16, where it computes in fp32"),
    _trial(
        "matmul_precision",
        "change",
        "fp32 products in TF32 on a GPU, in bf16 on a CPU that has it",
    ),
    _trial("attention_sdpa", "change", "fused attention in models of Hugging Face"),
    _trial("attention_cudnn", "change", "cuDNN's attention kernels first"),
    _trial("optimizer_fused", "change", "the optimizer's update as one kernel"),
    _trial("optimizer_foreach", "change", "the update of many parameters at a time"),
    _trial("channels_last", "change", "2-D convolutions with their channels last"),
    _trial(
        "cudnn_benchmark",
        "change",
        "cuDNN's search for the fastest convolution, on or off",
    ),
    _trial("trimmed_batches", "change", "batches cut to their longest row"),
    _trial("sorted_batches", "change", "batches of neighbours in length, each cut"),
    _trial("packed_batches", "change", "nothing: packing is tried by hand, with trainperf prove"),
    _trial("logging_interval", "change", "values logged every 50 steps"),
    _trial("workers_N", "change", "other numbers of loader workers, also with fewer threads"),
    _trial("no_checkpointing", "change", "activations kept in place of computed twice"),
    _trial("compile", "change", "torch.compile, its first step apart"),
    _trial("free_loader", "ceiling", "batches from memory", "data_wait"),
    _trial("no_update", "ceiling", "the optimizer has nothing to update", "optimizer_not_fused"),
    _trial("no_logging", "ceiling", "all loggers and self.log silent", "logging", "loop"),
    _trial("no_logger_NAME", "ceiling", "one of several loggers silent", "logging", "loop"),
    _trial("no_callback_NAME", "ceiling", "a callback silent, each in turn", "callbacks"),
    _trial(
        "no_reduction",
        "ceiling",
        "each rank keeps its own gradients",
        "allreduce_tail",
        "no_sync",
        "straggler",
    ),
    _trial("no_transfer", "ceiling", "batches that are on the device already", "transfer"),
)
"""In the order of their list: changes, then ceilings."""


def trials_of_finding(name: str) -> tuple[str, ...]:
    """Built-in trials of a finding's change, or of its bound."""
    return tuple(offer.id for offer in OFFERS if name in offer.rules)


def selects(names: Sequence[str], trial: str) -> bool:
    """Whether `--only` or `--without` name a trial, by its own name or that of its family."""
    return trial in names or any(offer.covers(trial) for offer in OFFERS if offer.id in names)


def offered_trials(trials: Trials | None) -> tuple[OfferedTrial, ...]:
    """All built-in trials, and whether each applied to a run, by what was tried in it."""
    results = () if trials is None else trials.trials
    return tuple(_offered(offer, results) for offer in OFFERS)


def _offered(offer: OfferedTrial, results: tuple[TrialResult, ...]) -> OfferedTrial:
    own = [result for result in results if offer.covers(result.id)]
    reasons = [result.reason for result in own if result.verdict == "not applicable"]
    absent = own and len(reasons) == len(own)
    return msgspec.structs.replace(
        offer, applies=not absent if own else None, why_not=reasons[0] if absent else ""
    )
