"""Two runs or more beside each other: what changed, by how much, and how sure that is."""
