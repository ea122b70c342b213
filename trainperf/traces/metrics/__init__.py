"""Metrics of a trace: steps, device time, idle time, communication, memory."""
