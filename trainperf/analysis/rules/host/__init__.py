"""Rules about host code: synchronisations, callbacks, logging, garbage collection."""
