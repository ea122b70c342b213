"""How is a Trainer measured whose script does not know of us?  As with `TrainPerf()`, once."""

from collections.abc import Mapping

from typing_extensions import override

from trainperf.lightning.callback import TrainPerf


class Unasked(TrainPerf):
    """A `TrainPerf` that may stand beside the script's own, which then leads."""

    @property
    @override
    def state_key(self) -> str:
        """Another than that of `TrainPerf`: Lightning refuses two callbacks of one key."""
        return "trainperf run"


def unasked(wanted: Mapping[str, object]) -> Unasked:
    """The callback with the options of `trainperf run`.

    Raises:
        ConfigError: A value is refused.
        TypeError: One is of another kind.
    """
    dirpath, audit_at = wanted.get("dirpath"), wanted.get("audit_at")
    if not isinstance(dirpath, str | None) or not isinstance(audit_at, int | None):
        raise TypeError(f"{wanted}: dirpath is text and audit_at a number, or neither is there")
    return Unasked(
        dirpath=dirpath, audit_at=audit_at, loader_anatomy=bool(wanted.get("loader_anatomy"))
    )
