"""Feeds the latency of a request batch, and looks now and then at how the model answers.

A look is of one step: hooks around the model's first forward in it, gone with the step.  The first
step is looked at, then one after ever more steps (the 2nd, the 5th, the 17th, …); of several models
one after the other.  A compiled model is left alone, for a hook would compile it anew, and one of
which the loop calls another method has no forward: of these the mode is looked at when the step
is over.
"""

from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import ClassVar

import torch
from torch import nn

from trainperf.audit.inference_state import (
    generator_state,
    grad_mode,
    graph_size,
    in_train_mode,
    node_s,
)
from trainperf.audit.stack_frames import place
from trainperf.core.phases import Phase
from trainperf.recording.probes.base import Probe
from trainperf.recording.process_objects import is_compiled
from trainperf.recording.recorder import Draft


_DATA_WAIT, _LOOP = int(Phase.DATA_WAIT), int(Phase.LOOP)
"""Phases in which no batch is being answered."""

_RARER = 4
"""Times as many steps before the next look."""


class InferenceProbe(Probe):
    """Measures how long a batch takes to be answered, and learns what spoils or slows answers.

    Args:
        models: That the loop calls.
        device: Where they are.
    """

    name: ClassVar[str] = "inference"
    facts: ClassVar[tuple[str, ...]] = ("latency_ns",)

    def __init__(self, models: Sequence[nn.Module], device: torch.device) -> None:
        self._turns = cycle(models)
        self._device = device
        self._model: nn.Module | None = None
        """The model that is looked at."""
        self._calls = 0
        """Of the model, in the step that is looked at."""
        self._states: dict[str, torch.Tensor] = {}
        self._next, self._looks = 1, 0

    def begin(self) -> None:
        """Wait for the first forward."""
        self._begin_look()

    def close(self, draft: Draft) -> None:
        """From the batch having come to `end_step`; and now and then another look.  Every step."""
        host_ns = draft.host_ns
        draft.facts["latency_ns"] = sum(host_ns) - host_ns[_DATA_WAIT] - host_ns[_LOOP]
        if self._model is not None:
            if not self._calls:
                self._look_at_mode(self._model)
            elif "answer_graph_nodes" in self.learned:
                self.learned["answer_calls"] = self._calls
            self._model, self._calls = None, 0
            self._states.clear()
            self.detach()
        if draft.index + 1 >= self._next:
            self._next = _RARER * (draft.index + 1)
            self._begin_look()

    def ended(self, reason: str) -> None:
        """Time a node of a graph, where there were any."""
        if "answer_graph_nodes" in self.learned:
            self.learned["graph_node_s"] = node_s()

    def _begin_look(self) -> None:
        model = self._model = next(self._turns, None)
        if model is None or is_compiled(model):
            return
        unplaced = "answers_drawn" in self.learned and "answers_drawn_in" not in self.learned
        follows = unplaced and not self.learned.get("train_mode")
        for name, part in model.named_modules() if follows else [("", model)]:
            if not is_compiled(part):
                self._watch(name, part)
        self.hear(model.register_forward_hook, partial(self._ends, model, follows))

    def _watch(self, name: str, part: nn.Module) -> None:
        """See whether *part* draws in its next forward; one that raises ends with nothing."""

        def begins(*_: object) -> None:
            if not self._calls:
                self._states[name] = generator_state(self._device)

        def ends(*hook: object) -> None:
            before = self._states.pop(name, None)
            drew = (
                before is not None
                and hook[-1] is not None
                and not torch.equal(before, generator_state(self._device))
            )
            if drew and not name:
                self.learned["answers_drawn"] = True
            elif drew and "answers_drawn_in" not in self.learned:
                # Inner modules end before outer ones.
                code = type(part).forward.__code__
                self.learned.update(
                    answers_drawn_in=f"{name} ({type(part).__name__})",
                    answers_drawn_at=place(code.co_filename, code.co_firstlineno),
                )

        self.hear(part.register_forward_pre_hook, begins)
        self.hear(part.register_forward_hook, ends, always_call=True)

    def _ends(self, model: nn.Module, followed: bool, *hook: object) -> None:  # noqa: FBT001
        """A forward of the model returned; the first of a step is looked at."""
        self._calls += 1
        if self._calls > 1:
            return
        self._look_at_mode(model)
        self._looks += 1
        self.learned["answers_looked_at"] = self._looks
        if followed:  # outside of its parts, if in none of them
            self.learned.setdefault("answers_drawn_in", "")
        self.learned.setdefault("grad_mode", grad_mode())
        graph = None if "answer_graph_nodes" in self.learned else graph_size(hook[-1])
        if graph is not None:
            self.learned.update(
                grad_mode=grad_mode(),
                answer_graph_nodes=graph.nodes,
                answer_graph_bytes=graph.kept_bytes,
            )

    def _look_at_mode(self, module: nn.Module) -> None:
        kinds = in_train_mode(module).most_common()
        named = ", ".join(f"{number:,} {kind}" for kind, number in kinds)
        self.learned["train_mode"] = named or self.learned.get("train_mode", "")
