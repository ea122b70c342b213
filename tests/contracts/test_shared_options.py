"""Options that several adapters share are explained in the same words."""

import inspect
import re

import pytest

from trainperf.huggingface import TrainPerfCallback
from trainperf.lightning import TrainPerf
from trainperf.loop import LoopMonitor


OF_ITS_OWN: dict[type, set[str]] = {
    TrainPerfCallback: {"tokens", "dirpath", "log_every_n_steps", "aggregate", "trials"},
    LoopMonitor: {"dirpath", "log_every_n_steps", "writer", "clock", "probes", "aggregate"},
}
"""What is another thing there than under Lightning, or is called by another name."""


def explained(adapter: type) -> dict[str, str]:
    """Each option and its explanation, on one line."""
    text = inspect.getdoc(adapter) or ""
    options = text.partition("Args:\n")[2].partition("\nRaises:")[0]
    entries = re.split(r"\n(?=    \w+: )", "\n" + options.rstrip())
    pairs = (entry.strip().partition(": ") for entry in entries if entry.strip())
    return {name: " ".join(words.split()) for name, _, words in pairs}


@pytest.mark.parametrize("adapter", OF_ITS_OWN, ids=lambda adapter: adapter.__name__)
def test_an_option_means_the_same_everywhere(adapter: type) -> None:
    """But for those that are about something else there."""
    lightning, own = explained(TrainPerf), explained(adapter)
    shared = lightning.keys() & own.keys() - OF_ITS_OWN[adapter]

    assert shared >= {"report", "lines", "meters", "sinks"}
    assert {name: own[name] for name in shared} == {name: lightning[name] for name in shared}


@pytest.mark.parametrize("adapter", [TrainPerf, *OF_ITS_OWN], ids=lambda each: each.__name__)
def test_every_option_is_explained(adapter: type) -> None:
    """In the order in which they are given."""
    assert list(explained(adapter)) == [*inspect.signature(adapter).parameters]


def test_a_hugging_face_training_has_the_options_of_a_lightning_one() -> None:
    """But for how long trials take: there the command says it."""
    missing = (
        inspect.signature(TrainPerf).parameters.keys()
        - inspect.signature(TrainPerfCallback).parameters.keys()
    )

    assert missing == {"trial_minutes"}
