"""The report of a capture: the traces of one rank or of all, in words."""
