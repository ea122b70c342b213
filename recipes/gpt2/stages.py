"""Presets and stages: what is trained, and what changes from stage to stage.  Data only.

To add a stage: a row in `STAGES`; if it needs a new switch, a field of `Settings` with the
baseline's value as its default, the one line in `train.py` or `model.py` that reads it, and in
`machine.py` what it needs; its prediction is a function in `bounds.py`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from recipes.gpt2 import bounds
from recipes.gpt2.bounds import Bounded
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the work is done.  The defaults are the baseline of the large preset.

    The small one starts from `FIRST_SCRIPT`.
    """

    accumulation: int = 2
    """Micro-batches per update; the documents of an update are shared out among them."""
    workers: int = 0
    """Loader processes, kept alive between epochs; 0 loads in the training process.

    With them batches are pinned where there is a GPU, and Lightning's copy does not block.
    """
    cached: bool = False
    """The text is tokenised once, before the first step; else whenever a document is asked for."""
    trimmed: bool = True
    """A batch is padded to its longest document; else to the whole context."""
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
    histograms_every: int = 0
    """Steps between histograms of all weights and gradients; 0 writes none."""
    metrics_every: int = 0
    """Steps between metrics of the training batch; 0 computes none."""
    log_every: int = 10
    """Steps between rows of the loggers."""
    vocabulary_multiple: int = 1
    """The embedding gets rows that no token uses, up to a multiple of this."""


FIRST_SCRIPT = Settings(
    accumulation=1, trimmed=False, histograms_every=1, metrics_every=1, log_every=1
)
"""What a beginner writes.  Every habit is one that people are known to have:

* text read and tokenised in `__getitem__`, in Python, without workers: torchtitan#2073
* every row padded to the whole context: `padding="max_length"`
* attention that writes a score for each pair of tokens, fp32, an update parameter by parameter:
  the defaults of `attn_implementation="eager"` models, of torch and of its AdamW on a CPU
* metrics, rows of the loggers and histograms of all weights and gradients in every step:
  Lightning#1986, Lightning#17725
"""


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
    start: Settings
    """The baseline."""
    every: bool
    """Whether stages are tried that no finding asks for; else only tempting ones."""
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
        # Small enough for 0.2 s per step of the first script on two CPU cores, large enough that
        # each of its habits shows up in the report.
        Preset(
            name="tiny",
            layers=2,
            heads=4,
            width=64,
            vocabulary=258,
            context=512,
            blank_lines=1,
            documents=4,
            start=FIRST_SCRIPT,
            every=False,
            steps=60,
            turns=6,
            least_turns=4,
            minutes=5.0,
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
            start=Settings(accumulation=4),
            every=True,
            steps=110,
            turns=3,
            least_turns=2,
            minutes=8.5,
            learning_rate=6e-4,
        ),
    )
}


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
    bound: Callable[[Facts], Bounded] = bounds.nothing
    """The most it can gain, from the evidence of the run kept last."""
    findings: tuple[str, ...] = ()
    """Ids of the findings that ask for it."""
    words: str = ""
    """Of their advice, where they may ask for other changes too."""
    trials: tuple[str, ...] = ()
    """Ids of the trials that measure it."""
    tempting: bool = False
    """Whether it is tried though nothing asks for it, because people do it everywhere."""
    sweeps: bool = False
    """Whether a sweep chooses the micro-batch."""
    on_request: bool = False
    """Runs only where it is named on the command line."""

    def is_asked_for(self, finding: Finding) -> bool:
        """Whether *finding* advises it."""
        actions = (finding.action, *(change.action for change in finding.changes))
        return finding.id in self.findings and any(self.words in action for action in actions)


def _rarer(what: str, reason: str, *, finding: str) -> Stage:
    """The stage in which *what* is made every 50th step, where it is made at all."""
    setting = f"{what}_every"
    return Stage(
        name=what,
        change=f"{what} every 50th step",
        reason=reason,
        apply=lambda kept: replace(
            kept,
            **{setting: 50 if getattr(kept, setting) else 0},  # type: ignore[arg-type] # a field
        ),
        bound=bounds.of_product(finding, otherwise=bounds.little),
        findings=(finding,),
    )


