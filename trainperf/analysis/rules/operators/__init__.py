"""Rules about operators: products, attention, casts, layouts, the optimizer."""
