"""The parts of a summary: breakdown, warnings, stragglers, loss parity, agreement with traces."""
