"""The estimates file: what is written is read, and what is wrong is refused where it stands."""

import math
from pathlib import Path

import pytest
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.effort.decisions import with_estimates
from trainperf.analysis.effort.estimates import read_estimates, write_template
from trainperf.analysis.summary.schema import Summary
from trainperf.core.errors import ConfigError


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    """Of a run that waits for data."""
    info = make_info(config={"num_workers": 0})
    steps = make_steps(200, data_wait=20, forward=30)
    return summary_of(tmp_path, [RankSpec(steps=steps, info=info)])


def written(path: Path, text: str) -> Path:
    """A file with that text."""
    file = path / "effort.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_template_that_nobody_edited_changes_nothing(summary: Summary, tmp_path: Path) -> None:
    """All it says stands behind #."""
    file = tmp_path / "effort.toml"
    write_template(summary, file)

    assert with_estimates(summary, read_estimates(file)) == summary


def test_a_line_whose_mark_is_taken_away_counts(summary: Summary, tmp_path: Path) -> None:
    """The values in the template are those of the report: as estimates they give the same gain."""
    file = tmp_path / "effort.toml"
    write_template(summary, file)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("# speedup =", "speedup =", 1), encoding="utf-8")

    before = summary.decisions[0]
    after = with_estimates(summary, read_estimates(file)).decisions[0]
    assert after.part == before.part
    assert after.basis == "estimate"
    assert after.gain == pytest.approx(before.gain, rel=1e-3)


def test_estimates_are_not_overwritten(summary: Summary, tmp_path: Path) -> None:
    """Somebody may have thought about them."""
    file = written(tmp_path, "[data_wait]\ndays = 2")

    with pytest.raises(ConfigError, match="exists already"):
        write_template(summary, file)
    assert file.read_text(encoding="utf-8") == "[data_wait]\ndays = 2"


def test_whole_numbers_and_infinity_are_numbers(tmp_path: Path) -> None:
    """TOML tells them from decimals; a reader need not."""
    parts = read_estimates(written(tmp_path, "[data_wait]\nspeedup = inf\ndays = 2")).parts

    assert (parts["data_wait"].speedup, parts["data_wait"].days) == (math.inf, 2.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[data_wait\n", "line 1"),
        ("speedup = 2", r"\[speedup\]: Expected `object`"),
        ("[data_wait]\nsped = 2", r"\[data_wait\]: Object contains unknown field `sped`"),
        ("[data_wait]\nspeedup = 'two'", r"\[data_wait\]: Expected `float | null`"),
        ("[data_wait]\nspeedup = 0", "must be above 0"),
        ("[data_wait]\nspeedup = nan", "must be above 0"),
        ("[data_wait]\ndays = inf", "must be above 0"),
        ("[mine]\nshare = 1.5", "between 0 and 1"),
        ("[mine]\nshare = 0.5\nphase = 'forward'", "leave one of them out"),
    ],
)
def test_what_is_no_estimate_is_refused_with_its_place(tmp_path: Path, text: str, why: str) -> None:
    """The file, the table, and what one looks like."""
    with pytest.raises(ConfigError, match=why) as refused:
        read_estimates(written(tmp_path, text))
    assert "effort.toml" in str(refused.value)


def test_a_file_that_is_missing_says_how_to_get_one(tmp_path: Path) -> None:
    """By the command that writes it; bytes that are no text are refused as well."""
    with pytest.raises(ConfigError, match="--write-effort"):
        read_estimates(tmp_path / "none.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="utf-8"):
        read_estimates(binary)
