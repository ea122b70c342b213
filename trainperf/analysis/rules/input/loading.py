"""What do the rules about the loader have in common?  What it costs the step, and what is in it."""

import msgspec

from trainperf.analysis.rules.base import phase_fraction, value, worst
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.loader import LoaderAnatomy
from trainperf.core.findings import LIMITS
from trainperf.core.phases import Phase


MANY_TENSORS = 16
"""In a batch: from here on handling them stands out beside what is in them."""

SMALL_TENSOR_BYTES = 1 << 18
"""A copy of 256 KiB takes 10 µs over a link of 25 GB/s: as long as starting it does."""

HANDLING = 12.0
"""Cost per small tensor, as a multiple of the measured minimum, above which the dataset does real
work."""


def lost_to_loader(summary: Summary) -> float | None:
    """Share of the step that is lost: what the device stalls where that is known, else the wait.

    `None` without enough steady steps.
    """
    waited = phase_fraction(summary, Phase.DATA_WAIT)
    if waited is None:
        return None
    stalled = worst(summary, "data_stall_fraction")
    on_device = stalled is not None and summary.run.device != "cpu"
    return min(stalled, waited) if on_device and stalled is not None else waited


def rest_s(summary: Summary) -> float | None:
    """The step without what is lost to the loader: the time there is for a batch."""
    lost, step_s = lost_to_loader(summary), value(summary, "step_mean_s")
    if lost is None or not step_s:
        return None
    return step_s * max(1.0 - lost, 1e-3)


def keeping_up(summary: Summary) -> Summary:
    """The summary, in which the anatomy of the loader says how many workers keep up."""
    anatomy, available_s = summary.loader, rest_s(summary)
    if anatomy is None or available_s is None:
        return summary
    # A step asks for a batch of every micro-batch.
    needed = anatomy.workers_for(available_s / micro_batches(summary))
    return msgspec.structs.replace(
        summary, loader=msgspec.structs.replace(anatomy, workers_needed=needed)
    )


def micro_batches(summary: Summary) -> int:
    """Batches of a step, by the configuration; one where it does not say."""
    known = summary.run.config.get("accumulate_grad_batches")
    return known if isinstance(known, int) and known > 0 else 1


def small_tensors(anatomy: LoaderAnatomy) -> bool:
    """Whether a batch is many small tensors, and handling them is all that it costs.

    A dataset that does more for a sample than to put its tensors together has another fault.
    """
    tensors = anatomy.tensors
    if tensors < MANY_TENSORS or anatomy.batch_bytes >= tensors * SMALL_TENSOR_BYTES:
        return False
    if anatomy.tensor_s is None:
        return False
    handling_s = HANDLING * anatomy.tensor_s * tensors * max(1.0, anatomy.samples)
    return anatomy.making_s <= handling_s


def small_tensors_wait(summary: Summary) -> bool:
    """Whether the step waits for a loader whose batches are many small tensors."""
    lost = lost_to_loader(summary)
    if lost is None or lost < LIMITS.notable or summary.loader is None:
        return False
    return small_tensors(summary.loader)


def moved(summary: Summary) -> float | None:
    """Share of the step that the batch's way to the device costs at most; `None` if unknown.

    The device's time in the copies.  Where the device waits for the host anyway, a copy that holds
    the host up costs what it holds it up.
    """
    host, device = phase_fraction(summary, Phase.H2D), worst(summary, "h2d_fraction")
    if host is None or device is None:
        return host
    bound = value(summary, "host_bound_fraction") or 0.0
    return max(host, device) if bound >= LIMITS.host_bound else device


def small_copies(summary: Summary) -> bool:
    """Whether the way to the device is taken by many small tensors, one copy each."""
    lost = moved(summary)
    tensors, copied = value(summary, "h2d_tensors"), value(summary, "h2d_bytes")
    if lost is None or lost < LIMITS.notable or tensors is None or copied is None:
        return False
    many = tensors >= MANY_TENSORS * micro_batches(summary)
    return many and copied < tensors * SMALL_TENSOR_BYTES
