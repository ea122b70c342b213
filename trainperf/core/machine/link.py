"""Efficiency of the link between host and device: what copies reach of what the chip's can do.

In words, for a run as for a trace; reading a trace needs nothing of the analysis of runs.
"""

from trainperf.core.formatting.units import rate, share
from trainperf.core.machine.chips import chip_of


def of_link(bytes_per_s: float, device_name: str) -> str:
    """E.g. `2.00 GB/s, 3.1 % of the link's 64.0 GB/s`: one direction, by the chip's data sheet.

    The rate alone for a chip without a data sheet.  An empty name is no chip, as is that of a CPU
    or of a device that the table of chips lacks.
    """
    chip = chip_of(device_name)
    if chip is None or not chip.link_bytes_per_s:
        return rate(bytes_per_s)
    link = chip.link_bytes_per_s
    return f"{rate(bytes_per_s)}, {share(bytes_per_s / link)} of the link's {rate(link)}"
