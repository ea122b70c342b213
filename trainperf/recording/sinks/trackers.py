"""Readings, the answer and the page for the run that a tracker has open: W&B, MLflow, Comet.

No tracker is imported, and none is given a run of ours: what the script has open gets values
beside its own, at its own steps.  A thread makes the calls, so that a slow server holds up nothing.
"""

import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from trainperf.recording.guard import Guard, log
from trainperf.recording.schedule import comes_true
from trainperf.recording.sinks.base import MetricsLogger


PART = "trackers"
MOST_WAITING = 64
"""Calls that wait for a tracker; any further one is dropped."""
IDLE_S = 5.0
PATIENCE_NS = 10_000_000_000
"""Longest wait at the end of a fit for what has not been handed over."""
ANSWER, REPORT = "trainperf/answer", "trainperf/report"


class _OpenRun:
    """A tracker's module, and the run that is open there."""

    def __init__(self, module: Any, run: Any) -> None:  # noqa: ANN401 each tracker's own
        self._module, self._run = module, run


class Wandb(_OpenRun):
    """The run of Weights & Biases: values join the row that the script logs next."""

    def log(self, values: Mapping[str, float], _: int) -> None:
        """Add them to the row under way, without a step of their own."""
        self._run.log(dict(values), commit=False)

    def publish(self, answer: str, page: Path) -> None:
        """The answer is in the run's summary, the page a panel."""
        self._run.summary[ANSWER] = answer
        self._run.log({REPORT: self._module.Html(str(page), inject=False)}, commit=False)


class MLflow(_OpenRun):
    """The active run of MLflow; a thread of ours has none, so it is named in each call."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """One request for all of them."""
        self._module.log_metrics(dict(values), step=step, run_id=self._run.info.run_id)

    def publish(self, answer: str, page: Path) -> None:
        """The answer is a tag, the page an artifact."""
        client, run = self._module.MlflowClient(), self._run.info.run_id
        client.set_tag(run, ANSWER, answer)
        client.log_artifact(run, str(page), "trainperf")


class Comet(_OpenRun):
    """The running experiment of Comet."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """One call for all of them."""
        self._run.log_metrics(dict(values), step=step)

    def publish(self, answer: str, page: Path) -> None:
        """The answer is another value, the page an asset."""
        self._run.log_other(ANSWER, answer)
        self._run.log_asset(str(page), file_name=f"{REPORT}.html")


Tracker = Wandb | MLflow | Comet

_TRACKERS: Mapping[str, tuple[type[Tracker], Callable[[Any], object]]] = {
    "wandb": (Wandb, lambda wandb: wandb.run),
    "mlflow": (MLflow, lambda mlflow: mlflow.active_run()),
    "comet_ml": (Comet, lambda comet: comet.get_running_experiment()),
}
"""Module to what hands over to it, and to what is its open run."""


def imported() -> list[str]:
    """Trackers that this process has loaded."""
    return [name for name in _TRACKERS if name in sys.modules]


class OpenTrackers:
    """Whatever runs are open when there is something to log, taken for one logger.

    Args:
        loggers: Of the framework: a tracker that one of them serves is left to it.
    """

    def __init__(self, loggers: Sequence[MetricsLogger] = ()) -> None:
        kinds = (kind for logger in loggers for kind in type(logger).__mro__)
        served = " ".join(kind.__module__ for kind in kinds)
        self._names = [name for name in imported() if name.partition("_")[0] not in served]
        self._calls: queue.Queue[Callable[[], object]] = queue.Queue(MOST_WAITING)
        self._guard = Guard()
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Have values logged at a step of the loop; between two steps, so nothing waits."""
        for tracker in self._open():
            self._send(partial(tracker.log, metrics, step or 0))

    def publish(self, answer: str, page: Path) -> None:
        """The fit is over: hand over its answer and its page, and wait for that, not for ever."""
        for tracker in self._open():
            self._send(partial(tracker.publish, answer, page))
        if not comes_true(lambda: not self._calls.unfinished_tasks, PATIENCE_NS):
            self.dropped += self._calls.unfinished_tasks
        if self.dropped:
            log.warning("trainperf: a tracker was too slow for %d calls", self.dropped)

    def _open(self) -> list[Tracker]:
        trackers = (self._guard.run(name, partial(_opened, name)) for name in self._names)
        return [tracker for tracker in trackers if tracker is not None]

    def _send(self, call: Callable[[], object]) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._hand_over, name="trainperf trackers", daemon=True
            )
            self._thread.start()
        try:
            self._calls.put_nowait(call)
        except queue.Full:
            self.dropped += 1

    def _hand_over(self) -> None:
        """Until nothing has come for a while; what comes then has a thread of its own."""
        with suppress(queue.Empty):
            while True:
                self._guard.run(PART, self._calls.get(timeout=IDLE_S))
                self._calls.task_done()


def _opened(name: str) -> Tracker | None:
    """What hands over to the run that this tracker has open; `None` without one."""
    tracker, open_run = _TRACKERS[name]
    module = sys.modules[name]
    run = open_run(module)
    return tracker(module, run) if run else None
