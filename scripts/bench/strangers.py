"""Judgement on scripts by somebody who has read no detector, in the folder that is named as FILE.

    python -m scripts.bench.strangers predict FILE   # one `trainperf run` of each, as it is
    python -m scripts.bench.strangers measure FILE   # then whole processes of each twin, in turns;
                                                     # with more --pairs it goes on
    python -m scripts.bench.strangers table FILE

What is said of a script is kept before any twin runs.  Whether that names the planted cause is
judged by hand, against the words of `truth.json`, and kept in `verdicts.json` beside it: `first`,
`later`, `remedy` (the cause, with a remedy that is no good), or `missed`; with the change, if any,
that the twin makes.  Gains are of training without trainperf: each script prints its own times.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from scripts.bench.harness import machine_line, table


FOLDERS = Path(__file__).parent
PAIRS = 3
RESULT = "RESULT "
KEPT = ("id", "title", "advice", "action", "where", "called_at", "scope", "fraction")


def main() -> None:
    """Predict, measure, or show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["predict", "measure", "table"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", action="append", help="a script; may be repeated")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    options = parser.parse_args()
    kept = json.loads(options.file.read_text()) if options.file.exists() else {}
    scripts = FOLDERS / options.file.stem
    truth = json.loads((scripts / "truth.json").read_text())
    for name in truth if options.what != "table" else ():
        if options.only and name not in options.only:
            continue
        if options.what == "predict" and name not in kept:
            kept[name] = predicted(scripts / name)
        elif options.what == "measure" and not truth[name]["healthy"]:
            turns = kept[name].setdefault("turns", [])
            turns += measured(scripts / name, range(len(turns) // 2, options.pairs))
        kept["machine"] = machine_line()
        options.file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        print(name, json.dumps(kept[name], ensure_ascii=False)[:300], flush=True)
    if options.what == "table":
        show(kept, truth, json.loads((scripts / "verdicts.json").read_text()))


def predicted(script: Path) -> dict[str, Any]:
    """What the first run says of a script, without an option."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(script / "train.py", folder)
        began = time.perf_counter()
        # No option of what is measured: some scripts throw their folders away when they end.
        run = str(Path(folder) / "run")
        ran = trained(folder, "-m", "trainperf", "run", "--out", run, "train.py")
        took_s = time.perf_counter() - began
        report = trained(folder, "-m", "trainperf", "report", run, "--format", "json")
        text = trained(folder, "-m", "trainperf", "report", run)
    findings = json.loads(report)
    return {
        "first_line": " ".join(text.split("\n\n")[1].split()),
        "findings": [
            {key: finding[key] for key in KEPT}
            | {"about": finding["gain"], "at_most": finding["gain_upper_bound"]}
            | {"changes": {c["id"]: [c["about"], c["at_most"]] for c in finding["changes"]}}
            for finding in findings["findings"]
        ],
        "ordinary": findings["ordinary"],
        "result": result_of(ran),
        "took_s": round(took_s, 1),
    }


def measured(twins: Path, pairs: range) -> list[dict[str, Any]]:
    """Both sides in turns, A B B A …: what each printed of itself."""
    turns = []
    for pair in pairs:
        sides = ["train.py", "train_fixed.py"]
        for script in sides if pair % 2 == 0 else sides[::-1]:
            with tempfile.TemporaryDirectory() as folder:
                shutil.copy(twins / script, folder)
                begun_s = time.monotonic()
                result = result_of(trained(folder, script))
                took_s = time.monotonic() - begun_s
                turns.append({"script": script, **result, "took_s": took_s})
    return turns


def trained(folder: str, *command: str) -> str:
    """What a process prints that runs Python so in a folder."""
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if ran.returncode:
        raise SystemExit(ran.stdout + ran.stderr)
    return ran.stdout


def result_of(printed: str) -> dict[str, float]:
    """The times and the loss that a script prints last."""
    line = next(line for line in reversed(printed.splitlines()) if line.startswith(RESULT))
    result: dict[str, float] = json.loads(line.removeprefix(RESULT))
    return result


def gains_of(turns: list[dict[str, Any]], scope: str) -> list[float]:
    """How many times faster the twin is in each pair: a step, the fit or the whole process."""
    name, gains = {"step": "step_s", "fit": "fit_s", "script": "took_s"}[scope], []
    for pair in zip(turns[::2], turns[1::2], strict=True):
        times_s = {turn["script"]: turn[name] for turn in pair}
        gains.append(times_s["train.py"] / times_s["train_fixed.py"])
    return gains


def show(kept: dict[str, Any], truth: dict[str, Any], verdicts: dict[str, Any]) -> None:
    """A row for each script, and the shares."""
    rows, counts = [], {"first": 0, "planted": 0, "bounded": 0, "bounds": 0, "near": 0, "abouts": 0}
    for name, planted in truth.items():
        first = next(iter(kept[name]["findings"]), None)
        verdict = verdicts[name]
        row = [name, planted["style"], f"{first['id']}: {first['advice']}" if first else "nothing"]
        if planted["healthy"]:
            rows.append([*row, verdict["verdict"], "", "", "", ""])
            continue
        finding = next((f for f in kept[name]["findings"] if f["id"] == verdict["finding"]), None)
        scope = finding["scope"] if finding else planted["scope"]
        gains = gains_of(kept[name]["turns"], scope)
        gain = math.exp(sum(map(math.log, gains)) / len(gains))
        about, most = (None, None) if finding is None else finding["changes"][verdict["change"]]
        counts["planted"] += 1
        counts["first"] += verdict["verdict"] == "first"
        if most is not None:
            counts["bounds"] += 1
            counts["bounded"] += gain <= 1.05 * most
        if about is not None:
            counts["abouts"] += 1
            counts["near"] += about / 1.25 <= gain <= about * 1.25
        spread = f"{gain:.2f} ({min(gains):.2f}–{max(gains):.2f})"
        bounds = [f"{each:.2f}" if each is not None else "" for each in (about, most)]
        claimed = finding["fraction"] if finding else None
        realised = f"{(1 - 1 / gain) / claimed:.2f}" if claimed else ""
        gained = f"{spread} of the {scope}"
        rows.append([*row, verdict["verdict"], *bounds, gained, f"{verdict['change']} {realised}"])
    columns = ("script", "style", "first advice", "cause", "about", "at most", "gained")
    print(table([*columns, "change, and how much of its cause's seconds it saved"], rows))
    print(
        f"\ncause first in {counts['first']} of {counts['planted']}; at most kept, within 5 %, in "
        f"{counts['bounded']} of {counts['bounds']}; about within 1.25 in {counts['near']} of "
        f"{counts['abouts']}; median first run "
        f"{median(kept[name]['took_s'] for name in truth):.0f} s\n{kept['machine']}"
    )


if __name__ == "__main__":
    main()
