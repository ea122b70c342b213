"""Which renderer makes which form of a run's report?"""

from collections.abc import Callable, Mapping

from trainperf.analysis.summary.schema import Summary
from trainperf.reports.layout.json import summary_json
from trainperf.reports.run import markdown, text


FORMATS: Mapping[str, Callable[[Summary], str]] = {
    "text": text.render,
    "markdown": markdown.render,
    "json": summary_json,
}
