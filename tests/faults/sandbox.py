# SPDX-License-Identifier: MIT
"""A small model, some commands on it, and what must be true of their files whatever happens.
For run_faults.py and crash_images.py."""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu",
    "bos_token_id": 3046, "eos_token_id": [3048, 3046], "hidden_size": 64, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1,
    "intermediate_size": 64, "vocab_size": 3072, "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": True,
    "initializer_range": 0.02, "torch_dtype": "bfloat16",
}
STEPS = 3
COLLAPSED = 1  # the exit code


class Sandbox:
    """Folders with the state before each command, and what each makes of it undisturbed."""

    def __init__(self, nibble, root, source):
        self.nibble = str(Path(nibble).resolve())
        self.root = Path(root).resolve()
        base = self.root / "base"
        base.mkdir(parents=True)
        (base / "config.json").write_text(json.dumps(CONFIG))
        shutil.copy(Path(source) / "models/mini/tokenizer.json", base / "tokenizer.json")
        lines = [f"question {i}\tanswer {i * i}" for i in range(12)]
        (base / "pairs.tsv").write_text("\n".join(lines) + "\n")
        self.plain(base, ["init", "--config", "config.json", "--out", "model", "--seed", "3"])
        self.plain(base, ["init", "--config", "config.json", "--out", "old.dat", "--seed", "4"])
        self.commands = {}
        shutil.copy(base / "old.dat", base / "converted.dat")
        self.add("convert", base, self.convert("converted.dat"))
        self.add("convert-directory", base,
                 ["convert", "old.dat", "made", "--quant", "none", "--config", "config.json",
                  "--max-shard-size", "30KB"])
        if len(list((self.after("convert-directory") / "made").glob("model-*.safetensors"))) < 3:
            raise SystemExit("convert-directory: it should have several shards")
        self.add("train", base, self.train())
        self.add("resume", self.stopped(base, 1), self.train("--resume"))
        self.add("export", self.stopped(base, STEPS), self.train("--resume"))
        self.add("prune", self.after("train"),
                 ["runs", "prune", "--runs-dir", "runs", "--keep", "0", "--yes"])
        self.add("split", base, ["data", "split", "--in", "pairs.tsv", "--out", "train.tsv",
                                 "--held-out", "held.tsv", "--held-out-share", "0.3"])

    def add_rollback(self):
        """A training that explodes, goes back to a checkpoint with half the rate, several times, and
        gives up. Its checkpoints are of one attempt or another: only the last ones are known."""
        args = self.train("--lr", "2", "--warmup-steps", "40", "--grad-clip", "0", "--on-collapse",
                          "rollback", "--max-restarts", "5", steps=40)
        args[args.index("--save-every-steps") + 1] = "5"
        before, after = self.root / "base", self.root / "rollback-after"
        shutil.copytree(before, after)
        done = self.run(after, args)
        if done.returncode != COLLAPSED or b"back to step" not in done.stdout:
            raise SystemExit(f"rollback: exit {done.returncode}\n{done.stdout.decode()}")
        self.commands["rollback"] = (before, after, args)

    @staticmethod
    def convert(out):
        return ["convert", "model", out, "--quant", "nvfp4", "--force", "--threads", "2"]

    @staticmethod
    def train(*more, steps=STEPS):
        return ["train", "--model", "model", "--train-data", "pairs.tsv", "--steps", str(steps),
                "--seq-len", "32", "--batch-size", "2", "--threads", "2", "--runs-dir", "runs",
                "--memory-mode", "resident", "--recompute", "none",  # not by what is free
                "--checkpoint-dir", "saved", "--save-every-steps", "1", "--output", "trained",
                "--test-max-tokens", "4", *more]

    def run(self, cwd, args, env=None):
        return subprocess.run([self.nibble, *args, "--quiet"], cwd=cwd, env=env, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def plain(self, cwd, args):
        done = self.run(cwd, args)
        if done.returncode != 0:
            raise SystemExit(f"{args}: exit {done.returncode}\n{done.stdout.decode()}")

    def add(self, name, before, args):
        after = self.root / f"{name}-after"
        shutil.copytree(before, after, symlinks=True)
        self.plain(after, args)
        self.commands[name] = (before, after, args)

    def after(self, name):
        return self.commands[name][1]

    def stopped(self, base, step):
        """A run that has checkpoints up to `step` and no output yet."""
        folder = self.root / f"stopped-{step}"
        shutil.copytree(base, folder)
        shutil.copytree(self.after("train") / "saved", folder / "saved")
        for file in (folder / "saved").glob("checkpoint-*"):
            if int(re.search(r"-(\d+)\.", file.name)[1]) > step:
                file.unlink()
        if not list((folder / "saved").glob("checkpoint-*")):  # only the newest are kept
            shutil.rmtree(folder)
            shutil.copytree(base, folder)
            args = self.train("--export", "false", steps=step)
            at = args.index("--output")
            self.plain(folder, args[:at] + args[at + 2:])
            shutil.rmtree(folder / "runs")
        return folder

    def fresh(self, name, to):
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.commands[name][0], to, symlinks=True)
        return to


def contents(folder):
    """Relative names and bytes of the files of a folder; nothing where it is none."""
    folder = Path(folder)
    if folder.is_file():
        return {"": folder.read_bytes()}
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*"))
            if p.is_file() and not p.is_symlink()}


def problems(folder, before, after, all_new=False, ended=True, attempts=False):
    """What is neither old nor new, or not sound. `ended`: the program has ended by itself.
    `attempts`: there may be checkpoints of attempts that were given up."""
    folder, wrong = Path(folder), []
    for output in ("converted.dat", "made", "trained", "train.tsv", "held.tsv"):
        allowed = [contents(after / output)] + ([] if all_new else [contents(before / output)])
        now = {n: b for n, b in contents(folder / output).items() if not n.endswith("nibble-lock")}
        if now not in allowed:
            wrong.append(f"{output} is neither old nor new: {sorted(now)}")
    for file in [] if attempts else folder.glob("saved/checkpoint-*.safetensors"):
        known = [d / "saved" / file.name for d in (before, after)] + \
                list(folder.parent.glob(f"*/saved/{file.name}"))
        if file.read_bytes() not in [k.read_bytes() for k in known if k.is_file() and k != file]:
            wrong.append(f"{file.name} is not the checkpoint of that step")
    for file in [*folder.glob("runs/*/*.json"), *folder.glob("runs/.trash/*/*/*.json")]:
        try:
            j = json.loads(file.read_bytes())
        except ValueError as e:
            wrong.append(f"{file.relative_to(folder)} is no JSON: {e}")
            continue
        if ended and file.name == "status.json" and j["state"] == "running":
            wrong.append(f"{file.relative_to(folder)} says the run goes on")
    for original in ("model", "old.dat", "pairs.tsv", "tokenizer.json"):
        if contents(folder / original) != contents(before / original):
            wrong.append(f"the input {original} has changed")
    return wrong


def leftovers(folder):
    return [str(p.relative_to(folder)) for p in Path(folder).rglob("*.nibble-tmp")]


def environment(library, **settings):
    env = dict(os.environ, LD_PRELOAD=str(Path(library).resolve()))
    env.update({k: str(v) for k, v in settings.items()})
    return env
