"""Scripts in which nothing is worth more than a tenth of the step."""
