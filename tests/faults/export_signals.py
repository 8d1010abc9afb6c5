#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SIGTERM, SIGINT and SIGHUP while a trained model is exported: the export is finished, then the
signal does what it does; the model is whole, a checkpoint stands, the record says how it ended.

usage: export_signals.py NIBBLE SOURCE FOLDER"""
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

FILES = ["config.json", "tokenizer.json", "x.safetensors"]


def attempt(nibble, source, folder, number):
    """What is wrong; None: the signal came too early or too late."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "pairs.tsv").write_text("a\tb\nc\td\n")
    run = subprocess.Popen(
        [nibble, "train", "--model", f"{source}/models/mini/mini.dat", "--train-data", "pairs.tsv",
         "--steps", "1", "--seq-len", "32", "--output", "out/x.safetensors", "--runs-dir", "runs",
         "--run-name", "r"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.time() + 120
    while run.poll() is None and time.time() < deadline:
        if list(folder.glob("out/x.safetensors.*")):  # it is being written
            run.send_signal(number)
            break
        time.sleep(0.0005)
    said = run.communicate()[0].decode(errors="replace")
    if "the export is finished first" not in said:
        return None if run.returncode == 0 else [f"exit {run.returncode}: {said[-500:]}"]
    status = json.loads((folder / "runs/r/status.json").read_bytes())
    found = sorted(p.name for p in (folder / "out").iterdir())
    wrong = []
    if run.returncode not in (-number, 128 + number):
        wrong.append(f"exit code {run.returncode}")
    if found != FILES:
        wrong.append(f"the output is {found}")
    elif subprocess.run([nibble, "inspect", "out/x.safetensors", "--headers-only"], cwd=folder, check=False,
                        stdout=subprocess.DEVNULL).returncode != 0:
        wrong.append("the output is not sound")
    if status["state"] != "interrupted" or not Path(folder, status["checkpoint"]).exists():
        wrong.append(f"the status is {status['state']}, its checkpoint '{status['checkpoint']}'")
    return wrong


def main():
    nibble, source, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3]).resolve()
    failures = 0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        wrong = next((w for w in (attempt(nibble, source, folder, number) for _ in range(5))
                      if w is not None), ["the signal never came during the export"])
        failures += bool(wrong)
        print(f"{number.name}: {'; '.join(wrong) or 'ok'}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
