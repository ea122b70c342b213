"""The report as one file for a browser: no script, no network, nothing to install."""
