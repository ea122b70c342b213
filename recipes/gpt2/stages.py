"""Presets and stages: what is trained, and what changes from stage to stage.  Data only.

To add a stage: a row in `STAGES`; if it needs a new switch, a field of `Settings` with the
baseline's value as its default, the one line in `train.py` or `model.py` that reads it, and in
`machine.py` what it needs; its prediction is a function in `bounds.py`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from recipes.gpt2 import bounds
from recipes.gpt2.bounds import Bounded
from trainperf.analysis.rules.base import Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The work, which is the same in every stage."""

    name: str
    layers: int
    heads: int
    width: int
    """Size of a token's hidden vector."""
    vocabulary: int
    """Rows of the embedding.  Ids above 257 never occur in byte-level text."""
    context: int
    """The most tokens one row holds."""
    blank_lines: int
    """How many blank lines end a document; one cuts text into paragraphs."""
    documents: int
    """Documents per update.  Every stage trains on the same ones in the same update."""
    accumulation: int
    """Micro-batches per update in the baseline."""
    steps: int
    """Updates per run.  Losses are compared over at least the last twenty; many short runs in turns
    tell more about a change than a few long ones."""
    turns: int
    """Most pairs of runs per stage; time may allow fewer."""
    least_turns: int
    """Fewest pairs of runs per stage.  An interval over two pairs is more than three times as wide
    as one over three: only an unshared GPU is steady enough for that."""
    minutes: float
    """Limit for all runs together."""
    learning_rate: float


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        # Small enough for 60 ms a step on two CPU cores, large enough that attention, the
        # feed-forward layers and the loader all show up in the report.
        Preset(
            name="tiny",
            layers=2,
            heads=4,
            width=64,
            vocabulary=258,
            context=256,
            blank_lines=1,
            documents=6,
            accumulation=2,
            steps=72,
            turns=4,
            least_turns=3,
            minutes=4.75,
            learning_rate=3e-3,
        ),
        # The 124 M model.  It keeps the 50,257 rows of GPT-2's vocabulary although bytes use 258
        # of them: without them it is an 86 M model, and its step is not the published one.  Two
        # blank lines end a document: in Python source that is a whole top-level definition.
        Preset(
            name="small",
            layers=12,
            heads=12,
            width=768,
            vocabulary=50257,
            context=1024,
            blank_lines=2,
            documents=16,
            accumulation=4,
            steps=110,
            turns=3,
            least_turns=2,
            minutes=8.5,
            learning_rate=6e-4,
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the work is done.  The defaults are the baseline: what a first script does."""

    accumulation: int = 2
    """Micro-batches per update; the documents of an update are shared out among them."""
    workers: int = 0
    """Loader processes, kept alive between epochs; 0 loads in the training process.

    With them batches are pinned where there is a GPU, and Lightning's copy does not block.
    """
    packed: bool = False
    """Several documents per row instead of one row per document, padded to the longest."""
    attention: str = "eager"
    """`attn_implementation` of transformers."""
    tf32: bool = False
    """`torch.set_float32_matmul_precision("high")`."""
    precision: str = "32-true"
    """Lightning's name of it."""
    checkpointing: bool = False
    """Activations of a block are computed again in backward instead of being kept."""
    compiled: str = ""
    """Mode of `torch.compile`; empty runs the model as it is written."""
    fused: bool = False
    """The AdamW update as one kernel."""
    vocabulary_multiple: int = 1
    """The embedding gets rows that no token uses, up to a multiple of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One row of the walkthrough: one change of the settings that were kept last."""

    name: str
    change: str
    """What changes, in a few words."""
    reason: str
    """What there is to gain, and what shows it."""
    apply: Callable[[Settings], Settings] = replace
    """From the settings kept last to those of this stage."""
    bound: Callable[[Evidence], Bounded] = bounds.nothing
    """The most it can gain, from the evidence of the run kept last."""
    finding: str = ""
    """Id of the finding that asks for it."""
    sweeps: bool = False
    """Whether a sweep chooses the micro-batch."""
    on_request: bool = False
    """Runs only where it is named on the command line."""


STAGES: tuple[Stage, ...] = (
    Stage(
        name="baseline",
        change="fp32, eager, padded",
        reason="what a first script does: one document per row, padded to the longest of the "
        "batch, read and tokenised when it is asked for",
    ),
    Stage(
        name="loader",
        change="one worker, pinned",
        reason="while the step computes, another process (num_workers=1) can read and tokenise "
        "the next one, and a pinned batch is copied without blocking",
        apply=lambda kept: replace(kept, workers=1),
        bound=bounds.one_worker,
        finding="data_wait",
    ),
    Stage(
        name="packed",
        change="documents packed",
        reason="padding is computed like text and teaches nothing: the padding fraction is the "
        "share of the work that goes away",
        apply=lambda kept: replace(kept, packed=True),
        bound=bounds.of_product("padding", otherwise=bounds.packing),
        finding="padding",
    ),
    Stage(
        name="sdpa",
        change="fused attention",
        reason="eager attention writes a score for every pair of tokens to memory, several times "
        "over; the fused kernel (attn_implementation='sdpa') keeps them in cache",
        apply=lambda kept: replace(kept, attention="sdpa"),
        bound=bounds.of_product("attention", otherwise=bounds.little_in_audit(warm=False)),
        finding="attention",
    ),
    Stage(
        name="tf32",
        change="products in TF32",
        reason="tensor cores multiply fp32 numbers with ten bits of mantissa many times faster",
        apply=lambda kept: replace(kept, tf32=True),
        bound=bounds.in_precision("tf32"),
        finding="matmul_precision",
    ),
    Stage(
        name="fp16",
        change="AMP, fp16, GradScaler",
        reason="half the bytes and the fast tensor cores; gradients are scaled so that they do "
        "not vanish, and updates are skipped where they overflow",
        apply=lambda kept: replace(kept, precision="16-mixed"),
        bound=bounds.in_precision("fp16"),
        finding="matmul_precision",
    ),
    Stage(
        name="bf16",
        change="AMP, bf16",
        reason="the range of fp32 in half the bytes: no scaler, and no update is skipped",
        apply=lambda kept: replace(kept, precision="bf16-mixed"),
        bound=bounds.in_precision("bf16"),
        finding="matmul_precision",
    ),
    Stage(
        name="checkpoint",
        change="checkpointing, larger micro-batch",
        reason="what is computed again need not be kept: a slower forward and backward, of "
        "larger micro-batches and fewer of them; a sweep says how large",
        apply=lambda kept: replace(
            kept, checkpointing=True, accumulation=max(1, kept.accumulation // 2)
        ),
        bound=bounds.larger_batch,
        sweeps=True,
    ),
    Stage(
        name="compile",
        change="torch.compile",
        reason="chains of elementwise operators become one kernel, and Python goes away; the "
        "first step pays for it",
        apply=lambda kept: replace(kept, compiled="default"),
        bound=bounds.compiled,
        finding="elementwise_chain",
    ),
    Stage(
        name="fused",
        change="fused AdamW",
        reason="an update of one operator after another reads and writes every value many times",
        apply=lambda kept: replace(kept, fused=True),
        bound=bounds.of_product("optimizer_not_fused", otherwise=bounds.little_in_audit(warm=True)),
        finding="optimizer_not_fused",
    ),
    Stage(
        name="vocabulary",
        change="vocabulary a multiple of 64",
        reason="kernels take sizes in tiles: a vocabulary of an odd size is slow in the largest "
        "product of the step",
        apply=lambda kept: replace(kept, vocabulary_multiple=64),
        bound=bounds.of_product("matmul_shapes", otherwise=bounds.vocabulary),
        finding="matmul_shapes",
    ),
    Stage(
        name="graphs",
        change="CUDA graphs",
        reason="torch.compile(mode='reduce-overhead') launches a whole graph at once",
        apply=lambda kept: replace(kept, compiled="reduce-overhead"),
        bound=bounds.of_product("launch_bound", otherwise=bounds.launches),
        finding="host_bound",
    ),
    Stage(
        name="autotune",
        change="max-autotune",
        reason="torch.compile(mode='max-autotune') tries several kernels for each product; it "
        "compiles for minutes, so it runs only where it is named",
        apply=lambda kept: replace(kept, compiled="max-autotune"),
        bound=bounds.speed_of_light,
        on_request=True,
    ),
)


def differing(before: Settings, after: Settings) -> list[str]:
    """Names of the settings in which two stages differ."""
    old, new = asdict(before), asdict(after)
    return [name for name in old if old[name] != new[name]]


def chosen(names: str, stages: tuple[Stage, ...] = STAGES) -> list[Stage]:
    """The stages of a comma-separated list, in the table's order.

    `all` leaves out those that run on request only.  The baseline is always among them: what is
    not compared is not proved.

    Raises:
        ValueError: a name is not in the table.
    """
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    unknown = wanted - {stage.name for stage in stages} - {"all"}
    if unknown or not wanted:
        names_known = ", ".join(stage.name for stage in stages)
        raise ValueError(f"stages={names!r}: no such stage; choose from all, {names_known}")
    return [
        stage
        for place, stage in enumerate(stages)
        if place == 0 or stage.name in wanted or ("all" in wanted and not stage.on_request)
    ]
