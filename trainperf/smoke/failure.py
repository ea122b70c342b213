"""What does a failed smoke test say?  What it saw, and what to do."""

from trainperf.core.errors import TrainPerfError


class SmokeFailure(TrainPerfError, AssertionError):  # noqa: N818 not an error of the code, but a test that fails
    """An assertion about a step does not hold: *saw* says what was seen, *do* what to change."""

    def __init__(self, saw: str, do: str) -> None:
        super().__init__(f"{saw}\nWhat to do: {do}")
        self.saw = saw
        self.do = do
