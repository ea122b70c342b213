"""Efficiency of the link between host and device in a run, as its copies show it.

Said wherever copied bytes are shown, however little of the step they take: a link at a tenth of its
rate says *pageable memory* or *many small tensors* long before it costs a tenth of the step.
The words are those of a trace: `trainperf.core.machine.link`.
"""

from trainperf.analysis.summary.schema import Summary
from trainperf.core.machine.link import of_link
from trainperf.core.readings import H2D_BYTES_PER_S


def link_words(summary: Summary) -> str:
    """The rate of the batch's copies in words, as `of_link`; empty where no copy was timed.

    By the reading `h2d_bytes_per_s` of the run, and the data sheet of its device.
    """
    speed = summary.value(H2D_BYTES_PER_S)
    device = str(summary.run.hardware.get("device_name", ""))
    return of_link(speed, device) if speed else ""
