"""The model under `torch.compile`."""

import torch
from torch import nn

from trainperf.trials.training import Training
from trainperf.trials.trial import Trial, cannot


ID, TITLE = "compile", "torch.compile"
RULES = ("launch_bound", "elementwise_chain")


def compiled(training: Training) -> list[Trial]:
    """Compiled once, in the first step with it; between the blocks torch runs the model eagerly.

    The stance that does so holds for the whole process, so a training that compiles something
    itself is left alone.
    """
    parts = training.parts_to_compile()
    every = [part for part in training.module.modules() if part._compiled_call_impl is not None]  # noqa: SLF001 torch tells it nowhere else
    if every or hasattr(training.module, "_orig_mod"):  # what torch.compile(model) returns
        return [cannot(ID, "parts of it are compiled already", title=TITLE, rules=RULES)]
    if not parts:
        return [cannot(ID, "no part of the model has a forward to compile", title=TITLE)]
    switch = _Compiled(parts)
    return [
        Trial(
            ID,
            on=switch.on,
            off=switch.off,
            title=TITLE,
            apply=_line(training.module, parts),
            rules=RULES,
            run_last=True,
            finish=switch.finish,
        )
    ]


def _line(module: nn.Module, parts: list[nn.Module]) -> str:
    names = {id(part): name for name, part in module.named_modules()}
    places = [names.get(id(part), "") for part in parts]
    return "; ".join(f"model.{place}.compile()" if place else "model.compile()" for place in places)


class _Compiled:
    def __init__(self, parts: list[nn.Module]) -> None:
        self._parts = parts
        self._is_compiled = False

    def on(self) -> None:
        if not self._is_compiled:
            for part in self._parts:
                part.compile()
            self._is_compiled = True
        torch.compiler.set_stance("default")

    def off(self) -> None:
        torch.compiler.set_stance("force_eager")

    def finish(self) -> None:
        """No part is compiled any more, and whatever is compiled next runs so."""
        for part in self._parts:
            part._compiled_call_impl = None  # noqa: SLF001 nothing public undoes compile()
        self._is_compiled = False
        torch.compiler.set_stance("default")
