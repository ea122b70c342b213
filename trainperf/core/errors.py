"""Errors that users of trainperf can meet: one family, each with the remedy in its message."""


class TrainPerfError(Exception):
    """Base of everything trainperf raises on purpose."""


class ConfigError(TrainPerfError, ValueError):
    """A value was refused where the user chose it: names the value, the rule and the remedy."""


class RunError(TrainPerfError):
    """A run directory cannot be read: missing, foreign, damaged or of an unknown schema version."""


class TraceError(TrainPerfError):
    """A file cannot be used as a trace: names the file, what is wrong with it and the remedy."""
