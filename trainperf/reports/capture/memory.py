"""Memory of a device over a trace as a picture, with its peak and what ran there."""

import numpy as np

from trainperf.core.formatting.units import duration, size
from trainperf.reports.charts.lines import Line, LineChart, line_chart
from trainperf.reports.layout.document import Chart
from trainperf.traces.results import MemoryCurve


def memory_chart(curve: MemoryCurve) -> Chart:
    """What was allocated, what the allocator held, and a line at the peak."""
    at = np.array(curve.at_s)
    sides = {"allocated": curve.allocated_bytes, "reserved": curve.reserved_bytes}
    lines = [
        Line(label=name, x=at, y=np.array(values, float))
        for name, values in sides.items()
        if values
    ]
    peak = np.array([0.0, curve.peak_bytes])
    lines.append(Line(label="peak", x=np.full(2, curve.peak_s), y=peak))
    running = (("in", curve.operators), ("called from", curve.stack[:3]))
    around = [f"{word} {' ← '.join(names)}" for word, names in running if names]
    most = f"{size(curve.peak_bytes)} allocated at {duration(curve.peak_s)}"
    chart = LineChart(
        title=f"memory of {'the host' if curve.device is None else f'device {curve.device}'}",
        what=f"The peak is {', '.join([most, *around])}.",
        unit="B",
        lines=lines,
        across="seconds in the trace",
        peaks=True,
    )
    return line_chart(chart)
