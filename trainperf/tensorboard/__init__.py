"""Our tab in TensorBoard: the answer, the breakdown and the captures of a run.  No torch."""
