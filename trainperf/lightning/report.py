"""What a person sees: a first answer when the warm-up ends, the report when the fit does."""

import logging
from collections.abc import Mapping

import lightning.pytorch as pl

from trainperf.lightning.session import Session
from trainperf.meters.fold import Reading


log = logging.getLogger("trainperf")


def announce(readings: Mapping[str, Reading]) -> None:
    """The first answer, so that nobody waits for the end of the fit."""


def report(session: Session, trainer: "pl.Trainer", *, aloud: bool, wait: bool) -> None:
    """Write the summary and print the report, on rank 0."""
