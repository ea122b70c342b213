"""Walkthroughs of planted runs: what a stage takes and learns is written, not trained."""

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import torch
from support.runs import RankSpec, end_to_end, make_info, make_run_dir, make_step

from recipes.gpt2.model import GPT2
from recipes.gpt2.processes import Planned
from recipes.gpt2.stages import PRESETS, Settings, Stage
from recipes.gpt2.text import DocumentSpan
from recipes.gpt2.train import Recipe
from trainperf.core.phases import Tag
from trainperf.core.steps.records import RunInfo, StepRecord


PADDING, WAIT_MS = 0.25, 2.0


@dataclass(kw_only=True)
class Planted:
    """Stands where `Processes` do: writes records of runs whose settings decide their figures."""

    step_ms: Callable[[Settings], float] = lambda settings: 10.0
    loss: Callable[[Settings], float] = lambda settings: 2.0
    trained: list[tuple[str, Settings]] = field(default_factory=list)
    """What was run, in its order."""
    _last: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    def by_turns(
        self, work: Recipe, order: list[DocumentSpan], pairs: Sequence[tuple[Planned, Planned]]
    ) -> Generator[None, None, None]:
        """Leave the run directories of one pair after the other."""
        for pair in pairs:
            for run in pair:
                self.alone(work, order, run)
            yield

    def alone(self, work: Recipe, order: list[DocumentSpan], run: Planned) -> None:
        """Leave the run directory."""
        del order
        settings = run.settings
        self.trained.append((run.folder, settings))
        # Runs that take turns are told apart by when they began, in milliseconds.
        self._last = max(datetime.now(timezone.utc), self._last + timedelta(milliseconds=2))
        info = make_info(
            config={
                "model": "GPT2",
                "parameters": 1000,
                "dataset": "Documents",
                "num_workers": settings.workers,
                "attention": settings.attention,
            },
            hardware={"device_name": "a chip"},
        )
        known = {name: getattr(info, name) for name in info.__struct_fields__}
        begun = RunInfo(**{**known, "started_at": self._last.isoformat(timespec="milliseconds")})
        steps = self._steps(settings, len(self.trained))
        make_run_dir(work.out / run.folder / "trainperf", [RankSpec(steps=steps, info=begun)])

    @end_to_end
    def _steps(self, settings: Settings, seed: int) -> Iterator[StepRecord]:
        scatter = random.Random(seed)  # noqa: S311 noise, no secret
        tokens = 100 if settings.packed else round(100 / (1 - PADDING))
        for index in range(115):
            ms = self.step_ms(settings) * scatter.gauss(1.0, 0.01)
            waited = 0.0 if settings.workers else WAIT_MS
            yield make_step(
                index,
                tags=int(Tag.WARMUP) if index < 12 else 0,
                facts={
                    "loss": self.loss(settings) * scatter.gauss(1.0, 0.002),
                    "samples": 8,
                    "tokens_effective": 100,
                    "tokens_padded": tokens,
                },
                data_wait=waited,
                forward=ms,
            )


def small_work(out: Path, **changed: object) -> Recipe:
    """A walkthrough of the smallest model there is."""
    preset = replace(
        PRESETS["tiny"],
        layers=1,
        heads=2,
        width=16,
        context=32,
        documents=8,
        start=Settings(),
        every=True,
        turns=3,
        least_turns=2,
    )
    asked = {"minutes": 60.0, "steps": 4, **changed}
    return Recipe(preset=preset, seed=1, text=None, out=out, accelerator="cpu", **asked)  # type: ignore[arg-type]


def stage(name: str, apply: Callable[[Settings], Settings], **said: object) -> Stage:
    """A stage of a test's own."""
    return Stage(name=name, change=name, reason="planted", apply=apply, **said)  # type: ignore[arg-type]


def workers(kept: Settings) -> Settings:
    """One worker."""
    return replace(kept, workers=1)


def packed(kept: Settings) -> Settings:
    """Packed."""
    return replace(kept, packed=True)


def sdpa(kept: Settings) -> Settings:
    """Fused attention."""
    return replace(kept, attention="sdpa")


class Lacking(GPT2):
    """Has no memory for its optimizer where documents are packed."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Raises what torch raises."""
        if self.settings.packed:
            raise RuntimeError("out of memory\nand where")
        return super().configure_optimizers()
