"""GPT-2 on real text, made faster one change at a time: `python -m recipes.gpt2`.

Read `__main__.py` (what to run) → `train.py` (the loop) → `stages.py` (what changes) → `text.py`
and `batches.py` (the data) → `model.py` → `table.py` (the result).
"""
