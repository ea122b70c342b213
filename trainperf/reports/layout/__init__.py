"""Layout shared by all reports: tables, wrapping, encoding, JSON."""
