"""Bench of the accuracy: planted sleeps, masks, infinities and memory of known size, measured.

    python -m scripts.bench.accuracy [--only WORD] [--quick] [--json FILE]

The truth of a sleep is taken inside the sleeping function, by a clock that trainperf does not use.
A duration is right when it is off by at most 1 % or 50 µs per event, at the median; counts must be
exact.  `elsewhere` is the most that any other phase gained from the same sleep.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch

from scripts.bench.harness import arguments, machine_line, table, write_json
from scripts.bench.planted import (
    sleeping_callback,
    sleeping_checkpoint,
    sleeping_framework,
    sleeping_loader,
    sleeping_part,
    sleeping_validation,
    sleeping_workers,
)
from scripts.bench.planted_ranks import sleeping_rank
from scripts.bench.planted_values import masks, memory, overflows, whole_fit
from scripts.bench.truth import TruthCase
from trainperf.core.phases import Phase


Scenario = Callable[[int], TruthCase | list[TruthCase]]

SCENARIOS: dict[str, Scenario] = {
    "loader": sleeping_loader,
    "workers": sleeping_workers,
    "callback-start": sleeping_callback("on_train_batch_start"),
    "callback-end": sleeping_callback("on_train_batch_end"),
    "forward": sleeping_part("in_forward", Phase.FORWARD),
    "backward": sleeping_part("in_backward", Phase.BACKWARD),
    "optimizer": sleeping_part("in_optimizer", Phase.OPTIMIZER),
    "framework": sleeping_framework,
    "validation": sleeping_validation,
    "checkpoint": sleeping_checkpoint,
    "infinities": overflows(fused=False),
    "infinities-fused": overflows(fused=True),
    "masks": masks,
    "memory": memory,
    "fit": whole_fit,
    "rank-backward": sleeping_rank("before"),
    "rank-loop": sleeping_rank("after"),
}


def shown(cases: Sequence[TruthCase]) -> str:
    """All cases as a table, durations in milliseconds and their errors in microseconds."""
    head = ["planted", "found in", "truth", "came back", "off by", "95 % interval", "elsewhere", ""]
    return table(head, [_row(case) for case in cases])


def _row(case: TruthCase) -> list[str]:
    if case.unit != "s":
        relative = f"{100 * case.error / case.planted:.2f} %" if case.error else "0"
        amounts = [f"{case.planted:,.4g}", f"{case.came_back:,.4g}", relative, "", ""]
        if case.planted == int(case.planted):
            amounts[:2] = [f"{case.planted:,.0f}", f"{case.came_back:,.0f}"]
        return [case.name, case.reading, *amounts, case.verdict]
    interval = ""
    if case.error_low is not None and case.error_high is not None:
        interval = f"{case.error_low * 1e6:+.0f} to {case.error_high * 1e6:+.0f} µs"
    return [
        case.name,
        case.reading,
        f"{case.planted * 1e3:.3f} ms",
        f"{case.came_back * 1e3:.3f} ms",
        f"{case.error * 1e6:+.0f} µs ({100 * case.error / case.planted:+.2f} %)",
        interval,
        f"{case.elsewhere * 1e6:+.0f} µs" if case.elsewhere is not None else "",
        case.verdict,
    ]


def main() -> None:
    """Plant, measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--only", choices=list(SCENARIOS), action="append", help="default: all")
    parser.add_argument("--events", type=int, default=84, help="sleeps in a fit")
    parser.add_argument("--quick", action="store_true", help="20 events: shows that it works")
    given = parser.parse_args()
    torch.set_num_threads(1)
    events = 20 if given.quick else given.events
    cases: list[TruthCase] = []
    for name in given.only or SCENARIOS:
        scenario = SCENARIOS[name](events)
        cases += scenario if isinstance(scenario, list) else [scenario]
    print(f"{machine_line()}\n\n{shown(cases)}")
    verdicts = [case.verdict for case in cases]
    counts = {verdict: verdicts.count(verdict) for verdict in ("right", "unclear", "wrong")}
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    figures = [{**asdict(case), "error": case.error} for case in cases]
    write_json(given.json, {"events": events, "verdicts": counts, "cases": figures})


if __name__ == "__main__":
    main()
