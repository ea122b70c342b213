"""Rule about a model that was to be compiled and is not."""

from trainperf.analysis.rules.base import Evidence
from trainperf.core.findings import Finding


def not_compiled(evidence: Evidence) -> Finding | None:
    """Compiling was turned on in the framework's options, and the model runs as it is written.

    The option travels through environment variables and plugins and may be lost on the way.  What
    compiling would gain is not known.

    Wrong where: a part of the model was compiled by hand where trainperf does not look.
    To confirm: `TORCH_LOGS=graph_code` prints graphs where anything is compiled.
    """
    config = evidence.summary.run.config
    if config.get("compile_option") is not True or config.get("compiled") is not False:
        return None
    return Finding(
        id="not_compiled",
        title="torch_compile=True was given, and the model is not compiled",
        advice="Compile the model yourself",
        evidence=("neither the model nor a module in it is a compiled one as training begins",),
        action="model.compile() before the Trainer is made",
        confidence="medium",
        severity="medium",
        confirm="compiled is true in the run's configuration; trainperf compare BEFORE AFTER",
    )
