"""How a summary is shown.  To add a format: a file here and a line in `FORMATS`."""

from collections.abc import Callable, Mapping

from trainperf.reports import json, markdown, text
from trainperf.results import Summary


FORMATS: Mapping[str, Callable[[Summary], str]] = {
    "text": text.render,
    "markdown": markdown.render,
    "json": json.render,
}

__all__ = ["FORMATS"]
