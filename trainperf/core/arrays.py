"""Types of arrays that the package passes around.

A column has a row per step, or per whatever else there is; NaN stands for what was not measured.
"""

import numpy as np
import numpy.typing as npt


Column = npt.NDArray[np.float64]
"""Numbers; some have several columns beside each other."""

Places = npt.NDArray[np.intp]
"""Where in a column, also repeatedly."""

Mask = npt.NDArray[np.bool_]
"""Which of them."""

Integers = npt.NDArray[np.int64]
"""Whole numbers, e.g. nanoseconds."""
