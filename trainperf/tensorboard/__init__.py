"""The trainperf tab of TensorBoard: routes, their data, and the page.

`plugin` is what TensorBoard loads; `data` is what its routes answer and knows no TensorBoard.
"""
