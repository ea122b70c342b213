"""What does a run look like in TensorBoard?  A tab of its own: routes, their data, and the page.

`plugin` is what TensorBoard loads; `data` is what its routes answer and knows no TensorBoard.
"""
