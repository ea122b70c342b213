"""Jobs of many ranks that never ran: records and traces with a known truth."""
