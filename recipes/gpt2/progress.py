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
    """The report, what follows from it, and the change; before the first run."""
    lines = [f"\n{tried.stage}: {tried.change}"]
    expected = tried.prediction
    if expected is not None:
        lines.append(_line("report", expected.report))
        lines.append(_line("advice", advice(expected)))
        lines.append(_line("prediction", expectation(expected)))
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


def advice(prediction: Prediction) -> str:
    """The finding's own words, and the line it is about."""
    return f"{prediction.finding}{f' ({prediction.where})' if prediction.where else ''}"


BASES = {
    "trial": "the interval of a trial of it in this training",
    "report": "from a third of what the finding says is lost to all of it with warm caches",
    "silence": "the report has no finding about it",
}


def expectation(prediction: Prediction) -> str:
    """The range that the measured gain is expected in, and its basis."""
    if prediction.high is None:
        return f"no range: {prediction.why}"
    basis = f"{expected(prediction)}: {_gain(*prediction.expected)}{BASES[prediction.source]}"
    if prediction.spread is None:
        return basis
    return f"{basis}, and what runs in turns scatter ({share(prediction.spread)} a pair)"


def _gain(low: float | None, high: float | None) -> str:
    """What is expected before runs scatter."""
    return "" if low is None or high is None else f"a gain of {_range(low, high)}, "


def expected(prediction: Prediction) -> str:
    """The range alone."""
    if prediction.high is None:
        return "–"
    if prediction.low is None:
        return f"≤ {times(prediction.high)}"
    return _range(prediction.low, prediction.high)


def _range(low: float, high: float) -> str:
    return f"{times(low).removesuffix('×')}–{times(high)}"


def verdict(tried: StageOutcome) -> str:
    """Whether the change is kept, and whether that was expected."""
    if tried.prediction is None or tried.inside is None:
        return f"{tried.status}; no range was predicted, or nothing measured to compare with it"
    place = "inside" if tried.inside else "outside"
    words = f"{tried.status}; {place} the range predicted, {expected(tried.prediction)}"
    if tried.bounded is False:
        words += f", and beyond its bound of {times(tried.prediction.at_most or 1.0)}"
    return words


def _line(label: str, words: str) -> str:
    head = f"  {label:<{_LABEL_WIDTH}}"
    return fill(words, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
