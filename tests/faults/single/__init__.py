"""One planted fault a script; each has a twin without it that does the same work."""
