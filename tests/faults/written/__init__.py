"""Run directories written by hand for rules that need a GPU, each with a twin without the fault.

No recording of a GPU run lies in this repository, so nothing here was measured: the figures are
made up in the proportions that the rule is about.  `faults.single` has real trainings.
"""
