#!/usr/bin/env python3
"""TensorBoard's own reader on the curves of a run that was ended and resumed.

tensorboard_reader.py NIBBLE SOURCE. Skips (77) where neither this python nor $NIBBLE_PYTHON has
tensorboard."""
import os
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    other = os.environ.get("NIBBLE_PYTHON")
    if other and os.environ.get("NIBBLE_PYTHON_TRIED") != "1":
        os.environ["NIBBLE_PYTHON_TRIED"] = "1"
        os.execv(other, [other] + sys.argv)
    print("no tensorboard in this python: pip install tensorboard, or NIBBLE_PYTHON=PYTHON")
    sys.exit(77)

nibble, source = sys.argv[1:3]
with tempfile.TemporaryDirectory() as d:
    data = os.path.join(d, "pairs.tsv")
    with open(data, "w", encoding="utf-8") as f:
        f.write("Who are you?\tI am the god of F#.\n你是誰\t我是 F# 之神\n")
    tb = os.path.join(d, "tb")

    def train(steps, *more):
        subprocess.run([nibble, "--quiet", "train", "--model", os.path.join(source, "models/mini"),
                        "--train-data", data, "--eval-data", data, "--eval-every", "2", "--seq-len",
                        "64", "--steps", str(steps), "--runs-dir", os.path.join(d, "runs"),
                        "--checkpoint-dir", os.path.join(d, "ck"), "--save-every-steps", "2",
                        "--lr-schedule", "constant", "--output", os.path.join(d, f"out{steps}.dat"),
                        "--probes", os.path.join(source, "models/mini/conversations.json"),
                        "--probe-every", "2", "--probe-max", "1",
                        "--tensorboard", tb, *more], check=True, stdout=subprocess.DEVNULL)

    train(4)
    train(6, "--resume")
    events = EventAccumulator(tb)
    events.Reload()
    tags = events.Tags()["scalars"]
    for tag in ["train/loss", "train/learning_rate", "train/gradient_norm",
                "train/tokens_per_second", "memory/resident_bytes", "eval/loss", "probes/all"]:
        assert tag in tags, (tag, tags)
    steps = [e.step for e in events.Scalars("train/loss")]
    assert steps == [1, 2, 3, 4, 5, 6], steps
    losses = [e.value for e in events.Scalars("train/loss")]
    assert all(0 < x < 100 for x in losses), losses
    # The last gate of the first run stands between two of the second's steps: all are there once.
    gates = [e.step for e in events.Scalars("probes/all")]
    assert gates == [2, 4, 6], gates
    print("tags", tags, "losses", losses)
