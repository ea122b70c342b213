"""Styles on a terminal, plain text everywhere else."""

import io
import re
from pathlib import Path

import pytest
from support.runs import RankSpec, make_steps, summary_of

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.escape import encodable
from trainperf.reports.layout.terminal import MOST_WIDTH
from trainperf.reports.run.text import rendered


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """Something to show."""
    return summary_of(tmp_path, [RankSpec(steps=make_steps(100, data_wait=20, forward=30))])


def shown(summary: Summary, stream: io.StringIO) -> str:
    """What is written to a stream."""
    stream.write(rendered(summary, stream))
    return stream.getvalue()


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_none_gets_none(
    summary: Summary, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Neither colours nor bold."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)

    assert "\x1b" not in shown(summary, Terminal())


def test_a_terminal_gets_styles_that_carry_no_information(
    summary: Summary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is bold, and the words are those without."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    plain = shown(summary, Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    styled = shown(summary, Terminal())

    assert "\x1b[1m" in styled
    bare = re.sub(r"\x1b\[[0-9;]*m", "", styled)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()


@pytest.mark.parametrize(("columns", "most"), [("20", 60), ("80", 80), ("400", MOST_WIDTH)])
def test_the_report_is_as_wide_as_the_terminal_within_reason(
    summary: Summary, monkeypatch: pytest.MonkeyPatch, columns: str, most: int
) -> None:
    """Not unreadably narrow, and no line across the whole screen."""
    monkeypatch.setenv("COLUMNS", columns)

    assert max(map(len, shown(summary, io.StringIO()).splitlines())) <= most


def test_a_stream_takes_what_it_can() -> None:
    """Bars become crosses only where they must."""
    ascii_stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")

    assert encodable("█▎ 2 × µs…", ascii_stream) == "# 2 x us..."
    assert encodable("█▎ 2 × µs…", io.StringIO()) == "█▎ 2 × µs…"
