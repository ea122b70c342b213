"""Scripts in the style of real repositories; nothing is tuned on them."""
