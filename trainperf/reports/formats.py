"""Which renderer makes which form of a run's report?"""

from collections.abc import Callable, Mapping

from trainperf.reports import json, markdown, text
from trainperf.results import Summary


FORMATS: Mapping[str, Callable[[Summary], str]] = {
    "text": text.render,
    "markdown": markdown.render,
    "json": json.render,
}
