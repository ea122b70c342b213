"""Environment of the trainings that `trainperf run`, `try` and `prove` launch."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path


VARIABLE = "TRAINPERF_RUN"

ENTRY_POINTS = Path(__file__).parents[1] / "plugins" / "launched"
"""Folder on the path of what is launched: with it Lightning and PyTorch find us.

No other process has it: an installed trainperf has no part in anybody's training.
"""


class LaunchSignal(Enum):
    """What a launched process tells the command: the name of a file that it leaves.

    The last ones are options that the script has chosen by itself.
    """

    LOADED = "torch was loaded"
    STEPPED = "an optimizer was stepped"
    RECORDED = "a fit was recorded"
    OWN_DIRECTORY = "--out"
    OWN_AUDIT = "--audit-at"


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


class TrialsOver(SystemExit):
    """The run was started for its trials, and they are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPlan:
    """Which step of a fit is audited."""

    at: int = 12
    """Its number in the fit, from 0: the warm-up is probably over, and 20 steps have eight left."""
    chosen: bool = True
    """Whether nobody has named it: then it is an ordinary step from *at* on, and one of a loop that
    an audit might hurt is captured instead, or left alone."""

    @classmethod
    def of(cls, at: int | None) -> "AuditPlan | None":
        """Of the step that somebody has named; `None` for no audit."""
        return None if at is None else cls(at=at, chosen=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What the command was told: options of `TrainPerf`, and where it hears of the training."""

    dirpath: str | None = None
    audit_at: int | None = None
    audit: bool = False
    """Whether a step is audited where *audit_at* names none."""
    signals: str | None = None
    """A folder for what processes tell the command; `None` if it does not want to know."""
    trials: TrialLaunch | None = None
    """Of a run that is started for its trials; `None` where nothing is tried."""

    def environment(self, given: Mapping[str, str] | None = None) -> dict[str, str]:
        """That of the training: *given* or this process's, with the options and entry points."""
        given = os.environ if given is None else given
        paths = [*given.get("PYTHONPATH", "").split(os.pathsep), str(ENTRY_POINTS)]
        from msgspec.json import encode  # noqa: PLC0415 a command's help needs none of it

        return {
            **given,
            "PYTHONPATH": os.pathsep.join(filter(None, dict.fromkeys(paths))),
            VARIABLE: encode(self).decode(),
        }

    @property
    def audit_plan(self) -> AuditPlan | None:
        """Which step is audited; `None` for none."""
        return AuditPlan.of(self.audit_at) or (AuditPlan() if self.audit else None)

    def joined(
        self,
        *,
        dirpath: str | None = None,
        audit_at: int | None = None,
    ) -> "LaunchOptions":
        """These, but for what the script itself has chosen: the command is told of that.

        A run that is started for its trials goes where the command looks for them.
        """
        if self.trials is not None:
            dirpath = self.dirpath or dirpath
        if dirpath is not None and self.dirpath not in (None, dirpath):
            self.send(LaunchSignal.OWN_DIRECTORY)
        if audit_at is not None and self.audit_at not in (None, audit_at):
            self.send(LaunchSignal.OWN_AUDIT)
        return replace(
            self,
            dirpath=self.dirpath if dirpath is None else dirpath,
            audit_at=self.audit_at if audit_at is None else audit_at,
        )

    def send(self, signal: LaunchSignal) -> None:
        """Tell the command; on another machine its folder is missing, and nobody is told."""
        if self.signals is not None:
            with suppress(OSError):
                os.close(os.open(Path(self.signals) / signal.name, os.O_CREAT | os.O_WRONLY))

    @classmethod
    def parse(cls, text: str) -> "LaunchOptions":
        """From the variable's value.

        Raises:
            msgspec.DecodeError: It is not JSON, or an option is of the wrong kind.
        """
        from msgspec.json import decode  # noqa: PLC0415 as above

        return decode(text, type=cls)

    @classmethod
    def of_this_process(cls) -> "LaunchOptions":
        """Those of the command that started this process; if none did, nothing is asked for.

        Raises:
            msgspec.DecodeError: As `parse`.
        """
        text = os.environ.get(VARIABLE)
        return cls.parse(text) if text else cls()


def signals_in(folder: Path) -> set[LaunchSignal]:
    """What processes have told the command that waits for them."""
    return {signal for signal in LaunchSignal if (folder / signal.name).exists()}
