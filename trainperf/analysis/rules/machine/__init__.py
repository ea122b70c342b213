"""Rules about the machine beside the loop: clocks, neighbours, pressure."""
