"""Return on effort: what each change brings for the work it takes, by your own estimates too."""
