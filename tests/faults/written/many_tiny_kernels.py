"""A device waits for the launches of six hundred products that have next to no work."""

from pathlib import Path

from faults.base import script
from faults.recorded_by_hand import product, write_run


@script("launch_bound", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    if fixed:
        write_run(out, product(((32 * 4096, 1024), (1024, 4096)), calls=6))
    else:
        behind = {"lead_forward": 0, "lead_backward": 0}
        write_run(out, product(((32, 64), (64, 64)), calls=600), facts=behind)
