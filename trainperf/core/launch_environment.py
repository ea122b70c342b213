"""Environment variable between `trainperf run` or `try` and the training that it launches."""

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Any


VARIABLE = "TRAINPERF_RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLaunch:
    """What `trainperf try` was told, and what its earlier attempts came to."""

    minutes: float = 2.0
    """For all trials together."""
    only: tuple[str, ...] = ()
    """Ids of the trials; empty is all of them."""
    without: tuple[str, ...] = ()
    """Ids that are left out."""
    script: str = ""
    """As it was started."""
    earlier: str | None = None
    """Run directory of an attempt that a trial ended."""
    ended_by: dict[str, str] = field(default_factory=dict)
    """Ids of the trials that ended one, each with what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What the command was told: options of `TrainPerf`, and how it learns of a Trainer."""

    dirpath: str | None = None
    audit_at: int | None = None
    loader_anatomy: bool = False
    marker: str | None = None
    """A file that is created when a Trainer was built; `None` if nobody wants to know."""
    trials: TrialLaunch | None = None
    """Of a run that is started for its trials; `None` where nothing is tried."""

    def variable(self) -> dict[str, str]:
        """For the environment of the training."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def parse(cls, text: str) -> "LaunchOptions":
        """From the variable's value.

        Raises:
            TypeError: An option is unknown, or of the wrong kind.
            ValueError: It is not JSON.
        """
        given = json.loads(text)
        trials = given.pop("trials", None)
        options = cls(**given, trials=None if trials is None else _trials(trials))
        texts, step = (options.dirpath, options.marker), options.audit_at
        if not all(isinstance(t, str | None) for t in texts) or not isinstance(step, int | None):
            raise TypeError(f"{VARIABLE}={text}: dirpath and marker are text, audit_at is a number")
        return options

    @classmethod
    def of_this_process(cls) -> "LaunchOptions | None":
        """Those of the command that started this process; `None` if none did.

        Raises:
            TypeError: As `parse`.
            ValueError: As `parse`.
        """
        text = os.environ.get(VARIABLE)
        return cls.parse(text) if text else None


def _trials(given: dict[str, Any]) -> TrialLaunch:
    only, without = tuple(given.pop("only", ())), tuple(given.pop("without", ()))
    return TrialLaunch(only=only, without=without, **given)
