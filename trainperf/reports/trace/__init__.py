"""A trace in words: text, markdown, and the tables of the tab."""
