"""The model under `torch.compile`."""

from functools import partial

import torch
from torch import nn

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial


def compiled(training: Training) -> list[Trial]:
    """Compiled once, in the first step with it; between the blocks torch runs the model eagerly.

    The stance that does so holds for the whole process, so a training that compiles something
    itself is left alone.
    """
    module, parts = training.module, training.parts_to_compile()
    is_compiled = any(part._compiled_call_impl is not None for part in module.modules())  # noqa: SLF001 torch tells it nowhere else

    def on() -> None:
        for part in parts:
            if part._compiled_call_impl is None:  # noqa: SLF001 same
                part.compile()
        torch.compiler.set_stance("default")

    def finish() -> None:
        """No part is compiled any more, and whatever is compiled next runs so."""
        for part in parts:
            part._compiled_call_impl = None  # noqa: SLF001 nothing public undoes compile()
        torch.compiler.set_stance("default")

    return [
        Trial(
            "compile",
            on=on,
            off=partial(torch.compiler.set_stance, "force_eager"),
            title="torch.compile",
            apply=_line(module, parts),
            run_last=True,
            finish=finish,
            unavailable={
                # What torch.compile(model) returns has the original in it.
                "parts of it are compiled already": is_compiled or hasattr(module, "_orig_mod"),
                "no part of the model has a forward to compile": not parts,
            },
        )
    ]


def _line(module: nn.Module, parts: list[nn.Module]) -> str:
    names = {id(part): name for name, part in module.named_modules()}
    places = [names.get(id(part), "") for part in parts]
    return "; ".join(f"model.{place}.compile()" if place else "model.compile()" for place in places)
