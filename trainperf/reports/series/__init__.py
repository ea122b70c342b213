"""What of a run is drawn over its steps?  The same lines in the tab of TensorBoard and a report."""
