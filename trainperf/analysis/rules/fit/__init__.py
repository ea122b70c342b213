"""Rules about the whole fit: gaps, validation, checkpoints, noise."""
