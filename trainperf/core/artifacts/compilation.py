"""Contents of `compile.json`: what `torch.compile` did in a fit, readable offline.

What was compiled before the fit began is not in it.  `None` means *not known*, which `reasons`
explains.
"""

from typing import ClassVar

import msgspec

from trainperf.core.artifacts import Document


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """One compilation of one function, or of the part of it between two graph breaks."""

    function: str
    """E.g. `forward`, or `torch_dynamo_resume_in_forward_at_15` for what follows a break there.

    Empty where torch does not say, as of a backward, and for a compiled module whose forward is
    torch's own.
    """
    where: str
    """`file:line` of its first line; empty as `function` is."""
    step: int | None
    """The step that waited for it; `None` in a gap, such as validation."""
    seconds: float | None
    """Host time that the compiler took."""
    reason: str | None
    """The guard that failed, in torch's words; `None` the first time the function is compiled."""
    backward: bool = False
    """Whether it is the backward of graphs compiled earlier."""
    gave_up: bool = False
    """Torch refused: it had compiled this function too often, and runs it as it is written."""
    unrecorded: str | None = None
    """Why it is no CUDA graph, in the words of torch; `None` also where none was to be."""


class GraphBreak(msgspec.Struct, frozen=True, kw_only=True):
    """A place at which a graph had to end."""

    reason: str
    """In torch's words: its explanation, or the first line where it gives none."""
    where: str
    """`file:line` of the user's code; empty where torch does not say."""
    times: int
    """Graphs that ended there; each compilation counts anew."""


class CompiledStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step in which something was compiled."""

    step: int
    wall_s: float
    """Of the whole step, the compiler's time in it."""


class Compilation(Document, frozen=True, kw_only=True):
    """Graphs, breaks between them, and what was compiled again, on rank 0."""

    file: ClassVar[str] = "compile.json"
    graphs: int
    """Built in this fit, those of validation included."""
    compile_s: float | None = None
    """Host time that torch spent compiling, in all."""
    recorded: int = 0
    """CUDA graphs that compiled code has recorded in this fit."""
    unrecorded: int = 0
    """Graphs, forward and backward apart, that were to be CUDA graphs and are none."""
    compiled: tuple[Compiled, ...] = ()
    """In their order, the first thousand."""
    breaks: tuple[GraphBreak, ...] = ()
    """Those that cost most graphs first."""
    steps: tuple[CompiledStep, ...] = ()
    """In their order."""
    reasons: dict[str, str] = msgspec.field(default_factory=dict)
    """Field to why it is not known."""

    @property
    def recompiled(self) -> tuple[Compiled, ...]:
        """What was compiled again because a guard failed."""
        return tuple(entry for entry in self.compiled if entry.reason is not None)
