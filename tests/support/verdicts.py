"""What was tried in a run, by hand: every verdict once, a set, and ceilings.  All is invented."""

from typing import Any

from trainperf.core.artifacts.trials import (
    Baseline,
    TrialKind,
    TrialResult,
    Trials,
    TrialVerdict,
    in_order,
)


def trial(
    id_: str,
    verdict: TrialVerdict,
    speedup: float | None = None,
    *,
    kind: TrialKind = "change",
    **facts: Any,
) -> TrialResult:
    """A trial measured to three per cent either way; its title is its id."""
    if speedup is not None:
        facts = {"speedup": speedup, "low": speedup * 0.97, "high": speedup * 1.03, **facts}
    fields = {"title": id_.replace("_", " "), "pairs": 32, "took_s": 6.0, **facts}
    return TrialResult(id=id_, kind=kind, verdict=verdict, **fields)


def tried(*results: TrialResult, trying: str = "") -> Trials:
    """The document of a run that tried these."""
    return Trials(
        baseline=Baseline(step_s=0.0552, blocks=190),
        trials=in_order(list(results)),
        planned=12,
        trying=trying,
        script="train.py",
        restored="weights, optimizer",
        took_s=71.0,
    )


BF16 = 'with torch.autocast("cuda", torch.bfloat16): loss = …'
BOTH = "AMP in bf16 + fused attention"
SDPA = 'model.set_attn_implementation("sdpa")'

TRIED = tried(
    trial("bf16", "faster", 1.38, title="AMP in bf16", apply=BF16),
    trial("sdpa", "faster", 1.21, title="fused attention", apply=SDPA),
    trial("sdpa + bf16", "faster", 1.62, title=BOTH, parts=("bf16", "sdpa")),
    trial("compile", "faster", 1.12, title="torch.compile", apply="model.compile()"),
    trial("foreach", "undecided", 1.001, title="AdamW with foreach=True"),
    trial("log_less", "equal", 1.002, low=0.995, high=1.009, title="logging every 50 steps"),
    trial("channels_last", "slower", 0.83),
    trial("fp16", "loss differs", 1.7, title="AMP in fp16", loss_before=2.3, loss_after=2.9),
    trial("mine", "failed", title="my <loss>", reason="RuntimeError: expected 2 tensors"),
    trial("tf32", "not applicable", title="TF32", reason="this GPU has none"),
    trial("free_loader", "faster", 2.4, kind="ceiling", title="batches from memory"),
    trial("no_log", "equal", 1.0, low=0.99, high=1.01, kind="ceiling", title="loggers muted"),
)
"""Measured, failed and refused, in every way."""
