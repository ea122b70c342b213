"""The clocks: one for the host, one for the device.  Nothing else in the package reads time."""
