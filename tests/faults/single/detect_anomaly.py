"""Autograd looks for anomalies, as it should only while one is being looked for."""

from pathlib import Path

from faults.base import ready, script, train
from faults.models import Classifier, perceptron


@script("debug_modes")
def _train(out: Path, *, fixed: bool) -> None:
    model = Classifier(perceptron(layers=24, width=64))
    train(out, model, ready(60, 64, 16), detect_anomaly=not fixed)
