"""`gradient_checkpointing=True` of a recipe for a large model, for one of some megabytes."""

from pathlib import Path

from faults.base import script
from faults.commanded import BERT, changed, trained


SOURCE = (
    BERT
    + """
train(
    rows(800, 64, 64), DataCollatorWithPadding(tokenizer), gradient_checkpointing=True,
)
"""
)


@script("recompute", own_process=True)
def _train(out: Path, *, fixed: bool) -> None:
    change = "gradient_checkpointing=True", "gradient_checkpointing=False"
    trained(out, changed(SOURCE, fixed=fixed, change=change))
