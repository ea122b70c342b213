"""Simulated jobs of many ranks: record files by an arrival-time model, traces from a real one.

    python -m scripts.simulate_ranks OUT --ranks 1024 --steps 2000 --plant 3:data_wait:20
    python -m scripts.simulate_ranks OUT --ranks 256 --trace FILE --packed-mb 16 --plant 3::5

`OUT/trainperf` then holds the records, or `OUT/traces` the traces, and `OUT/truth.json` what was
planted.  A plant is `RANKS:PIECE:MS[:SHARE]`; ranks are `3`, `8-15`, or `0-63*` for one of these at
a time, drawn anew for each step.  What the model has and has not: `scripts/simulation/arrivals.py`.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from scripts.simulation import records, traces
from scripts.simulation.arrivals import PIECES, Job, Plant


def plant_of(text: str) -> Plant:
    """What `--plant` says."""
    ranks, piece, delay_ms, *share = text.split(":")
    first, _, last = ranks.rstrip("*").partition("-")
    if piece and piece not in PIECES:
        raise SystemExit(f"{piece}: none of {', '.join(PIECES)}")
    return Plant(
        ranks=tuple(range(int(first), int(last or first) + 1)),
        piece=piece,
        delay_ms=float(delay_ms),
        share=float(share[0]) if share else 1.0,
        rotates=ranks.endswith("*"),
    )


def main() -> None:
    """Write, and say how much."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--loop", choices=("lightning", "plain"), default="lightning")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--plant", type=plant_of, action="append", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", type=Path, help="write traces made from this one, no records")
    parser.add_argument("--packed-mb", type=float, default=1.0, help="of each trace")
    given = parser.parse_args()
    begun = time.perf_counter()
    if given.trace:
        late = given.plant[0] if given.plant else None
        traced = traces.TraceJob(
            ranks=given.ranks,
            packed_bytes=int(given.packed_mb * 1e6),
            late=late.ranks[0] if late else None,
            delay_ms=late.delay_ms if late else 0.0,
            seed=given.seed,
        )
        written = traces.write(traced, given.trace, given.out / "traces")
        (given.out / "truth.json").write_text(json.dumps(asdict(traced), indent=2) + "\n")
    else:
        job = Job(
            ranks=given.ranks,
            steps=given.steps,
            loop=given.loop,
            device=given.device,
            plants=tuple(given.plant),
            seed=given.seed,
        )
        written = records.write(job, given.out / "trainperf")
        records.write_truth(job, given.out / "truth.json")
    print(f"{written / 1e6:,.1f} MB in {time.perf_counter() - begun:.1f} s: {given.out}")


if __name__ == "__main__":
    main()
