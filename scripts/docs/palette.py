"""Colours of the documentation's pictures: those of the report pages, light."""

from trainperf.core.formatting.html.palette import NEUTRALS, PHASE_COLOURS
from trainperf.core.phases import Phase


COLOURS = {
    **{name: NEUTRALS[name][0] for name in ("page", "card", "line", "accent")},
    "ink": NEUTRALS["text"][0],
    "soft": NEUTRALS["quiet"][0],
    "live": PHASE_COLOURS[Phase.H2D][0],
    "offline": PHASE_COLOURS[Phase.FORWARD][0],
}
"""By what they are for."""
