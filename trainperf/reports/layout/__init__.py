"""What every report is laid out with: tables, wrapping, encoding, JSON."""
