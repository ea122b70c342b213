"""Feeds the latency of a request batch, and looks now and then at how the model answers.

A look is a hook around one forward, which removes itself; it is over with its step.  The first
step is looked at, then one after ever more steps (the 2nd, the 5th, the 17th, …); of several models
one after the other.  A compiled model is left alone, for a hook would compile it anew, and one of
which the loop calls another method has no forward: of these the mode is looked at when the step
is over.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from trainperf.audit.inference_state import (
    GraphSize,
    generator_state,
    grad_mode,
    graph_size,
    has_graph,
    in_train_mode,
    node_s,
)
from trainperf.audit.stack_frames import place
from trainperf.core.phases import Phase
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.plain_loop import FirstForwardHook, is_compiled
from trainperf.recording.recorder import Draft, Recorder


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
        self._models = models
        self._device = device
        self._handles: list[RemovableHandle] = []
        self._model: nn.Module | None = None
        """The model that is looked at."""
        self._begun = False
        self._before: torch.Tensor | None = None
        self._states: dict[str, torch.Tensor] = {}
        self._steps, self._next, self._turns = 0, 1, 0
        self._looks, self._calls = 0, 0
        self._config: dict[str, Scalar] = {}
        self._graph: GraphSize | None = None

    def attach(self, recorder: Recorder) -> None:
        """Wait for the first forward."""
        super().attach(recorder)
        self._column = recorder.column("latency_ns")
        self._arm()

    def detach(self) -> None:
        """Leave no hook behind."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._states.clear()
        self._before = None

    def close(self, draft: Draft) -> None:
        """From the batch having come to `end_step`; and now and then another look.  Every step."""
        host_ns = draft.host_ns
        draft.facts[self._column] = sum(host_ns) - host_ns[_DATA_WAIT] - host_ns[_LOOP]
        self._steps += 1
        if self._model is not None:
            self._end_look(self._model)
        if self._steps >= self._next:
            self._next = _RARER * self._steps
            self._arm()

    def ended(self, reason: str) -> None:
        """Time a node of a graph, where there were any."""
        del reason
        if self._graph is not None:
            self._config["graph_node_s"] = node_s()

    def config(self) -> dict[str, Scalar]:
        """What was seen; what was seen once to be wrong stays."""
        return self._config

    def _arm(self) -> None:
        if not self._models:
            return
        model = self._model = self._models[self._turns % len(self._models)]
        self._turns += 1
        self._begun = False
        if is_compiled(model):
            return
        self._handles = self._around(model, self._begins, self._ends)
        learned = self._config
        unplaced = "answers_drawn" in learned and "answers_drawn_in" not in learned
        if unplaced and not learned.get("train_mode"):
            for name, part in model.named_modules():
                if part is not model and not is_compiled(part):
                    self._follow(name, part)

    def _end_look(self, model: nn.Module) -> None:
        """The step is over, with a forward that was looked at or without one."""
        if not self._begun:
            self._look_at_mode(model)
        if self._calls:
            self._config["answer_calls"] = self._calls
            self._calls = 0
        self._model = None
        self.detach()

    def _around(
        self, part: nn.Module, begins: Callable[..., None], ends: Callable[..., None]
    ) -> list[RemovableHandle]:
        """One forward of it; one that raises ends too, with nothing returned."""
        return [
            part.register_forward_pre_hook(FirstForwardHook(self.shield(begins))),
            part.register_forward_hook(FirstForwardHook(self.shield(ends)), always_call=True),
        ]

    def _follow(self, name: str, part: nn.Module) -> None:
        """See whether *part* draws in the next forward: once, after answers were seen to."""

        def begins(*_: object) -> None:
            self._states[name] = generator_state(self._device)

        def ends(*hook: object) -> None:
            before = self._states.pop(name, None)
            if before is None or hook[-1] is None:
                return
            if torch.equal(before, generator_state(self._device)):
                return
            if "answers_drawn_in" not in self._config:  # inner modules end before outer ones
                code = type(part).forward.__code__
                self._config["answers_drawn_in"] = f"{name} ({type(part).__name__})"
                self._config["answers_drawn_at"] = place(code.co_filename, code.co_firstlineno)

        self._handles += self._around(part, begins, ends)

    def _begins(self, *_: object) -> None:
        self._begun = True
        if self._model is not None:
            self._look_at_mode(self._model)
        self._before = generator_state(self._device)

    def _ends(self, *hook: object) -> None:
        output, before, followed = hook[-1], self._before, len(self._handles) > 2
        self.detach()
        if output is None:  # it raised: whatever was drawn until somebody catches that is not ours
            return
        self._looks += 1
        self._config["answers_looked_at"] = self._looks
        if before is not None and not torch.equal(before, generator_state(self._device)):
            self._config["answers_drawn"] = True
        if followed:  # outside of its parts, if in none of them
            self._config.setdefault("answers_drawn_in", "")
        self._config.setdefault("grad_mode", grad_mode())
        if self._graph is None and has_graph(output):
            self._graph = graph_size(output)
            self._config["grad_mode"] = grad_mode()
        if self._graph is not None:
            self._config["answer_graph_nodes"] = self._graph.nodes
            self._config["answer_graph_bytes"] = self._graph.kept_bytes
            self._count()

    def _count(self, *_: object) -> None:
        """One more call of the model in this step."""
        self._calls += 1
        if self._model is not None:
            hook = FirstForwardHook(self.shield(self._count))
            self._handles.append(self._model.register_forward_hook(hook))

    def _look_at_mode(self, module: nn.Module) -> None:
        kinds = in_train_mode(module)
        self._config.setdefault("train_mode", "")
        if kinds:
            named = (f"{number:,} {kind}" for kind, number in kinds.most_common())
            self._config["train_mode"] = ", ".join(named)
