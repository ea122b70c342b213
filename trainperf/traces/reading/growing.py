"""How does a column grow by a chunk at a time without being held twice?"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainperf.traces.event_table import NONE


_FIRST = 2**14
_GROWTH = 1.125
"""Small, because what is reserved counts as used; the system moves pages instead of copying."""


class Growing:
    """One column under construction; rows that nobody filled are `NONE`."""

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._values = np.empty(0, dtype=dtype)
        self._length = 0

    def append(self, values: npt.NDArray[Any], at: int) -> None:
        """Put *values* at row *at*, which lies at or beyond the end."""
        self._fill(at)
        self._reserve(at + len(values))
        self._values[at : at + len(values)] = values
        self._length = at + len(values)

    def finished(self, rows: int) -> npt.NDArray[Any]:
        """The column with so many rows; nothing can be appended afterwards."""
        self._fill(rows)
        return self._values[:rows]

    def _fill(self, rows: int) -> None:
        if rows > self._length:
            self._reserve(rows)
            self._values[self._length : rows] = NONE
            self._length = rows

    def _reserve(self, rows: int) -> None:
        if rows > len(self._values):
            grown = max(rows, _FIRST, int(len(self._values) * _GROWTH))
            # No other name holds this array, as `refcheck` would have to find out.
            self._values.resize(grown, refcheck=False)
