"""The report of one run: text, markdown, and the words of the tab."""
