"""Catalogue of the built-in trials: what each does, and whether it applies to a recorded run.

A header tells much of that and not all: what batches hold, which callbacks there are and what the
chip can do is known once the training runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from trainperf.core.artifacts.trials import TrialKind, TrialResult, Trials
from trainperf.core.loop_kind import HUGGING_FACE, LIGHTNING, PLAIN, loop_of
from trainperf.core.steps.records import RunInfo


RARELY = 50
"""Steps between two logged values from which on fewer gain nothing."""


def _applies(_: RunInfo) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class TrialOffer:
    """One built-in trial, or a family of them whose names begin alike."""

    id: str
    """Name for `--only` and `--without`; in capitals what each member of the family has there."""
    kind: TrialKind
    does: str
    why_not: Callable[[RunInfo], str] = _applies
    """Why it does not apply to a run, by its header; empty if it may."""
    rules: tuple[str, ...] = ()
    """Findings whose advice it is, or whose bound it measures."""

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
    """Findings whose advice it is, or whose bound it measures."""


def _lightning_only(info: RunInfo) -> str:
    kind = loop_of(info.config)
    plain = kind.outside or kind is PLAIN
    return "a plain loop names neither loggers nor callbacks" if plain else ""


def _batches(info: RunInfo) -> str:
    outside = loop_of(info.config).outside
    return "its batches cannot be taken over from outside; LoopMonitor can" if outside else ""


def _several_ranks(info: RunInfo) -> str:
    return "one rank reduces nothing" if info.world_size == 1 else ""


def _device(info: RunInfo) -> str:
    return _batches(info) or (
        "its batches are used where they are made" if info.device == "cpu" else ""
    )


def _full_precision(info: RunInfo) -> str:
    precision = str(info.config.get("precision") or "")
    return f"it computes in {precision} already" if "16" in precision else ""


def _full_products(info: RunInfo) -> str:
    precision = info.config.get("float32_matmul_precision")
    if precision not in (None, "highest"):
        return f'float32_matmul_precision is "{precision}" already'
    return _full_precision(info)


def _eager_attention(info: RunInfo) -> str:
    attention = info.config.get("attention")
    if attention is None:
        return "it is no model of Hugging Face that says how it attends"
    return "" if attention == "eager" else f"it is {attention} already"


def _cudnn(info: RunInfo) -> str:
    return "" if info.device == "cuda" else f"no cuDNN on {info.device}"


def _half_on_cuda(info: RunInfo) -> str:
    full = "its kernels take half precision, and it computes in full"
    # A Trainer says so; the autocast of a loop of one's own is seen as it trains.
    configured = info.config.get("loop") in (LIGHTNING.name, HUGGING_FACE.name)
    return _cudnn(info) or (full if configured and not _full_precision(info) else "")


def _own_choice(info: RunInfo) -> str:
    already = "torch.backends.cudnn.benchmark is True already"
    return _cudnn(info) or (already if _is(info, "cudnn_benchmark", True) else "")


def _fusible(info: RunInfo) -> str:
    optimizers, fused = info.config.get("optimizers"), info.config.get("optimizer_fused")
    if optimizers and fused is None:
        return f"{optimizers} has no fused="
    return f"{optimizers} has fused=True already" if fused is True else ""


def _one_by_one(info: RunInfo) -> str:
    foreach = info.config.get("optimizer_foreach")
    together = foreach is True or (foreach == "auto" and info.device == "cuda")
    return "the optimizer updates them together already" if together else ""


def _images(info: RunInfo) -> str:
    layout = info.config.get("convolution_format")
    if layout is None and "convolution_format" in info.config:
        return "it has no 2-D convolution"
    return "its convolutions have it already" if layout == "channels_last" else ""


def _recomputes(info: RunInfo) -> str:
    again = info.config.get("gradient_checkpointing")
    return "" if again else "no model of Hugging Face computes activations twice"


def _eager(info: RunInfo) -> str:
    return "parts of it are compiled already" if _is(info, "compiled", True) else ""


def _is(info: RunInfo, name: str, value: object) -> bool:
    return info.config.get(name) == value


OFFERS = (
    TrialOffer(
        "autocast_bf16",
        "change",
        "AMP in bf16, where it computes in fp32",
        _full_precision,
        rules=("matmul_precision",),
    ),
    TrialOffer(
        "matmul_precision",
        "change",
        "fp32 products in TF32 on a GPU, in bf16 on a CPU that has it",
        _full_products,
        rules=("matmul_precision",),
    ),
    TrialOffer(
        "attention_sdpa",
        "change",
        "fused attention in models of Hugging Face",
        _eager_attention,
        rules=("attention",),
    ),
    TrialOffer(
        "attention_cudnn",
        "change",
        "cuDNN's attention kernels first",
        _half_on_cuda,
        rules=("attention",),
    ),
    TrialOffer(
        "optimizer_fused",
        "change",
        "the optimizer's update as one kernel",
        _fusible,
        rules=("optimizer_not_fused",),
    ),
    TrialOffer(
        "optimizer_foreach",
        "change",
        "the update of many parameters at a time",
        _one_by_one,
        rules=("optimizer_not_fused",),
    ),
    TrialOffer(
        "channels_last",
        "change",
        "2-D convolutions with their channels last",
        _images,
        rules=("channels_last", "layout_copies"),
    ),
    TrialOffer("cudnn_benchmark", "change", "cuDNN chooses its fastest convolution", _own_choice),
    TrialOffer(
        "trimmed_batches",
        "change",
        "batches cut to their longest row",
        _batches,
        rules=("padding",),
    ),
    TrialOffer(
        "sorted_batches",
        "change",
        "batches of neighbours in length, each cut",
        _batches,
        rules=("padding",),
    ),
    TrialOffer(
        "packed_batches",
        "change",
        "several sequences in one row, where batches mark them",
        _batches,
        rules=("padding",),
    ),
    TrialOffer(
        "logging_interval",
        "change",
        f"values logged every {RARELY} steps",
        _lightning_only,
        rules=("logging",),
    ),
    TrialOffer(
        "workers_N",
        "change",
        "other numbers of loader workers, also with fewer threads",
        _batches,
        rules=("data_wait",),
    ),
    TrialOffer(
        "no_checkpointing",
        "change",
        "activations kept in place of computed twice",
        _recomputes,
        rules=("recompute",),
    ),
    TrialOffer(
        "compile",
        "change",
        "torch.compile, its first step apart",
        _eager,
        rules=("elementwise_chain", "launch_bound", "host_bound"),
    ),
    TrialOffer("free_loader", "ceiling", "batches from memory", _batches, rules=("data_wait",)),
    TrialOffer(
        "no_update",
        "ceiling",
        "the optimizer has nothing to update",
        rules=("optimizer_not_fused",),
    ),
    TrialOffer(
        "no_logging",
        "ceiling",
        "all loggers and self.log silent",
        _lightning_only,
        rules=("logging", "metrics_every_batch"),
    ),
    TrialOffer(
        "no_logger_NAME",
        "ceiling",
        "one of several loggers silent",
        _lightning_only,
        rules=("logging", "metrics_every_batch"),
    ),
    TrialOffer(
        "no_callback_NAME",
        "ceiling",
        "a callback silent, each in turn",
        _lightning_only,
        rules=("callbacks", "metrics_every_batch"),
    ),
    TrialOffer(
        "no_reduction",
        "ceiling",
        "each rank keeps its own gradients",
        _several_ranks,
        rules=("allreduce_tail", "no_sync", "straggler"),
    ),
    TrialOffer(
        "no_transfer",
        "ceiling",
        "batches that are on the device already",
        _device,
        rules=("transfer",),
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
    applies = None if info is None else not why
    return OfferedTrial(
        id=offer.id,
        kind=offer.kind,
        does=offer.does,
        applies=applies,
        why_not=why,
        rules=offer.rules,
    )
