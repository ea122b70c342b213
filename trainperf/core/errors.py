"""Errors that users of trainperf can meet: one family, each with the remedy in its message."""


class TrainPerfError(Exception):
    """Base of everything trainperf raises on purpose."""


class ConfigError(TrainPerfError, ValueError):
    """A value was refused where the user chose it: names the value, the rule and the remedy."""


class RunError(TrainPerfError):
    """A run directory cannot be read: missing, foreign, damaged or of an unknown schema version."""


class LogError(TrainPerfError):
    """A log cannot be imported: names the file, what was looked for in it and the remedy."""


class TraceError(TrainPerfError):
    """A file cannot be used as a trace: names the file, what is wrong with it and the remedy."""


class SmokeFailure(TrainPerfError, AssertionError):  # noqa: N818 not an error of the code, but a test that fails
    """An assertion about a step does not hold: *saw* is the evidence, *do* the remedy."""

    def __init__(self, saw: str, do: str) -> None:
        super().__init__(f"{saw}\nWhat to do: {do}")
        self.saw = saw
        self.do = do
