"""Reports: layouts of results.  To add a format: a file here, a line in `formats`."""

NAMES = ("text", "markdown", "json")
"""The forms of every report, by the names that `--format` takes."""

PAGES = (*NAMES, "html")
"""Those of a report that is also a page: of a run, a comparison, a capture."""

__all__ = ["NAMES", "PAGES"]
