"""Charts of reports, as SVG: a page loads no script, and neither does the tab to draw them."""
