"""The live tower: what happens in a training loop, recorded step by step.  May import torch."""
