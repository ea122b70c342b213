"""Series drawn over the steps of a run: the same lines in the TensorBoard tab and the page."""
