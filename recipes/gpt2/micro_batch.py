"""Choice of a larger micro-batch: the smallest with about the throughput of the best.

Candidates divide the update evenly and run with the settings that the stage would train with.
"""

from dataclasses import replace

import torch
from torch.nn.functional import cross_entropy

from recipes.gpt2.batches import IGNORED, Batch
from recipes.gpt2.stages import Settings
from recipes.gpt2.text import DocumentDataset, DocumentSpan
from recipes.gpt2.train import Recipe, collate
from trainperf.benchmark import sweep


_AUTOCAST = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


def with_swept_batch(
    work: Recipe, kept: Settings, tried: Settings, order: list[DocumentSpan]
) -> Settings:
    """*tried*, with the micro-batch at the knee of its throughput; one choice needs no sweep."""
    documents = work.preset.documents
    fewer = [n for n in range(kept.accumulation - 1, 0, -1) if documents % n == 0]
    if len(fewer) < 2:
        return tried
    result = sweep(
        _Step(work, tried),
        lambda size, _: _batch(work, tried, order[:size]),
        [documents // accumulation for accumulation in fewer],
    )
    knee = result.knee()
    chosen = tried.accumulation if knee is None else documents // knee.batch_size
    return replace(tried, accumulation=chosen)


class _Step:
    """Forward and backward of one micro-batch; no update, which is the same for all sizes."""

    def __init__(self, work: Recipe, settings: Settings) -> None:
        self._model = work.model(work.preset, settings).to(_device(work)).train()
        self._dtype = _AUTOCAST.get(settings.precision)

    def __call__(self, batch: Batch) -> None:
        kind = next(iter(batch.values())).device.type
        with torch.autocast(kind, dtype=self._dtype, enabled=self._dtype is not None):
            logits, labels = self._model.logits(batch).flatten(0, 1), batch["labels"].flatten()
            loss = cross_entropy(logits, labels, ignore_index=IGNORED)
        loss.backward()  # type: ignore[no-untyped-call]
        self._model.zero_grad()


def _batch(work: Recipe, settings: Settings, order: list[DocumentSpan]) -> Batch:
    documents = DocumentDataset(order)
    batch = collate(work.preset, settings)([documents[number] for number in range(len(order))])
    return {name: tensor.to(_device(work)) for name, tensor in batch.items()}


def _device(work: Recipe) -> torch.device:
    cuda = work.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    return torch.device("cuda" if cuda else "cpu")
