"""`pad_to_multiple_of=128` for rows of 12 to 30 tokens; the twin pads to the longest of a batch."""

from pathlib import Path

from faults.base import script
from faults.commanded import BERT, changed, trained


SOURCE = (
    BERT
    + """
train(rows(800, 12, 30), DataCollatorWithPadding(tokenizer, pad_to_multiple_of=128))
"""
)


@script("padding", changes=("pad_less",), own_process=True)
def _train(out: Path, *, fixed: bool) -> None:
    change = ", pad_to_multiple_of=128", ""
    trained(out, changed(SOURCE, fixed=fixed, change=change))
