"""Text printed while the walkthrough runs: a stage's prediction, change, measurement, verdict."""

from collections.abc import Sequence
from textwrap import fill

from recipes.gpt2.outcomes import Prediction, StageOutcome
from recipes.gpt2.text import DocumentSpan
from recipes.gpt2.train import Recipe
from trainperf.core.formatting.units import share, times


WIDTH = 98
_LABEL_WIDTH = 12


def introduction(
    work: Recipe, documents: Sequence[DocumentSpan], order: Sequence[DocumentSpan]
) -> str:
    """What is about to be trained."""
    preset, tokens = work.preset, sum(document.tokens for document in order)
    lengths = [document.tokens for document in documents]
    return (
        f"GPT-2 {preset.name}: {preset.layers} layers × {preset.width} wide, {preset.heads} heads, "
        f"{preset.vocabulary:,} tokens in the vocabulary, context {preset.context}\n"
        f"text: {work.text or 'the Python standard library'}, {len(documents):,} documents of "
        f"{min(lengths)} to {max(lengths)} tokens"
        f"\neach run: {work.steps} updates × {preset.documents} documents = {tokens:,} tokens"
        f"\nruns and results: {work.out}"
    )


def prediction(tried: StageOutcome) -> str:
    """The report, the prediction that follows from it, and the change; before the first run."""
    lines = [f"\n{tried.stage}: {tried.change}"]
    if tried.prediction is not None:
        lines.append(_line("report", report(tried.prediction)))
        lines.append(_line("prediction", bound(tried.prediction)))
    lines.append(_line("change", ", ".join(tried.changed)))
    return "\n".join(lines)


def outcome(tried: StageOutcome, kept: StageOutcome | None) -> str:
    """What was measured, and the verdict; after the last run of a stage."""
    if tried.status == "skipped":
        return f"\n{tried.stage}: {tried.change}\n" + _line("skipped", tried.why)
    if kept is None or tried.status == "baseline":
        return f"\n{tried.stage}: {tried.change}, {tried.why}"
    lines = [_line("measured", f"{tried.stage} against {kept.stage}: {tried.why}")]
    lines += [_line("", note) for note in tried.notes]
    lines.append(_line("verdict", verdict(tried)))
    return "\n".join(lines)


def report(prediction: Prediction) -> str:
    """The report's first sentence, and its finding about this change."""
    return f"{prediction.report} About this change: {prediction.finding or 'no finding'}."


def bound(prediction: Prediction) -> str:
    """The predicted bound and its basis."""
    if prediction.at_most is None:
        return prediction.why
    return f"at most {times(prediction.at_most)}: {prediction.why}"


def verdict(tried: StageOutcome) -> str:
    """Whether the change is kept, and how far the gain was from its bound."""
    return f"{tried.status}; {error(tried)}"


def error(tried: StageOutcome) -> str:
    """How far the measured gain is from the predicted bound."""
    if tried.prediction is None or tried.prediction.at_most is None:
        return "no bound was predicted"
    if tried.error is None:
        return "no gain was measured to compare with its bound"
    gap, at_most = share(abs(tried.error)), times(tried.prediction.at_most)
    if tried.error <= 0:
        return f"{gap} below its bound of {at_most}"
    if tried.bounded:
        return f"{gap} above its bound of {at_most}, which is inside the measured interval"
    return f"{gap} above its bound of {at_most}, outside the measured interval: the bound was wrong"


def _line(label: str, words: str) -> str:
    head = f"  {label:<{_LABEL_WIDTH}}"
    return fill(words, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
