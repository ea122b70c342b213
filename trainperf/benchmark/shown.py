"""Base of the results of benchmarks, which are shown as an answer, a table, and notes."""

from abc import abstractmethod
from collections.abc import Sequence

from trainperf.core.formatting.html.markup import fragment, paragraph, table, tag, text
from trainperf.core.formatting.table import Table, text_table
from trainperf.core.formatting.wrap import paragraphs


class Shown:
    """A result: `str(result)` is its report, and a notebook shows the same."""

    @abstractmethod
    def report(self) -> tuple[Sequence[str], Table, Sequence[str]]:
        """The sentences of the answer, the table, and notes."""

    def __str__(self) -> str:
        answer, grid, notes = self.report()
        return "\n".join([*paragraphs(answer), "", *text_table(grid), "", *paragraphs(notes)])

    def _repr_html_(self) -> str:
        """The same in a notebook."""
        answer, grid, notes = self.report()
        words = [place for place in range(len(grid.head)) if grid.is_words(place)]
        shown = table(grid.head, grid.rows, words=words)
        headings = [tag("h1", text(sentence)) for sentence in answer]
        soft = [paragraph(note, "soft") for note in notes]
        return fragment(tag("header", *headings, shown, *soft))
