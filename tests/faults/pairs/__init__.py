"""Two planted faults a script: both are found, ahead of everything else."""
