"""TensorBoard for `trainperf view`: on which folder, and its start in this process."""

from pathlib import Path

from trainperf.analysis.run.directory import Run
from trainperf.core.errors import ConfigError
from trainperf.core.paths import AnyPath, is_remote
from trainperf.core.run_directory import RECORD_FILES


HOST = "127.0.0.1"


def log_directory(run: AnyPath) -> Path:
    """The folder that holds the run and its neighbours; a folder of runs stands for itself."""
    if is_remote(run):
        raise ConfigError(
            f"{run}: TensorBoard reads directories of this machine; copy it with `trainperf merge "
            f"{run} --out {run.name}`"
        )
    folder = run.parent if run.is_file() else run
    if next(folder.glob(RECORD_FILES), None):
        return folder.parent
    # The tab searches deeper, and shows those of several runs that can be read.
    if next(folder.rglob(RECORD_FILES), None) is None:
        Run.open(run)
    return folder


def serve(logdir: Path, port: int | None) -> str:
    """Start TensorBoard in this process and return its address."""
    try:
        from tensorboard import default, program
    except ModuleNotFoundError:
        raise ConfigError("tensorboard: not installed; pip install tensorboard") from None
    server = program.TensorBoard(default.get_plugins())
    # Without a port TensorBoard takes the next free one.
    port_option = [] if port is None else ["--port", str(port)]
    server.configure(argv=["tensorboard", "--logdir", str(logdir), "--host", HOST, *port_option])
    try:
        address: str = server.launch()
    except program.TensorBoardServerException as error:
        where = "" if port is None else f"--port {port}: "
        raise ConfigError(f"{where}{error.msg}; try --port 0") from None
    return address
