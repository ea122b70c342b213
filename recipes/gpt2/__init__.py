"""GPT-2 on real text, made faster one proved change at a time: `python -m recipes.gpt2`.

Read `walk.py` (the loop) → `stages.py` (what changes) → `bounds.py` (what it can gain at most) →
`train.py` (one run) → `verdicts.py` (whether it is proved) → `text.py` and `batches.py` (data) →
`model.py` → `outcomes.py` (what is written down) → `table.py` and `page.py` (the result).
"""
