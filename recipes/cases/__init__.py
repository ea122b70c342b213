"""Cases of the recipes: a claim, what trainperf said before, what changed, what was measured here.

A recipe makes `Case`s and hands them, with its own tables and plots, to `outputs.leave`::

    before, after = measuring.paired({"eager": f, "compiled": g}, batch, seconds=2.0)
    case = Case(name="…", claim="…", measured=(before, after), **verdict(after, "faster"))
    leave(RecipeRun(recipe="inference", …, cases=(case,)), out)

Read `case.py` (what there is) → `verdicts.py` (when a claim holds) → `measuring.py` (in turns, with
an interval) → `processor.py` (threads, compiler) → `reports.py` (lines of trainperf's own reports)
→ `text.py`, `page.py`, `markdown.py` and `picture.py` (how it is shown) → `outputs.py` (what a run
prints and leaves).
"""
