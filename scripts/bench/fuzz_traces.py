"""Fuzzer of the trace reader: coverage-guided, with atheris.

What it finds is written into the folder as `crash-…`; keep it as a case of `tests/traces/reading`.
A refusal (`TraceError`) is an answer; anything else that is raised, more than a second a kilobyte,
or 2 GB of memory is a finding.  `pip install atheris`, then:
`python -m scripts.bench.fuzz_traces FOLDER -max_total_time=600`
"""

import gzip
import sys
import tempfile
from pathlib import Path

import atheris


with atheris.instrument_imports(include=["trainperf.traces"]):
    from trainperf.core.errors import TraceError
    from trainperf.traces.rank_report import analyse
    from trainperf.traces.reader import read


SEEDS = (
    (
        b'{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1.5,"dur":2,'
        b'"args":{"stream":7,"correlation":1,"External id":2}},{"ph":"s","id":1,"ts":1}]}'
    ),
    b'[{"ph":"X","cat":"Operator","name":"aten::mm","ts":"1","dur":1,"args":{"Input Dims":[[1]]}}]',
    (
        b'{"distributedInfo":{"rank":0,"world_size":2},"traceEvents":[{"ph":"i","name":"[memory]",'
        b'"ts":1,"args":{"Bytes":8,"Total Allocated":8}},{"ph":"X","cat":"user_annotation",'
        b'"name":"ProfilerStep#1","ts":0,"dur":9}]}'
    ),
)
MOST_BYTES = 4096


def main() -> None:
    """Fuzz until libFuzzer's own options say that it is enough."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for place, seed in enumerate(SEEDS):
        (folder / f"seed-{place}").write_bytes(seed)
        (folder / f"seed-{place}-packed").write_bytes(gzip.compress(seed, mtime=0))
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "trace.json"

        def read_it(data: bytes) -> None:
            path.write_bytes(data)
            try:
                table = read(path)
            except TraceError:
                return
            analyse(table, "trace")

        limits = [f"-artifact_prefix={folder}/", "-timeout=4", "-rss_limit_mb=2048"]
        options = [*limits, f"-max_len={MOST_BYTES}", *sys.argv[2:]]
        atheris.Setup([sys.argv[0], str(folder), *options], read_it)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
