"""What a trace measures: steps, device time, idle time, communication, memory."""
