"""Time that is lost to the loader and to copies: shared by the rules of `input`."""

import msgspec

from trainperf.analysis.rules.base import phase_fraction, setting, worst
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.loader import LoaderAnatomy
from trainperf.core.findings import LIMITS
from trainperf.core.phases import Phase
from trainperf.core.readings import (
    DATA_STALL_FRACTION,
    H2D_BYTES,
    H2D_FRACTION,
    H2D_TENSORS,
    HOST_BOUND_FRACTION,
    STEP_MEAN_S,
)


MANY_TENSORS = 16
"""In a batch: from here on handling them stands out against what is in them."""

SMALL_TENSOR_BYTES = 1 << 18
"""A copy of 256 KiB takes 10 µs over a link of 25 GB/s: as long as starting it does."""


def awaits_requests(summary: Summary) -> bool:
    """Whether a wait for a batch may be one for requests, which nobody has sent yet."""
    return not summary.run.loop.trains and setting(summary, "num_workers") is None


def asleep_fraction(summary: Summary) -> float:
    """Share of the time in the loader, at least, for which its thread neither ran nor was ready to.

    It waited for a disk, a network or a timer then.  0 where that is not known: with workers, on
    several ranks (which wait for each other), and where the system does not count it.
    """
    host, waited = summary.host, phase_fraction(summary, Phase.DATA_WAIT)
    if host is None or not waited or len(summary.run.ranks) > 1 or setting(summary, "num_workers"):
        return 0.0
    if host.ran_fraction is None or host.waited_fraction is None:
        return 0.0
    asleep = 1.0 - host.ran_fraction - host.waited_fraction
    return min(max((asleep - (1.0 - waited)) / waited, 0.0), 1.0)


def lost_to_loader(summary: Summary) -> float | None:
    """Share of the step that is lost: what the device stalls where that is known, else the wait.

    `None` without enough steady steps.
    """
    waited = phase_fraction(summary, Phase.DATA_WAIT)
    if waited is None:
        return None
    stalled = worst(summary, DATA_STALL_FRACTION)
    hidden = stalled is not None and summary.run.device != "cpu"
    return min(stalled or 0.0, waited) if hidden else waited


def restarts_s(summary: Summary) -> float:
    """Time of the fit in which workers start anew with each epoch, of a loop seen from outside.

    Nothing tells its epochs apart there: steps are theirs that wait much longer for data, and come
    back after as many as an epoch of the loader has.  0 where there are none.
    """
    slow, workers = summary.slow_steps, setting(summary, "num_workers")
    if slow is None or slow.every is None or slow.phase != Phase.DATA_WAIT.label:
        return 0.0
    kept = setting(summary, "persistent_workers")
    if not summary.run.loop.outside or not workers or kept or slow.every <= workers:
        return 0.0
    samples, size = setting(summary, "dataset_samples"), setting(summary, "batch_size")
    if not samples or not size:
        return 0.0
    steps = samples / size / summary.run.world_size / micro_batches(summary)
    if abs(slow.every - steps) >= 1:
        return 0.0
    # Where only the latest steps were looked at, the earlier ones are taken to be like them.
    times = max(1.0, summary.run.steady_steps / slow.of_steps)
    return slow.lost_s * slow.phase_fraction * times


def unknown_loader(summary: Summary) -> bool:
    """Whether what is counted as data wait may be any code of the loop, and nobody saw a loader."""
    settings = setting(summary, "num_workers")
    return summary.run.loop.coarse and summary.loader is None and settings is None


def rest_s(summary: Summary) -> float | None:
    """The step without what is lost to the loader: the time there is for a batch."""
    lost, step_s = lost_to_loader(summary), summary.value(STEP_MEAN_S)
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
    number = summary.run.config.get("accumulate_grad_batches")
    return number if isinstance(number, int) and number > 0 else 1


def small_tensors(anatomy: LoaderAnatomy) -> bool:
    """Whether a batch is many small tensors, and handling them is all that it costs.

    A dataset that does more for a sample than to put its tensors together has another fault.
    """
    tensors = anatomy.tensors
    large = tensors < MANY_TENSORS or anatomy.batch_bytes >= tensors * SMALL_TENSOR_BYTES
    if large or anatomy.tensor_s is None:
        return False
    # Twelve times the measured minimum per small tensor: beyond that the dataset does real work.
    return anatomy.making_s <= 12 * anatomy.tensor_s * tensors * max(1.0, anatomy.samples)


def small_tensors_wait(summary: Summary) -> bool:
    """Whether the step waits for a loader whose batches are many small tensors."""
    lost = lost_to_loader(summary)
    waits = lost is not None and lost >= LIMITS.notable
    return waits and summary.loader is not None and small_tensors(summary.loader)


def moved(summary: Summary) -> float | None:
    """Share of the step that the batch's way to the device costs at most; `None` if unknown.

    The device's time in the copies.  Where the device waits for the host anyway, a copy that holds
    the host up costs what it holds it up.
    """
    host, device = phase_fraction(summary, Phase.H2D), worst(summary, H2D_FRACTION)
    if host is None or device is None:
        return host
    bound = summary.value(HOST_BOUND_FRACTION) or 0.0
    return max(host, device) if bound >= LIMITS.host_bound else device


def small_copies(summary: Summary) -> bool:
    """Whether the way to the device is taken by many small tensors, one copy each."""
    lost = moved(summary)
    tensors, copied = summary.value(H2D_TENSORS), summary.value(H2D_BYTES)
    if lost is None or lost < LIMITS.notable or tensors is None or copied is None:
        return False
    many = tensors >= MANY_TENSORS * micro_batches(summary)
    return many and copied < tensors * SMALL_TENSOR_BYTES
