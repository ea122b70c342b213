"""What `scripts/gpu_check` runs: every part that needs CUDA, in one call."""
