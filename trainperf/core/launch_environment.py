"""Environment of the trainings that `trainperf run`, `try` and `prove` launch."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any


VARIABLE = "TRAINPERF_RUN"

ENTRY_POINTS = Path(__file__).parents[1] / "plugins" / "launched"
"""Folder on the path of what is launched: with it Lightning, Fabric and PyTorch find us.

No other process has it: an installed trainperf has no part in anybody's training.
"""


class Word(Enum):
    """What a launched process tells the command: the name of a file that it leaves."""

    LOADED = "torch was loaded"
    TRAINER = "a Lightning Trainer was built"
    STEPPED = "an optimizer was stepped"
    RECORDED = "a fit was recorded"


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
    """What the command was told: options of `TrainPerf`, and where it hears of the training."""

    dirpath: str | None = None
    audit_at: int | None = None
    loader_anatomy: bool = False
    words: str | None = None
    """A folder for what processes tell the command; `None` if it does not want to know."""
    trials: TrialLaunch | None = None
    """Of a run that is started for its trials; `None` where nothing is tried."""

    def environment(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """That of the training: *given* or this process's, with the options and entry points."""
        given = os.environ if given is None else given
        paths = [path for path in given.get("PYTHONPATH", "").split(os.pathsep) if path]
        if str(ENTRY_POINTS) not in paths:
            paths.append(str(ENTRY_POINTS))
        own = {"PYTHONPATH": os.pathsep.join(paths), VARIABLE: json.dumps(asdict(self))}
        return {**given, **own}

    def tell(self, word: Word) -> None:
        """Tell the command; on another machine its folder is missing, and nobody is told."""
        if self.words is not None:
            with suppress(OSError):
                os.close(os.open(Path(self.words) / word.name, os.O_CREAT | os.O_WRONLY))

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
        texts, step = (options.dirpath, options.words), options.audit_at
        if not all(isinstance(t, str | None) for t in texts) or not isinstance(step, int | None):
            raise TypeError(f"{VARIABLE}={text}: dirpath and words are text, audit_at is a number")
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


def words_in(folder: Path) -> set[Word]:
    """What processes have told the command that waits for them."""
    names = {path.name for path in folder.iterdir()}
    return {word for word in Word if word.name in names}


def _trials(given: dict[str, Any]) -> TrialLaunch:
    only, without = tuple(given.pop("only", ())), tuple(given.pop("without", ()))
    return TrialLaunch(only=only, without=without, **given)
