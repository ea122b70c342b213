"""Overhead: what trainperf itself costs the loop."""

from trainperf.meters.base import MeterEntry, mean


METERS = (
    MeterEntry(
        name="overhead_s",
        unit="s",
        about="""Host time trainperf itself takes per steady step, in seconds.

        Its own hooks and flushes as measured, plus its brackets, at what they took in their places
        in the first steps (in a shorter fit, at what they take in a row, which is less).  What the
        relay *saves* against Lightning's own brackets is not subtracted, and what our code pushes
        out of the caches is not known.

        Wrong where: the loop is another one after its first forty steps, with warmer or colder
        caches.
        To confirm: time the script with and without trainperf, several times, in turns.
        """,
        better="lower",
        needs=("overhead_ns",),
        statistic=mean,
    ),
)
