"""Where records and readings go.  To add one: a file here, passed to the monitor."""
