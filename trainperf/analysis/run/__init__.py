"""A run directory read back: records, journal, merged attempts and ranks."""
