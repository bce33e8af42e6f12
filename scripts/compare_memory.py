#!/usr/bin/env python3
"""Runs a pipeline and prints what its plan said of memory beside what was measured, phase by phase and part by part.

    scripts/compare_memory.py pipelines/quickstart.yaml --set run.total_steps=2

All arguments are those of `rlpipe run`; RLPIPE names the program (target/release/rlpipe where it is not set). An attempt
that is there already is read with `--read FOLDER` instead.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

GIB = 1 << 30


def attempt(arguments):
    if arguments[:1] == ["--read"]:
        return Path(arguments[1])
    program = os.environ.get("RLPIPE") or Path(__file__).parent.parent / "target/release/rlpipe"
    folder = tempfile.mkdtemp(prefix="rlpipe-memory-")
    subprocess.run([program, "run", *arguments, "--work-dir", folder, "--progress", "lines"], check=True)
    return next(Path(folder).glob("*/latest"))


def main():
    folder = attempt(sys.argv[1:])
    plan = json.loads((folder / "plan.json").read_text())
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for worker in plan["memory"]:
        if worker["not_checked"]:
            sys.exit("not checked: " + "; ".join(worker["not_checked"]))
        phases = {}
        for part in worker["parts"]:
            for phase in part["phases"]:
                phases[phase] = phases.get(phase, 0) + part["bytes"]
        peak = max(phases, key=phases.get)
        place = {"host": "host", "accelerator": "accelerator"}[worker["device"]]
        name = f"memory/worker-{worker['rank']}/{place}_peak_gib"
        measured = max(row[name] for row in rows if name in row)
        for part in sorted(worker["parts"], key=lambda part: -part["bytes"]):
            if peak in part["phases"]:
                print(f"{part['bytes'] / GIB:9.3f} GiB  {part['name']}")
        planned = phases[peak] / GIB
        print(f"planned {planned:.3f} GiB in `{peak}`, measured {measured:.3f} GiB: ratio {planned / measured:.3f}")


main()
