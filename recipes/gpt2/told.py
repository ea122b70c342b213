"""What is said of a stage while the walkthrough runs?"""

from collections.abc import Sequence
from textwrap import fill

from recipes.gpt2.outcomes import Prediction, StageOutcome
from recipes.gpt2.text import DocumentSpan
from recipes.gpt2.train import Recipe
from trainperf.core.formatting.units import share, times


WIDTH = 98
_LABEL = 19


def work(asked: Recipe, places: Sequence[DocumentSpan], order: Sequence[DocumentSpan]) -> str:
    """What is about to be trained, as equations."""
    preset, tokens = asked.preset, sum(place.tokens for place in order)
    return (
        f"GPT-2 {preset.name}: {preset.layers} layers × {preset.width} wide, {preset.heads} heads, "
        f"{preset.vocabulary:,} tokens in the vocabulary, context {preset.context}\n"
        f"text: {asked.text or 'the Python standard library'}, {len(places):,} documents of "
        f"{min(place.tokens for place in places)} to {max(place.tokens for place in places)} tokens"
        f"\neach run: {asked.steps} updates × {preset.documents} documents = {tokens:,} tokens"
        f"\nruns and what is said of them: {asked.out}"
    )


def before(tried: StageOutcome) -> str:
    """What the report said and what follows from it, before the first run of a stage."""
    lines = [f"\n{tried.stage}: {tried.change}"]
    if tried.prediction is not None:
        lines.append(_line("the report said", said(tried.prediction)))
        lines.append(_line("the prediction was", predicted(tried.prediction)))
    lines.append(_line("one thing changed", ", ".join(tried.changed)))
    return "\n".join(lines)


def outcome(found: StageOutcome, kept: StageOutcome | None) -> str:
    """What the comparison says, after the last run of a stage."""
    if found.status == "skipped":
        return f"\n{found.stage}: {found.change}\n" + _line("skipped", found.why)
    if kept is None or found.status == "baseline":
        return f"\n{found.stage}: {found.change}, {found.why}"
    lines = [_line("now", f"{found.stage} against {kept.stage}: {found.why}")]
    lines += [_line("", note) for note in found.notes]
    lines.append(_line("so", decision(found)))
    return "\n".join(lines)


def said(prediction: Prediction) -> str:
    """The first sentence of the report, and what it found about this change."""
    return f"{prediction.report} About this change: {prediction.finding or 'no finding'}."


def predicted(prediction: Prediction) -> str:
    """The bound and what it stands on."""
    if prediction.at_most is None:
        return prediction.why
    return f"at most {times(prediction.at_most)}: {prediction.why}"


def decision(found: StageOutcome) -> str:
    """Whether the change stays, and how far from its bound it was."""
    return f"{found.status}; {error(found)}"


def error(found: StageOutcome) -> str:
    """How far the prediction was off."""
    if found.prediction is None or found.prediction.at_most is None:
        return "no bound was predicted"
    if found.error is None:
        return "nothing was measured that its bound could be held against"
    gap, bound = share(abs(found.error)), times(found.prediction.at_most)
    if found.error <= 0:
        return f"{gap} below its bound of {bound}"
    holds = "which its interval holds" if found.bounded else "and so is its interval: it was wrong"
    return f"{gap} above its bound of {bound}, {holds}"


def _line(label: str, words: str) -> str:
    head = f"  {label:<{_LABEL}}"
    return fill(words, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
