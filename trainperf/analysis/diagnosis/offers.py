"""Built-in trials: what each does, which causes it is about, and whether it applies to a run.

Which trial measures which change is said once, in the catalogue of changes; a ceiling takes a cause
away as a whole and names it here.  A header tells much of whether a trial applies and not all: what
batches hold, which callbacks there are and what the chip can do is known once the training runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from trainperf.analysis.diagnosis.changes import CHANGES
from trainperf.core.artifacts.trials import TrialKind, TrialResult, Trials
from trainperf.core.loop_kind import loop_of
from trainperf.core.machine.backends import CUDA, backend_of
from trainperf.core.steps.records import RunInfo


Why = Callable[[RunInfo], str]
"""Why a trial does not apply to a run, by its header; empty if it may."""


def _applies(_: RunInfo) -> str:
    return ""


def _when(reason: str, applies: Callable[[RunInfo], object]) -> Why:
    return lambda info: "" if applies(info) else reason


def _already(name: str, *values: object) -> Why:
    return lambda info: (
        f"{name} is {info.config[name]} already" if info.config.get(name) in values else ""
    )


def _all(*whys: Why) -> Why:
    return lambda info: next(filter(None, (why(info) for why in whys)), "")


_LOGGERS = _when(
    "a plain loop names neither loggers nor callbacks", lambda i: loop_of(i.config).names_callbacks
)
_BATCHES = _when(
    "its batches cannot be taken over from outside; LoopMonitor can",
    lambda info: not loop_of(info.config).outside,
)
_DEVICE = _when("its batches are used where they are made", lambda info: info.device != "cpu")
_CUDNN = _when(
    "it has no cuDNN",
    lambda info: info.device != "cpu" and backend_of(info.device, info.software) is CUDA,
)
_FULL = _when(
    "it computes in half precision already",
    lambda info: "16" not in str(info.config.get("precision") or ""),
)
_HALF = _when(
    "its kernels take half precision, and it computes in full",
    # A Trainer says so; the autocast of a loop of one's own is seen as it trains.
    lambda info: (
        not loop_of(info.config).names_callbacks or "16" in str(info.config.get("precision") or "")
    ),
)
_PRODUCTS = _all(_already("float32_matmul_precision", "high", "medium"), _FULL)
_EAGER_ATTENTION = _when(
    "it is no model of Hugging Face that attends eagerly",
    lambda info: info.config.get("attention") == "eager",
)
_FUSIBLE = _when(
    "its optimizer has no fused=, or has it already",
    lambda info: not info.config.get("optimizers") or info.config.get("optimizer_fused") is False,
)
_IMAGES = _when(
    "it has no 2-D convolution with its channels first",
    lambda info: info.config.get("convolution_format", "") not in (None, "channels_last"),
)


@dataclass(frozen=True, slots=True)
class TrialOffer:
    """One built-in trial, or a family of them whose names begin alike."""

    id: str
    """Name for `--only` and `--without`; in capitals what each member of the family has there."""
    kind: TrialKind
    does: str
    why_not: Why = _applies
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
    """A built-in trial and a run."""

    id: str
    kind: TrialKind
    does: str
    applies: bool | None
    """`None` where no run was named."""
    why_not: str = ""
    rules: tuple[str, ...] = ()
    """Causes whose change it is, or whose bound it measures."""


_LOGGED = ("logging", "loop")

OFFERS = (
    TrialOffer("autocast_bf16", "change", "AMP in bf16, where it computes in fp32", _FULL),
    TrialOffer(
        "matmul_precision",
        "change",
        "fp32 products in TF32 on a GPU, in bf16 on a CPU that has it",
        _PRODUCTS,
    ),
    TrialOffer(
        "attention_sdpa", "change", "fused attention in models of Hugging Face", _EAGER_ATTENTION
    ),
    TrialOffer("attention_cudnn", "change", "cuDNN's attention kernels first", _all(_CUDNN, _HALF)),
    TrialOffer("optimizer_fused", "change", "the optimizer's update as one kernel", _FUSIBLE),
    TrialOffer(
        "optimizer_foreach",
        "change",
        "the update of many parameters at a time",
        _already("optimizer_foreach", True),
    ),
    TrialOffer("channels_last", "change", "2-D convolutions with their channels last", _IMAGES),
    TrialOffer(
        "cudnn_benchmark",
        "change",
        "cuDNN chooses its fastest convolution",
        _all(_CUDNN, _already("cudnn_benchmark", True)),
    ),
    TrialOffer("trimmed_batches", "change", "batches cut to their longest row", _BATCHES),
    TrialOffer("sorted_batches", "change", "batches of neighbours in length, each cut", _BATCHES),
    TrialOffer(
        "packed_batches",
        "change",
        "several sequences in one row, where batches mark them",
        _BATCHES,
    ),
    TrialOffer("logging_interval", "change", "values logged every 50 steps", _LOGGERS),
    TrialOffer(
        "workers_N", "change", "other numbers of loader workers, also with fewer threads", _BATCHES
    ),
    TrialOffer(
        "no_checkpointing",
        "change",
        "activations kept in place of computed twice",
        _when(
            "no model of Hugging Face computes activations twice",
            lambda info: info.config.get("gradient_checkpointing"),
        ),
    ),
    TrialOffer(
        "compile", "change", "torch.compile, its first step apart", _already("compiled", True)
    ),
    TrialOffer("free_loader", "ceiling", "batches from memory", _BATCHES, ("data_wait",)),
    TrialOffer(
        "no_update",
        "ceiling",
        "the optimizer has nothing to update",
        ceiling_of=("optimizer_not_fused",),
    ),
    TrialOffer("no_logging", "ceiling", "all loggers and self.log silent", _LOGGERS, _LOGGED),
    TrialOffer("no_logger_NAME", "ceiling", "one of several loggers silent", _LOGGERS, _LOGGED),
    TrialOffer(
        "no_callback_NAME",
        "ceiling",
        "a callback silent, each in turn",
        _LOGGERS,
        ("callbacks",),
    ),
    TrialOffer(
        "no_reduction",
        "ceiling",
        "each rank keeps its own gradients",
        _when("one rank reduces nothing", lambda info: info.world_size > 1),
        ("allreduce_tail", "no_sync", "straggler"),
    ),
    TrialOffer(
        "no_transfer",
        "ceiling",
        "batches that are on the device already",
        _all(_BATCHES, _DEVICE),
        ("transfer",),
    ),
)
"""In the order of their list: changes, then ceilings."""


def trials_of_finding(name: str) -> tuple[str, ...]:
    """Built-in trials of a finding's change, or of its bound."""
    return tuple(offer.id for offer in OFFERS if name in offer.rules)


def selects(names: Sequence[str], trial: str) -> bool:
    """Whether `--only` or `--without` name a trial, by its own name or that of its family."""
    families = (offer for offer in OFFERS if offer.id in names)
    return trial in names or any(offer.covers(trial) for offer in families)


def offered_trials(info: RunInfo | None, trials: Trials | None) -> tuple[OfferedTrial, ...]:
    """All built-in trials, and whether each applies to a run.

    Args:
        info: The run's header; `None` where there is no run.
        trials: What was tried in it, which knows better.
    """
    results = () if trials is None else trials.trials
    return tuple(_offered(offer, info, results) for offer in OFFERS)


def _offered(
    offer: TrialOffer, info: RunInfo | None, results: tuple[TrialResult, ...]
) -> OfferedTrial:
    own = [result for result in results if offer.covers(result.id)]
    reasons = [result.reason for result in own if result.verdict == "not applicable"]
    why = "" if info is None else offer.why_not(info)
    if own:
        why = reasons[0] if len(reasons) == len(own) else ""
    return OfferedTrial(
        id=offer.id,
        kind=offer.kind,
        does=offer.does,
        applies=None if info is None else not why,
        why_not=why,
        rules=offer.rules,
    )
