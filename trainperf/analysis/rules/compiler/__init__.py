"""Rules about `torch.compile`: first step, recompiles, graph breaks."""
