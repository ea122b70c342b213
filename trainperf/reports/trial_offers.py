"""List of the built-in trials, for a terminal and for markdown: what each does, and where not."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from trainperf.analysis.diagnosis.offers import OfferedTrial
from trainperf.core.formatting.escape import markdown as safe
from trainperf.core.formatting.table import Table, markdown_table
from trainperf.core.formatting.wrap import WIDTH, wrapped
from trainperf.reports.layout.finding_view import NEXT


SECTIONS = {"change": "changes", "ceiling": "ceilings: work left out, to see what it costs"}
NOT_HERE = "not here"

_LATER = "What else does not apply each trial says itself, before it is tried."
_NEXT = "trainperf try SCRIPT tries what applies; --only ID and --without ID choose"


def lines(offers: Sequence[OfferedTrial], run: str = "", width: int = WIDTH) -> list[Text]:
    """Line by line; *run* names the run that was asked about, if one was."""
    out = [Text(_title(run), style="bold cyan")]
    room = max(len(offer.id) for offer in offers) + 2
    for kind, title in SECTIONS.items():
        out += [Text(), Text(f"  {title}")]
        for offer in offers:
            if offer.kind == kind and offer.applies is not False:
                out += map(Text, wrapped(offer.does, width, f"    {offer.id:<{room}}"))
    absent = [offer for offer in offers if offer.applies is False]
    if absent:
        out += [Text(), Text(f"  {NOT_HERE}")]
        for offer in absent:
            for line in wrapped(offer.why_not, width, f"    {offer.id:<{room}}"):
                out.append(Text(line, "dim"))
    out.append(Text())
    if run:
        out += [Text(line, "dim") for line in wrapped(_LATER, width, "  ")]
    return [*out, *(Text(line, "bold") for line in wrapped(_NEXT, width, f"  {NEXT}   "))]


def offers_markdown(offers: Sequence[OfferedTrial], run: str = "") -> str:
    """For issues and pull requests."""
    table = Table(head=("trial", "what it does", ""), rows=tuple(_cells(offers)), words=3)
    return f"### {safe(_title(run))}\n\n{markdown_table(table)}\n"


def _cells(offers: Sequence[OfferedTrial]) -> Iterator[tuple[str, str, str]]:
    for offer in offers:
        why = f"{NOT_HERE}: {offer.why_not}" if offer.applies is False else ""
        yield offer.id, offer.does, why


def _title(run: str) -> str:
    return f"trainperf try · what can be tried in {run}" if run else "trainperf try · what it tries"
