"""Speed of light: the least time a step needs on this hardware, and what is above it."""
