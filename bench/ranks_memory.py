#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peak memory of each of several ranks beside `nibble plan --ranks N`.

    bench/ranks_memory.py build/nibble /tmp/memory --shapes mini,512x8,1024x16 --ranks 2,4

For each shape (the mini model's, or WIDTHxLAYERS with its vocabulary), each number of ranks and both
modes: what the plan says a rank takes in all, the high-water mark of each rank's resident set
(getrusage) over a run of a few steps, and by how much the plan is off where it is most.
Needs Open MPI and a nibble built with -DNIBBLE_MPI=ON (else exit code 77). Exit 1: the plan is off by more
than --limit.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def one_rank(folder, command):
    """Runs a rank and writes down the most it had in memory."""
    code = subprocess.run(command).returncode
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    (pathlib.Path(folder) / f"peak{os.environ['OMPI_COMM_WORLD_RANK']}").write_text(str(peak))
    sys.exit(code)


def model_of(shape, nibble, work):
    mini = ROOT / "models" / "mini"
    if shape == "mini":
        return mini
    width, layers = map(int, shape.split("x"))
    folder = work / shape
    folder.mkdir()
    config = json.loads((mini / "config.json").read_text())
    config.update(hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers,
                  num_attention_heads=width // 64, num_key_value_heads=max(1, width // 128),
                  tie_word_embeddings=False)
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(mini / "tokenizer.json", folder)
    run(nibble, "init", "--config", folder / "config.json", "--out", folder / "model.dat")
    return folder / "model.dat"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("nibble", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--shapes", default="mini,512x8,1024x16")
    p.add_argument("--ranks", default="2,4")
    p.add_argument("--modes", default="sharded,gathered")
    p.add_argument("--batch", type=int, default=4, help="samples of 32 tokens a micro-batch")
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--limit", type=float, default=3, help="percent")
    a = p.parse_args()
    if not shutil.which("mpirun") or "Open MPI" not in run(a.nibble, "--version"):
        print("skipped: no mpirun, or built without MPI (-DNIBBLE_MPI=ON)")
        sys.exit(77)
    shutil.rmtree(a.work, ignore_errors=True)
    a.work.mkdir(parents=True)
    row = "one two three four five six seven eight nine ten"
    (a.work / "rows.tsv").write_text(f"{row}\t{row}\n" * 64)
    worst = 0
    print(f"{'shape':<10}{'ranks':>6} {'mode':<9}{'plan MiB':>10}  measured, rank by rank{'':<14}off by", flush=True)
    for shape in a.shapes.split(","):
        model = model_of(shape, a.nibble, a.work)
        for ranks in map(int, a.ranks.split(",")):
            for mode in a.modes.split(","):
                # What the data make: rows of 32 tokens at most.
                same = ["--model", model, "--seq-len", "32", "--batch-size", a.batch, "--accumulate", ranks,
                        "--memory-mode", mode, "--device", "cpu", "--threads", "1", "--compute-dtype", "bf16"]
                plan = json.loads(run(a.nibble, "plan", *same, "--ranks", ranks, "--json"))["plans"][0]
                run("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", ranks,
                    sys.executable, __file__, "--one-rank", a.work, a.nibble, "--quiet", "train", *same,
                    "--train-data", a.work / "rows.tsv", "--steps", a.steps, "--export", "false",
                    "--save-every-minutes", "0", "--runs-dir", a.work / "runs")
                peaks = [int((a.work / f"peak{r}").read_text()) for r in range(ranks)]
                off = max((plan["total_bytes"] / x - 1 for x in peaks), key=abs) * 100
                worst = max(worst, abs(off))
                shown = " ".join(f"{x / 2**20:.1f}" for x in peaks)
                print(f"{shape:<10}{ranks:>6} {mode:<9}{plan['total_bytes'] / 2**20:>10.1f}  {shown:<36}{off:+.1f} %",
                      flush=True)
    print(f"the plan is off by {worst:.1f} % at most")
    sys.exit(worst > a.limit)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one-rank"]:
        one_rank(sys.argv[2], sys.argv[3:])
    main()
