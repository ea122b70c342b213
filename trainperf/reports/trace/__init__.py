"""Reports of traces: one view in words, laid out as text and markdown."""
