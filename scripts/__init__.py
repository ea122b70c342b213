"""What maintainers run: checks, benches, the GPU check, generated documentation."""
