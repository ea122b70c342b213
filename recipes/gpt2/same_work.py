"""The work of a walkthrough, written down: a folder holds the stages of one only."""

import msgspec

from recipes.gpt2.outcomes import WORK, read, write_once
from recipes.gpt2.train import Recipe


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What all stages of one walkthrough have in common."""

    preset: str
    steps: int
    seed: int
    text: str
    accelerator: str


def demand_same_work(work: Recipe) -> None:
    """Write down what is trained, or check it against what was written.

    Raises:
        ValueError: The folder holds a walkthrough of other work.
    """
    mine = Identity(
        preset=work.preset.name,
        steps=work.steps,
        seed=work.seed,
        text=str(work.text or ""),
        accelerator=work.accelerator,
    )
    path = work.out / WORK
    theirs = read(Identity, path)
    if theirs is None:
        write_once(mine, path)
    elif theirs != mine:
        raise ValueError(
            f"out={work.out}: holds a walkthrough with other options; resume it with those, "
            "or name another folder with --out"
        )
