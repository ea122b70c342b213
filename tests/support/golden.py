"""Golden reports: `python tests/support/golden.py` writes them anew, to be read before a commit."""

import sys
import tempfile
from pathlib import Path

from support.cases import CASES, Case
from support.runs import make_run_dir
from support.tried import TRIED

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.layout.text import as_text
from trainperf.reports.run import text
from trainperf.reports.run.document import run_document
from trainperf.reports.trials import trials_document


GOLDEN = Path(__file__).parents[1] / "golden"
MARKDOWN = ("loader_bound", "straggler", "hostile")


def summary_of_case(case: Case, path: Path) -> Summary:
    """The summary of a case, written below *path* and read back."""
    directory = make_run_dir(path / "gpt2-tiny" / "trainperf", case.ranks)
    with (directory / f"steps-rank{case.ranks[0].info.rank}.jsonl").open("ab") as file:
        file.write(case.damage)
    run = Run.open(directory)
    return summarize(run, now_s=run.last_write_s() + case.silent_s)


def rendered(case: Case, path: Path) -> str:
    """The text report of a case."""
    lines = text.lines(summary_of_case(case, path), case.width)
    return "".join(line.plain.rstrip() + "\n" for line in lines)


def main() -> None:
    """Write all golden files."""
    for name, make in CASES.items():
        with tempfile.TemporaryDirectory() as path:
            (GOLDEN / f"{name}.txt").write_text(rendered(make(), Path(path)), encoding="utf-8")
            if name in MARKDOWN:
                document = as_markdown(run_document(summary_of_case(make(), Path(path))))
                (GOLDEN / f"{name}.md").write_text(document, encoding="utf-8")
    for name, trials in TRIED.items():
        (GOLDEN / "trials" / f"{name}.txt").write_text(
            as_text(trials_document(trials)), encoding="utf-8"
        )
    document = as_markdown(trials_document(TRIED["best"]))
    (GOLDEN / "trials" / "best.md").write_text(document, encoding="utf-8")
    sys.stdout.write(f"{len(CASES) + len(TRIED)} reports in {GOLDEN}: read them\n")


if __name__ == "__main__":
    main()
