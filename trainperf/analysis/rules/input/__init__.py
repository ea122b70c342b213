"""Rules about input: loader, workers, transfer, padding."""
