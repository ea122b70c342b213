"""List of the built-in trials: what each does, and where not."""

from collections.abc import Sequence

from trainperf.analysis.diagnosis.offers import OfferedTrial
from trainperf.reports.layout.document import Heading, Part, Sentence, section
from trainperf.reports.layout.finding_view import NEXT


SECTIONS = {"change": "changes", "ceiling": "ceilings: work left out, to see what it costs"}
NOT_HERE = "not here"

_LATER = (
    "What batches hold, which callbacks there are and what the chip can do shows in the training."
)
_NEXT = "trainperf try SCRIPT tries what applies; --only ID and --without ID choose"


def offers_document(offers: Sequence[OfferedTrial], run: str = "") -> list[Part]:
    """By kind, and those that do not apply; *run* names the run that was asked about, if any."""
    about = f"what can be tried in {run}" if run else "what it tries"
    parts: list[Part] = [Heading(f"trainperf try · {about}", 1)]
    for kind, title in SECTIONS.items():
        shown = [offer for offer in offers if offer.kind == kind and offer.applies is not False]
        parts += section(title, [Sentence(text=offer.does, label=offer.id) for offer in shown])
    absent = [offer for offer in offers if offer.applies is False]
    whys = [Sentence(text=offer.why_not, label=offer.id, kind="soft") for offer in absent]
    parts += section(NOT_HERE, whys)
    later = [Sentence(text=_LATER, kind="soft")] if run else []
    return [*parts, *section("then", later, [Sentence(text=_NEXT, label=NEXT, kind="first")])]
