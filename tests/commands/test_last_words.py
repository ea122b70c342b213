"""What a training that failed is quoted with."""

import pytest

from trainperf.commands._last_words import last_words


TRACEBACK = """\
Traceback (most recent call last):
  File "/jobs/train.py", line 30, in <module>
    raise RuntimeError("no more data")
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: no more data
"""
REPORT = """
trainperf · after-1 · 1 rank · CPU
ended by RuntimeError after 29 steps

  Step time 7.23 ms
  note  took turns with another run
"""
LAUNCHER = """\
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
"""
ERROR = 'RuntimeError: no more data (File "/jobs/train.py", line 30, in <module>)'


@pytest.mark.parametrize(
    "output",
    [
        TRACEBACK,
        f"step 1\nstep 2\n{TRACEBACK}{REPORT}",
        f"{TRACEBACK}{LAUNCHER}",
        "".join(f"[rank1]: {line}\n" for line in TRACEBACK.splitlines()) + LAUNCHER,
        "".join(f"[default1]:{line}\n" for line in TRACEBACK.splitlines()) + LAUNCHER,
        f"{REPORT}{TRACEBACK}",
    ],
    ids=[
        "alone",
        "before our report",
        "under torchrun",
        "of a rank",
        "of a rank, redirected",
        "after our report",
    ],
)
def test_the_error_is_quoted_and_not_what_was_printed_after_it(output: str) -> None:
    """Our report comes last, and says nothing of why the script has failed."""
    assert last_words(output) == ERROR


def test_of_chained_errors_the_last_counts() -> None:
    """It is the one that ended the script."""
    chained = f"{TRACEBACK.replace('no more data', 'first')}\nDuring handling:\n\n{TRACEBACK}"

    assert last_words(chained) == ERROR


def test_without_a_traceback_the_last_lines_are_quoted() -> None:
    """As of arguments that were refused, or of a script that a signal has ended."""
    refused = "usage: train.py [-h] data\ntrain.py: error: the following arguments are required\n"

    assert last_words(refused) == (
        "usage: train.py [-h] data | train.py: error: the following arguments are required"
    )
    assert last_words(f"step 7\n{REPORT}") == "step 7"
    assert last_words("") == ""
    assert (
        last_words("Traceback (most recent call last):\n") == "Traceback (most recent call last):"
    )
