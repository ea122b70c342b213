"""Small training scripts with a known fault each, and healthy ones: the corpus of the rules."""
