"""A vocabulary of 50,257 words: tensor cores take no product of that size whole."""

from pathlib import Path

from faults.base import Script
from faults.recorded_by_hand import product, write_run


def _train(out: Path, *, fixed: bool) -> None:
    words = 50_304 if fixed else 50_257
    write_run(
        out, product(((8192, 768), (768, words))), product(((8192, 768), (768, 3072)), calls=48)
    )


SCRIPT = Script(expected=("matmul_shapes",), train=_train, same_work=False)
