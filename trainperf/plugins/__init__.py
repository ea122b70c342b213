"""Plugins that other programs load by entry point: Lightning and pytest.  Imports nothing heavy."""
