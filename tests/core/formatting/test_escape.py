"""Names of users in reports: shown, never obeyed."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainperf.core.formatting.escape import markdown, plain


@given(text=st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    """No control, format, surrogate, private or separator character, whatever comes in."""
    assert not {unicodedata.category(c) for c in plain(text)} & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


@given(text=st.text())
def test_markdown_has_no_way_out(text: str) -> None:
    """No HTML, no cell border, no code span, no line break that is not escaped."""
    escaped = markdown(text)

    assert not set(escaped) & set("<>\n\r")
    for mark in "|`*_[]":
        assert escaped.count(mark) == escaped.count("\\" + mark)


@pytest.mark.parametrize(
    "text", ["Slow.on_train_batch_end", "größe µ 10 %", "日本語", "num_workers=0"]
)
def test_ordinary_names_read_as_they_are(text: str) -> None:
    """Escaping must not spoil the report."""
    assert plain(text) == text


def test_line_breaks_become_spaces() -> None:
    """One name, one line."""
    assert plain("a\r\nb\tc") == "a b c"
