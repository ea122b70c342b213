"""Step records: one record, a block of them, and how they are written to disk."""
