"""Environment variable between `trainperf run` and the training that it launches."""

import json
from dataclasses import asdict, dataclass


VARIABLE = "TRAINPERF_RUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What `trainperf run` was told: options of `TrainPerf`, and how it learns of a Trainer."""

    dirpath: str | None = None
    audit_at: int | None = None
    loader_anatomy: bool = False
    marker: str | None = None
    """A file that is created when a Trainer was built; `None` if nobody wants to know."""

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
        options = cls(**json.loads(text))
        texts, step = (options.dirpath, options.marker), options.audit_at
        if not all(isinstance(t, str | None) for t in texts) or not isinstance(step, int | None):
            raise TypeError(f"{VARIABLE}={text}: dirpath and marker are text, audit_at is a number")
        return options
