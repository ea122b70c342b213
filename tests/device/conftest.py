"""Tests of what the asynchronous device does, and of what trainperf does on it alone."""

from support.device.session import attached, device, pytest_collection_modifyitems


__all__ = ["attached", "device", "pytest_collection_modifyitems"]
