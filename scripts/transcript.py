#!/usr/bin/env python3
"""Runs the quickstart and puts what it prints into README.md, between the `transcript` comments.

    make build && python3 scripts/transcript.py

Lines of steps are left out, marked by an ellipsis, but for the first three and those with an evaluation; paths are made relative.
"""
import pathlib
import re
import subprocess
import sys

project = pathlib.Path(__file__).resolve().parent.parent
shown = ["rlpipe", "run", "pipelines/quickstart.yaml", "--progress", "lines"]
run = subprocess.run([project / "target/release/rlpipe", *shown[1:]], cwd=project, stderr=subprocess.PIPE, text=True)
if run.returncode != 0:
    sys.exit(run.stderr)
lines = []
for line in run.stderr.replace(f"{project}/", "").rstrip().splitlines():
    step = re.match(r"step (\d+)/", line)
    if not step or int(step[1]) <= 3 or "eval/" in line:
        lines.append(line)
    elif lines[-1] != "…":
        lines.append("…")
block = "\n".join(["```", f"$ {' '.join(shown)}", *lines, "```"])
readme = project / "README.md"
text, count = re.subn(
    r"(<!-- transcript -->\n).*?(<!-- /transcript -->)",
    lambda match: f"{match[1]}{block}\n{match[2]}",
    readme.read_text(),
    flags=re.DOTALL,
)
if count != 1:
    sys.exit("README.md has no `<!-- transcript -->` ... `<!-- /transcript -->`")
readme.write_text(text)
