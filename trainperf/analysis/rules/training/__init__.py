"""Rules about the training loop itself: overflow, zero_grad, schedulers, validation."""
