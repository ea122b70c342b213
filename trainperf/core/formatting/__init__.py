"""Numbers and text for people: units, escaping, HTML."""
