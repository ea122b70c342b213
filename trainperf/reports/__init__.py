"""How results are shown.  To add a format of a run's report: a file here, a line in `formats`."""

NAMES = ("text", "markdown", "json")
"""The forms of every report, by the names that `--format` takes."""

__all__ = ["NAMES"]