STAGES: tuple[Stage, ...] = (
    Stage(
        name="baseline",
        change="the first script",
        reason="one document per row, read and tokenised when it is asked for, fp32, eager "
        "attention; the small model also has what beginners compute and log in every step",
    ),
    _rarer(
        "histograms",
        "a histogram of every weight and gradient reads them all and writes them to a file",
        finding="callbacks",
    ),
    Stage(
        name="cached",
        change="text tokenised once",
        reason="reading and tokenising a file for each of its documents repeats the same work",
        apply=lambda kept: replace(kept, cached=True),
        bound=bounds.of_product("data_wait", otherwise=bounds.little),
        findings=("data_wait",),
        words="cache",
    ),
    Stage(
        name="loader",
        change="one worker, pinned",
        reason="while the step computes, another process (num_workers=1) can read and tokenise "
        "the next one, and a pinned batch is copied without blocking",
        apply=lambda kept: replace(kept, workers=1),
        bound=bounds.one_worker,
        findings=("data_wait",),
        words="num_workers=",
    ),
    Stage(
        name="trimmed",
        change="padded to the longest",
        reason="a row needs no more padding than to the longest document of its batch",
        apply=lambda kept: replace(kept, trimmed=True),
        bound=bounds.of_product("padding", otherwise=bounds.packing),
        findings=("padding",),
        words="pad to the longest",
    ),
    Stage(
        name="packed",
        change="documents packed",
        reason="padding is computed like text and teaches nothing: the padding fraction is the "
        "share of the work that goes away",
        apply=lambda kept: replace(kept, packed=True),
        bound=bounds.of_product("padding", otherwise=bounds.packing),
        findings=("padding",),
    ),
    Stage(
        name="sdpa",
        change="fused attention",
        reason="eager attention writes a score for every pair of tokens to memory, several times "
        "over; the fused kernel (attn_implementation='sdpa') keeps them in cache",
        apply=lambda kept: replace(kept, attention="sdpa"),
        bound=bounds.of_product("attention", otherwise=bounds.little_in_audit),
        findings=("attention",),
    ),
    Stage(
        name="tf32",
        change="products in TF32",
        reason="tensor cores multiply fp32 numbers with ten bits of mantissa many times faster",
        apply=lambda kept: replace(kept, tf32=True),
        bound=bounds.in_precision("tf32"),
        findings=("matmul_precision",),
        words="set_float32_matmul_precision",
    ),
    Stage(
        name="fp16",
        change="AMP, fp16, GradScaler",
        reason="half the bytes and the fast tensor cores; gradients are scaled so that they do "
        "not vanish, and updates are skipped where they overflow",
        apply=lambda kept: replace(kept, precision="16-mixed"),
        bound=bounds.in_precision("fp16"),
        findings=("matmul_precision",),
        words='"16-mixed"',
        trials=("autocast_fp16",),
    ),
    Stage(
        name="bf16",
        change="AMP, bf16",
        reason="the range of fp32 in half the bytes: no scaler, and no update is skipped",
        apply=lambda kept: replace(kept, precision="bf16-mixed"),
        bound=bounds.in_precision("bf16"),
        findings=("matmul_precision",),
        words="bf16",
        trials=("autocast_bf16",),
        tempting=True,
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
        findings=("elementwise_chain", "launch_bound"),
        words="torch.compile",
    ),
    Stage(
        name="fused",
        change="fused AdamW",
        reason="an update of one operator after another reads and writes every value many times",
        apply=lambda kept: replace(kept, fused=True),
        bound=bounds.of_product("optimizer_not_fused", otherwise=bounds.little_in_audit),
        findings=("optimizer_not_fused",),
        trials=("optimizer_fused",),
    ),
    _rarer(
        "metrics",
        "accuracy, top-5 accuracy and perplexity of every training batch are read by nobody",
        finding="metrics_every_batch",
    ),
    Stage(
        name="logging",
        change="a row every 50th step",
        reason="every row of the loggers waits for its values and writes them to two files",
        apply=lambda kept: replace(kept, log_every=max(kept.log_every, 50)),
        bound=bounds.of_product("logging", "loop", otherwise=bounds.little),
        findings=("logging", "loop"),
    ),
    Stage(
        name="vocabulary",
        change="vocabulary a multiple of 64",
        reason="kernels take sizes in tiles: a vocabulary of an odd size is slow in the largest "
        "product of the step",
        apply=lambda kept: replace(kept, vocabulary_multiple=64),
        bound=bounds.vocabulary,
    ),
    Stage(
        name="graphs",
        change="CUDA graphs",
        reason="torch.compile(mode='reduce-overhead') launches a whole graph at once",
        apply=lambda kept: replace(kept, compiled="reduce-overhead"),
        bound=bounds.of_product("launch_bound", otherwise=bounds.launches),
        findings=("launch_bound",),
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
