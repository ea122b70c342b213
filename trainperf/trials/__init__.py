"""Trials: what a change brings is measured before anybody makes it.

Changes are switched on and off in blocks of steps of the user's own training, in turns::

    from trainperf.trials import Trial

    TrainPerf(trials=[Trial("no_dropout", on=model.without_dropout, off=model.with_dropout)])

`trainperf try SCRIPT` tries the built-in ones in a run that is thrown away.
"""

from trainperf.trials.start import TrialOptions
from trainperf.trials.trial import Trial, cannot


__all__ = ["Trial", "TrialOptions", "cannot"]
