"""Loader anatomy: one look into the loader before the first step, on request.

The time it takes belongs to the startup gap; no step costs more.
"""

from pathlib import Path

from trainperf.audit.loader.anatomy import loader_anatomy
from trainperf.core.artifacts import write_document
from trainperf.core.errors import ConfigError
from trainperf.recording.probes.base import Probe


class LoaderProbe(Probe):
    """Writes `loader.json` as the fit begins; feeds no fact.

    Every rank looks, so that their workers compete as they will in training.

    Args:
        loader: What the loop takes its batches from.
        run: The run directory; `None` on ranks that write nothing.
    """

    name = "loader anatomy"

    def __init__(self, loader: object, run: Path | None) -> None:
        self._loader = loader
        self._run = run
        self._refused = ""

    def begin(self) -> None:
        """Look into it."""
        loader, self._loader = self._loader, None
        try:
            anatomy = loader_anatomy(loader)
        except ConfigError as error:
            self._refused = f"not looked into: {error}"
            return
        if self._run is not None:
            write_document(anatomy, self._run)

    def notes(self) -> dict[str, str]:
        """Why there is no anatomy."""
        return {"loader": self._refused} if self._refused else {}
