"""Trials: what a change brings is measured before anybody makes it.

`trainperf try SCRIPT` switches changes on and off in blocks of steps of the user's own training, in
turns, in a run that is thrown away.  Changes of the script's own come before the built-in ones::

    from trainperf.trials import Trial

    TrainPerf(trials=[Trial("no_dropout", on=model.without_dropout, off=model.with_dropout)])
"""

from trainperf.trials.start import demand_trials
from trainperf.trials.trial import Trial, cannot


__all__ = ["Trial", "cannot", "demand_trials"]
