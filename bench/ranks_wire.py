#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Two ranks on one machine with a wire of a given speed between them: is it hidden?

    sudo bench/ranks_wire.py build/nibble /tmp/wire --gbit 1 --batch 8

Makes two network namespaces with a veth pair whose ends tc's tbf slows down, starts mpirun across
them (as it would across two machines), and measures in turns:
  compute   the step of two processes that train apart, side by side (so they share the memory)
  ranks     the step of two ranks that train together over the wire
  wire      what `nibble plan` says a rank sends, at that speed
Then ranks / max(compute, wire) says what was not hidden. --gbit 0: no namespaces, shared memory,
and a third column, one process alone with twice the micro-batches: throughput of two against one.
Needs root, iproute2, Open MPI, a nibble built with -DNIBBLE_MPI=ON, and two idle cores.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
NET = "10.99.7"


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nfailed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return done.stdout


def namespaces(gbit):
    for name in "ab":
        subprocess.run(["ip", "netns", "del", f"nibble-{name}"], capture_output=True)
    run("ip", "netns", "add", "nibble-a")
    run("ip", "netns", "add", "nibble-b")
    run("ip", "link", "add", "nba", "netns", "nibble-a", "type", "veth", "peer", "name", "nbb",
        "netns", "nibble-b")
    for name, number in (("a", 1), ("b", 2)):
        inside = ["ip", "netns", "exec", f"nibble-{name}"]
        run(*inside, "ip", "addr", "add", f"{NET}.{number}/24", "dev", f"nb{name}")
        run(*inside, "ip", "link", "set", f"nb{name}", "up")
        run(*inside, "ip", "link", "set", "lo", "up")
        run(*inside, "tc", "qdisc", "add", "dev", f"nb{name}", "root", "tbf", "rate", f"{gbit}gbit",
            "burst", "256kb", "latency", "100ms")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("nibble", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("work", type=pathlib.Path)
    p.add_argument("--gbit", type=float, default=1)
    p.add_argument("--batch", type=int, default=8, help="samples of 32 tokens a micro-batch")
    p.add_argument("--rounds", type=int, default=3, help="micro-batches of each rank in a step")
    p.add_argument("--steps", type=int, default=9)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--mode", default="sharded")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--grad-dtype", default="bf16")
    a = p.parse_args()
    shutil.rmtree(a.work, ignore_errors=True)
    a.work.mkdir(parents=True)
    mini = ROOT / "models" / "mini"
    config = json.loads((mini / "config.json").read_text())
    config.update(hidden_size=a.width, intermediate_size=3 * a.width, num_hidden_layers=a.layers,
                  num_attention_heads=a.width // 64, num_key_value_heads=max(1, a.width // 128),
                  tie_word_embeddings=False)
    (a.work / "config.json").write_text(json.dumps(config))
    shutil.copy(mini / "tokenizer.json", a.work)
    model = a.work / "model.dat"
    run(a.nibble, "init", "--config", a.work / "config.json", "--out", model)
    row = "one two three four five six seven eight nine ten"
    (a.work / "rows.tsv").write_text(f"{row}\t{row}\n" * 64)

    def train(name, ranks, accumulate):
        return ["train", "--model", str(model), "--train-data", str(a.work / "rows.tsv"), "--device", "cpu",
                "--threads", "1", "--batch-size", str(a.batch), "--seq-len", "32", "--steps", str(a.steps),
                "--accumulate", str(accumulate), "--grad-dtype", a.grad_dtype, "--export", "false",
                "--save-every-minutes", "0", "--runs-dir", str(a.work / "runs"), "--run-name", name,
                "--compute-dtype", "bf16", *(["--memory-mode", a.mode] if ranks > 1 else [])]

    def step_of(name):
        lines = (a.work / "runs" / name / "metrics.jsonl").read_text().splitlines()
        seconds = [json.loads(line)["seconds"] for line in lines][2:]
        shutil.rmtree(a.work / "runs" / name)
        return statistics.median(seconds)

    def together():
        launch = ["mpirun", "--allow-run-as-root", "-n", "2", "--bind-to", "none"]
        if a.gbit > 0:
            agent = a.work / "agent.sh"
            agent.write_text('#!/bin/sh\nhost=$1\nshift\n'
                             'exec ip netns exec nibble-b unshare --uts sh -c "hostname rank-b; $*"\n')
            agent.chmod(0o755)
            launch = ["ip", "netns", "exec", "nibble-a", "unshare", "--uts", "sh", "-c",
                      'hostname rank-a; exec "$0" "$@"', *launch,
                      "--host", f"{NET}.1:1,{NET}.2:1", "-mca", "plm_rsh_agent", str(agent),
                      "-mca", "btl", "tcp,self", "-mca", "pml", "ob1",
                      "-mca", "btl_tcp_if_include", f"{NET}.0/24",
                      "-mca", "oob_tcp_if_include", f"{NET}.0/24"]
        else:
            launch.append("--oversubscribe")
        run(*launch, a.nibble, *train("ranks", 2, 2 * a.rounds), stdin=subprocess.DEVNULL)
        return step_of("ranks")

    def apart():
        jobs = [subprocess.Popen([str(a.nibble), *train(f"apart{i}", 1, a.rounds)], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(2)]
        if any(job.wait() for job in jobs):
            sys.exit("a process alone failed")
        return max(step_of(f"apart{i}") for i in range(2))

    def alone():
        run(a.nibble, *train("alone", 1, 2 * a.rounds))
        return step_of("alone")

    plan = json.loads(run(a.nibble, "plan", "--config", a.work / "config.json", "--ranks", "2",
                          "--batch-size", a.batch, "--seq-len", "32", "--accumulate", 2 * a.rounds,
                          "--grad-dtype", a.grad_dtype, "--compute-dtype", "bf16", "--threads", "1",
                          "--device", "cpu", "--memory-mode", a.mode, "--json"))
    sent = plan["wire"][a.mode]["total_bytes"]
    wire = sent * 8e-9 / a.gbit if a.gbit > 0 else 0
    print(f"{sent / 1e6:.1f} MB sent by a rank in a step of {a.rounds} micro-batches of {a.batch} x 32 tokens, "
          f"mode {a.mode}, gradients {a.grad_dtype}")
    if a.gbit > 0:
        namespaces(a.gbit)
    ratios = []
    for k in range(a.repeat):
        compute, ranks = apart(), together()
        line = f"round {k + 1}: compute {compute * 1e3:.0f} ms, ranks {ranks * 1e3:.0f} ms"
        if a.gbit > 0:
            ratios.append(ranks / max(compute, wire))
            line += f", wire {wire * 1e3:.0f} ms: ranks / max {ratios[-1]:.3f}"
        else:
            one = alone()
            ratios.append(one / ranks)
            line += f", one process with all micro-batches {one * 1e3:.0f} ms: throughput {ratios[-1]:.2f} x"
        print(line, flush=True)
    print(f"median {statistics.median(ratios):.3f}")
    if a.gbit > 0:
        for name in "ab":
            run("ip", "netns", "del", f"nibble-{name}")


if __name__ == "__main__":
    if os.geteuid() != 0 and "--gbit" not in sys.argv:
        sys.exit("namespaces need root")
    main()
