"""Result of a batch-size sweep: which size is worth taking, and which is the largest that fits.

Nothing here prints: `str(sweep)` is the report.
"""

from pathlib import Path

from trainperf.benchmark.sweeps.batch_page import sweep_page
from trainperf.benchmark.sweeps.batch_points import SweepPoints
from trainperf.benchmark.sweeps.batch_text import sweep_text
from trainperf.core.errors import ConfigError


class Sweep(SweepPoints, frozen=True, kw_only=True):
    """A finished sweep, with its report and its plot."""

    def save_plot(self, path: Path | str) -> None:
        """Write throughput and peak memory over the batch size to *path*, an `.html` file.

        One page without scripts that loads nothing, with the table below.
        """
        file = Path(path)
        if file.suffix != ".html":
            raise ConfigError(f"{file.name}: a plot is a page for a browser; end it in .html")
        file.write_text(sweep_page(self), encoding="utf-8")

    def __str__(self) -> str:
        return sweep_text(self)
