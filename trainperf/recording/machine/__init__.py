"""The machine beside the loop, sampled by a child process of low priority."""
