#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SIGKILL at random moments of ranks that train together, a checkpoint at every step.

    tests/ranks/kill_ranks.py build/nibble /tmp/kills --kills 30

After each kill all ranks must have ended within the limit, and nothing but whole files may be there.
The run is resumed until nobody kills it any more; what it exports must then have the bytes of one
process that was left alone. Exit code 77: there is no mpirun, or nibble was built without MPI.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

LIMIT = 20  # seconds a rank waits for others, and so in which all must have ended


def ranks_of(mpirun):
    """Process numbers of the ranks below mpirun, in their order."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        values = dict(v.split(b"=", 1) for v in environment if b"=" in v)
        if values.get(b"KILL_RANKS") == str(mpirun).encode() and b"train" in command:
            if b"OMPI_COMM_WORLD_RANK" in values:
                found[int(values[b"OMPI_COMM_WORLD_RANK"])] = int(entry.name)
    return [found[r] for r in sorted(found)]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nibble")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    version = subprocess.run([a.nibble, "--version"], capture_output=True, text=True).stdout
    if not shutil.which("mpirun") or "Open MPI" not in version:
        print("skipped: no mpirun, or built without MPI (-DNIBBLE_MPI=ON)")
        return 77
    shutil.rmtree(a.folder, ignore_errors=True)
    a.folder.mkdir(parents=True)
    pairs = a.folder / "pairs.tsv"
    pairs.write_text("".join(f"question {i}\tanswer {i * i}\n" for i in range(9)))
    pick = random.Random(a.seed)

    def train(name, mode, *more):
        return [a.nibble, "train", "--model", "mini", "--train-data", str(pairs), "--device", "cpu",
                "--threads", "1", "--seq-len", "64", "--steps", str(a.steps), "--grad-dtype", "fp32",
                "--accumulate", str(a.ranks), "--self-test", "false", "--save-every-steps", "1",
                "--checkpoint-dir", str(a.folder / name), "--runs-dir", str(a.folder / "runs"),
                "--output", str(a.folder / f"{name}.dat"), *mode, *more]

    alone = subprocess.run(train("alone", []), capture_output=True, text=True)
    if alone.returncode != 0:
        sys.exit(f"the run alone failed ({alone.returncode}):\n{alone.stderr}")
    want = (a.folder / "alone.dat").read_bytes()

    kills = failures = runs = 0
    while kills < a.kills:
        name, mode = f"run{runs}", ["--memory-mode", pick.choice(["sharded", "gathered"])]
        runs += 1
        while True:
            resume = ["--resume"] if any((a.folder / name).glob("checkpoint-*")) else []
            environment = dict(os.environ, NIBBLE_RANK_LIMIT=str(LIMIT))
            log = a.folder / f"{name}.log"
            with log.open("w") as out:
                job = subprocess.Popen(
                    ["sh", "-c", 'export KILL_RANKS=$$; exec "$0" "$@"', "mpirun",
                     "--allow-run-as-root", "--oversubscribe", "-n", str(a.ranks),
                     "-x", "KILL_RANKS", "-x", "NIBBLE_RANK_LIMIT",
                     *train(name, mode, *resume, "--force")],
                    stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment)
            if kills < a.kills:
                time.sleep(pick.uniform(0.2, 4))
                ranks = ranks_of(job.pid)
                if ranks and job.poll() is None:
                    os.kill(pick.choice(ranks), signal.SIGKILL)
                    kills += 1
            try:
                code = job.wait(LIMIT + 30 if kills < a.kills else 600)
            except subprocess.TimeoutExpired:
                job.kill()
                print(f"FAILED: {name}: ranks still there {LIMIT + 30} s after the kill; {log}")
                return 1
            time.sleep(0.1)
            if ranks_of(job.pid):
                print(f"FAILED: {name}: ranks outlive mpirun: {ranks_of(job.pid)}")
                failures += 1
            # A file that was being written when its rank was killed goes with the next save.
            sound = r"checkpoint-\d{8}\.safetensors|good|\..*" + ("" if code == 0 else r"|.*\.nibble-tmp")
            leftovers = [p.name for p in (a.folder / name).glob("*") if not re.fullmatch(sound, p.name)]
            if leftovers:
                print(f"FAILED: {name}: {leftovers}")
                failures += 1
            if code == 0:
                break
        if (a.folder / f"{name}.dat").read_bytes() != want:
            print(f"FAILED: {name}: other bytes than of the run left alone")
            failures += 1
        shutil.rmtree(a.folder / name)
    print(f"{kills} kills in {runs} runs of {a.ranks} ranks, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
