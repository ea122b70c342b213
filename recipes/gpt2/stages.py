"""What is trained, and what changes from stage to stage?  Data only.

To add a stage: a row in `STAGES`; if it needs a new switch, a field of `Settings` with the
baseline's value as its default, and the one line in `train.py` or `model.py` that reads it.
"""

from dataclasses import asdict, dataclass, replace


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
    """Documents per step.  Every stage trains on the same ones in the same step."""
    steps: int
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
            documents=8,
            steps=200,
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
            steps=100,
            learning_rate=6e-4,
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the work is done.  The defaults are the baseline: what a first script does."""

    packed: bool = False
    """Several documents per row instead of one row per document, padded to the longest."""
    attention: str = "eager"
    """`attn_implementation` of transformers."""
    workers: int = 0
    """Loader processes, kept alive between epochs; 0 loads in the training process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One row of the walkthrough: the settings, and why they changed."""

    name: str
    change: str
    """What differs from the stage before, in a few words."""
    reason: str
    """What there is to gain, and from what it is seen."""
    settings: Settings


_BASELINE = Settings()
_PACKED = replace(_BASELINE, packed=True)
_SDPA = replace(_PACKED, attention="sdpa")
_LOADER = replace(_SDPA, workers=1)

STAGES: tuple[Stage, ...] = (
    Stage(
        name="baseline",
        change="fp32, eager, padded",
        reason="what a first script does: one document per row, padded to the longest of the "
        "batch, read and tokenised when it is asked for",
        settings=_BASELINE,
    ),
    Stage(
        name="packed",
        change="documents packed",
        reason="padding is computed like text and teaches nothing: the padding fraction is the "
        "share of the work that goes away",
        settings=_PACKED,
    ),
    Stage(
        name="sdpa",
        change="fused attention",
        reason="eager attention writes a score for every pair of tokens to memory, several times "
        "over; the fused kernel (attn_implementation='sdpa') keeps them in cache",
        settings=_SDPA,
    ),
    Stage(
        name="loader",
        change="one worker",
        reason="while the step computes, another process (num_workers=1) can read and tokenise "
        "the next one; the data-wait fraction is the most this can gain",
        settings=_LOADER,
    ),
)


def differing(before: Settings, after: Settings) -> list[str]:
    """Names of the settings in which two stages differ."""
    old, new = asdict(before), asdict(after)
    return [name for name in old if old[name] != new[name]]


def chosen(names: str) -> list[Stage]:
    """The stages named in a comma-separated list, in the table's order; `all` is all of them.

    Raises:
        ValueError: a name is not in the table.
    """
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    unknown = wanted - {stage.name for stage in STAGES} - {"all"}
    if unknown or not wanted:
        known = ", ".join(stage.name for stage in STAGES)
        raise ValueError(f"stages={names!r}: no such stage; choose from all, {known}")
    return [stage for stage in STAGES if "all" in wanted or stage.name in wanted]
