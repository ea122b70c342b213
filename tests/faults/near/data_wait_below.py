"""Waiting for data takes some seven per cent of the step."""

from pathlib import Path

from faults.base import Script
from faults.loads import AtOnce, Fields, Nap, Paced, fit, loader


def _train(out: Path, *, fixed: bool) -> None:
    del fixed
    fit(out, loader(AtOnce(Nap(0.007), steps=34)), module=Fields(Paced(0.110)))


SCRIPT = Script(train=_train)
