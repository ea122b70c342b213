"""The machine a run is on: its chips, its limits, its clocks."""
