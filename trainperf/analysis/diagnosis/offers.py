"""Built-in trials: what each does, which causes it is about, and whether it applied to a run.

Which trial measures which change is said once, in the catalogue of changes; a ceiling takes a cause
away as a whole and names it here.  Whether a trial applies it says itself, once the training runs:
what was tried in a run tells.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from trainperf.analysis.diagnosis.changes import CHANGES
from trainperf.core.artifacts.trials import TrialKind, TrialResult, Trials


@dataclass(frozen=True, slots=True)
class TrialOffer:
    """One built-in trial, or a family of them whose names begin alike."""

    id: str
    """Name for `--only` and `--without`; in capitals what each member of the family has there."""
    kind: TrialKind
    does: str
    ceiling_of: tuple[str, ...] = ()
    """Causes that it takes away as a whole."""

    @property
    def rules(self) -> tuple[str, ...]:
        """Causes whose change it is, or whose bound it measures."""
        causes = [cause for change in CHANGES if self.id in change.trials for cause in change.of]
        return tuple(dict.fromkeys([*causes, *self.ceiling_of]))

    def covers(self, trial: str) -> bool:
        """Whether a trial of that name is this, or one of the family."""
        stem = self.id.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        return trial == self.id if stem == self.id else trial.startswith(stem.rstrip("_"))


class OfferedTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A built-in trial, and what a run says of it."""

    id: str
    kind: TrialKind
    does: str
    applies: bool | None
    """`None` where it was not tried in that run, or no run was named."""
    why_not: str = ""
    rules: tuple[str, ...] = ()
    """Causes whose change it is, or whose bound it measures."""


_LOGGED = ("logging", "loop")

OFFERS = (
    TrialOffer("autocast_bf16", "change", "AMP in bf16, where it computes in fp32"),
    TrialOffer(
        "matmul_precision",
        "change",
        "fp32 products in TF32 on a GPU, in bf16 on a CPU that has it",
    ),
    TrialOffer("attention_sdpa", "change", "fused attention in models of Hugging Face"),
    TrialOffer("attention_cudnn", "change", "cuDNN's attention kernels first"),
    TrialOffer("optimizer_fused", "change", "the optimizer's update as one kernel"),
    TrialOffer("optimizer_foreach", "change", "the update of many parameters at a time"),
    TrialOffer("channels_last", "change", "2-D convolutions with their channels last"),
    TrialOffer("cudnn_benchmark", "change", "cuDNN chooses its fastest convolution"),
    TrialOffer("trimmed_batches", "change", "batches cut to their longest row"),
    TrialOffer("sorted_batches", "change", "batches of neighbours in length, each cut"),
    TrialOffer("packed_batches", "change", "several sequences in one row, where batches mark them"),
    TrialOffer("logging_interval", "change", "values logged every 50 steps"),
    TrialOffer("workers_N", "change", "other numbers of loader workers, also with fewer threads"),
    TrialOffer("no_checkpointing", "change", "activations kept in place of computed twice"),
    TrialOffer("compile", "change", "torch.compile, its first step apart"),
    TrialOffer("free_loader", "ceiling", "batches from memory", ("data_wait",)),
    TrialOffer(
        "no_update", "ceiling", "the optimizer has nothing to update", ("optimizer_not_fused",)
    ),
    TrialOffer("no_logging", "ceiling", "all loggers and self.log silent", _LOGGED),
    TrialOffer("no_logger_NAME", "ceiling", "one of several loggers silent", _LOGGED),
    TrialOffer("no_callback_NAME", "ceiling", "a callback silent, each in turn", ("callbacks",)),
    TrialOffer(
        "no_reduction",
        "ceiling",
        "each rank keeps its own gradients",
        ("allreduce_tail", "no_sync", "straggler"),
    ),
    TrialOffer("no_transfer", "ceiling", "batches that are on the device already", ("transfer",)),
)
"""In the order of their list: changes, then ceilings."""


def trials_of_finding(name: str) -> tuple[str, ...]:
    """Built-in trials of a finding's change, or of its bound."""
    return tuple(offer.id for offer in OFFERS if name in offer.rules)


def selects(names: Sequence[str], trial: str) -> bool:
    """Whether `--only` or `--without` name a trial, by its own name or that of its family."""
    families = (offer for offer in OFFERS if offer.id in names)
    return trial in names or any(offer.covers(trial) for offer in families)


def offered_trials(trials: Trials | None) -> tuple[OfferedTrial, ...]:
    """All built-in trials, and whether each applied to a run, by what was tried in it."""
    results = () if trials is None else trials.trials
    return tuple(_offered(offer, results) for offer in OFFERS)


def _offered(offer: TrialOffer, results: tuple[TrialResult, ...]) -> OfferedTrial:
    own = [result for result in results if offer.covers(result.id)]
    reasons = [result.reason for result in own if result.verdict == "not applicable"]
    absent = own and len(reasons) == len(own)
    return OfferedTrial(
        id=offer.id,
        kind=offer.kind,
        does=offer.does,
        applies=not absent if own else None,
        why_not=reasons[0] if absent else "",
        rules=offer.rules,
    )
