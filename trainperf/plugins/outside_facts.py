"""Words of a recording from outside about itself."""

from trainperf.core.formatting.units import share
from trainperf.core.loop_kind import OUTSIDE, OUTSIDE_WITH_LOADER
from trainperf.core.phases import Phase
from trainperf.core.steps.records import Scalar
from trainperf.plugins.outside_waits import BatchWaits
from trainperf.recording.probes.plain_loop import PlainLoopProbe


_MONITOR = "trainperf.loop.LoopMonitor tells them apart"
COARSE = (
    "coarse: recorded from outside. {} wait is everything between an update and the next forward: "
    f"the loader, the copy to the device, logging, the loop's own code; {_MONITOR}"
)
"""With whose waits these are to fill in."""
LOADER_HEARD = (
    "recorded from outside: data wait is the time in the DataLoader; the copy to the device, "
    f"logging and the loop's own code are other; {_MONITOR}"
)
FORWARD_UNSEEN = (
    "no forward of a trained module was seen: a step has no phases but its update, and data wait "
    "where a DataLoader was heard; the rest is other"
)


class OutsideProbe(PlainLoopProbe):
    """The loop's autocast and accumulation, as for a plain one, where nobody brackets anything."""

    def __init__(self, module: object, device: str, waits: BatchWaits) -> None:
        super().__init__(module, device)
        self._waits = waits

    def config(self) -> dict[str, Scalar]:
        """With what kind of loop it has turned out to be."""
        kind = OUTSIDE if self._waits.coarse() else OUTSIDE_WITH_LOADER
        return {**super().config(), "loop": kind.name}

    def reasons(self) -> dict[str, str]:
        """Why a phase has no time."""
        return dict.fromkeys(super().reasons(), "not measured: not to be told from outside")

    def notes(self) -> dict[str, str]:
        """How the phases were told apart."""
        heard = self._waits.divided_fraction
        whose = f"A DataLoader was heard in {share(heard)} of the waits; in the others data"
        return {
            "data_wait": COARSE.format(whose if heard else "Data")
            if self._waits.coarse()
            else LOADER_HEARD,
            **({"forward": FORWARD_UNSEEN} if Phase.FORWARD in self._unseen else {}),
        }
