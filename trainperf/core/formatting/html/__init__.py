"""Components of every page: markup, figures and their axes, one style.

No script, no network, nothing to install.  It knows neither runs nor benchmarks: reports, sweeps,
recipes and scripts draw with it alike.
"""
