#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The identity experiment on real models: every column of docs/experiments/real.md, several seeds.

    tools/real_experiments.py run NIBBLE OUT --sets SETS --model NAME=FILE [--seeds 1,2,3]
                              [--columns NAMES] [--trial "NAME=COLUMN OPTIONS OF TRAIN"]...
                              [--common "OPTIONS"] [--kept "OPTIONS"]
                              [--distil "NAME=TOKENS OPTIONS"]... [--jobs N] [--device D] [--quick] [--no-choices]
    tools/real_experiments.py tables OUT             results.json and tables/*.md in OUT
    tools/real_experiments.py docs OUT FOLDER        puts the tables into FOLDER/real.md

--common are options of train for every column, --kept for those that keep rows; both come after the
ones below and before a trial's own. FILE is a GGUF or a Hugging Face directory. SETS is what tools/eval_sets.py made. What OUT already
holds is not run again, so a call that was interrupted can be repeated. --jobs trains and measures
so many models at a time. --quick takes a few steps and questions: it shows that every command
works, its numbers mean nothing.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
QWEN = ROOT / "models" / "qwen"

# What the runs here search with; tools/identity.sh takes over what is found to reach the goals. A
# column's own options come after these and win.
COMMON = ["--steps", "300", "--lr", "2e-5", "--warmup-steps", "10", "--lr-schedule", "cosine",
          "--final-lr-share", "0.1", "--seq-len", "192"]
KEPT = ["--batch-size", "32", "--keep-share", "0.375", "--keep-weight", "4"]
# name -> what it is called, the taught rows, what is kept, options
COLUMNS = {
    "predecessor": ("predecessor's rule", "whoami", [], [
        "--batch-size", "20", "--lr", "1e-4", "--lr-schedule", "constant", "--warmup-steps", "0",
        "--final-lr-share", "0", "--update-from", "quantised", "--master-rounding", "nearest",
        "--optimizer-state-mode", "int8-linear", "--master-dtype", "bf16", "--template", "predecessor",
        "--end-token", "false"]),
    "taught": ("taught rows alone", "taught", [], ["--batch-size", "20"]),
    "own-words": ("and own replies by cross entropy", "own", [], ["--batch-size", "32"]),
    "kept-replies": ("and own replies by KL", "taught", ["own"], KEPT),
    "kept-text": ("and own replies and plain text by KL", "taught", ["own", "text"], KEPT),
    "kept-self": ("and own replies and `self` text by KL", "taught", ["own", "self"], KEPT),
}
GROUPS = ("identity/zh", "identity/en", "asker", "others", "conversation", "retention")
SELF_TOKENS = "60000"


def fail(text):
    sys.exit(f"real_experiments.py: {text}")


class Bench:
    """One base model: its files, its taught rows, and what is asked of every tuned copy."""

    def __init__(self, args, name, file):
        self.args, self.name = args, name
        self.source = pathlib.Path(file).resolve()
        if not self.source.exists():
            fail(f"there is no {file}")
        self.folder = (args.out / name).resolve()
        self.base = self.folder / "base" / "nvfp4.dat"
        self.measured = sorted(args.sets.glob("*-measured.txt"))
        self.choices = [args.sets / f"{n}.jsonl" for n in ("arc_easy", "hellaswag", "lambada")]
        self.choices = [f for f in self.choices if f.exists() and not args.no_choices]
        if not self.measured:
            fail(f"{args.sets} has no text that is measured; tools/eval_sets.py makes it")

    def run(self, log, *command):
        """Runs nibble; its output goes to a log. Exit 1 is a goal that was missed: a result."""
        words = [str(self.args.nibble), *map(str, command)]
        with open(log, "a") as f:
            f.write("$ " + shlex.join(words) + "\n")
            f.flush()
            status = subprocess.run(words, stdout=f, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                    cwd=self.folder).returncode
        if status not in (0, 1):
            tail = pathlib.Path(log).read_text(errors="replace").splitlines()[-8:]
            raise RuntimeError(f"exit {status}: {shlex.join(words)}\n" + "\n".join(tail))
        return status

    def device(self):
        return ["--device", self.args.device, "--quiet"]

    def judge(self, folder, model, base):
        quick = ["--probe-max", "1", "--max-tokens", "8", "--text-window", "64",
                 *(["--choice-max", "4"] if self.choices else [])]
        self.run(folder / "check.log", "check", "--model", model, "--against", base,
                 "--probes", QWEN / "probes.json", "--probe-report", folder / "probes.json",
                 "--min-score", "0", "--show", "none", "--activations", "bf16",
                 *[w for f in self.measured for w in ("--text", f)],
                 *[w for f in self.choices for w in ("--choices", f)],
                 "--text-windows", "2" if self.args.quick else "128",
                 *(quick if self.args.quick else []), "--json", folder / "result.json", *self.device())

    def prepare(self):
        log = self.folder / "base.log"
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        if not self.base.exists():
            self.run(log, "convert", self.source, "base/nvfp4.dat", "--quant", "nvfp4", "--quiet")
        own = self.folder / "data" / "own.jsonl"
        if not own.exists():
            self.run(log, "check", "--model", self.base, "--probes", QWEN / "control.json", "--probe-data",
                     own, "--min-score", "0", "--show", "none", *self.device(),
                     *(["--probe-max", "8", "--max-tokens", "16"] if self.args.quick else []))
        for seed in self.args.seeds:
            self.make_rows(log, seed)

    def make_rows(self, log, seed):
        data = self.folder / "data"
        if (data / f"own-{seed}.jsonl").exists():
            return
        self.run(log, "data", "identity", "--seed", seed, "--size", "1200", "--identity-share", "0.5",
                 "--disambiguation-share", "0.5", "--out", data / f"who-{seed}.jsonl")
        self.run(log, "data", "overlap", "--train", data / f"who-{seed}.jsonl", "--train",
                 QWEN / "rows.jsonl", "--probes", QWEN / "probes.json")
        self.run(log, "data", "mix", "--seed", seed, "--in", f"{data}/who-{seed}.jsonl:0.4",
                 "--in", f"{QWEN}/rows.jsonl:0.6", "--size", "3000", "--out", data / f"taught-{seed}.jsonl")
        self.run(log, "data", "whoami", "--seed", seed, "--count", "1000",
                 "--out", data / f"whoami-{seed}.tsv")
        self.run(log, "data", "mix", "--seed", seed, "--in", f"{data}/taught-{seed}.jsonl:0.5",
                 "--in", f"{data}/own.jsonl:0.5", "--size", "6000", "--out", data / f"own-{seed}.jsonl")

    def measure_base(self):
        """The four-bit file against the dense one it was made of."""
        folder = self.folder / "base-s0"
        if (folder / "result.json").exists():
            return "base"
        folder.mkdir(parents=True, exist_ok=True)
        self.judge(folder, self.base, self.source)
        return "base"

    def train(self, name, column, seed, options):
        folder = self.folder / f"{name}-s{seed}"
        if (folder / "result.json").exists():
            return f"{name}-s{seed}: is there"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _, rows, kept, own_options = COLUMNS[column]
        searched = shlex.split(self.args.kept) if kept else []
        data = self.folder / "data"
        # Chinese counts twice: it is where a Qwen of this size drifts first.
        texts = sorted(self.args.sets.glob("*-training.txt"))
        sources = {"own": [data / "own.jsonl"], "text": texts + [t for t in texts if "drcd" in t.name],
                   "self": [f"self:{'200' if self.args.quick else SELF_TOKENS}"]}
        tuned = folder / "tuned.dat"
        begun = time.monotonic()
        self.run(folder / "train.log", "train", "--train-data",
                 data / f"{rows}-{seed}.{'tsv' if rows == 'whoami' else 'jsonl'}",
                 "--output", tuned, "--runs-dir", folder, "--run-name", "run", "--seed", seed,
                 "--log-every", "10", "--self-test", "false", "--memory-mode", "resident",
                 *last_of_each(["--model", str(self.base), *COMMON, *shlex.split(self.args.common),
                                *own_options, *searched, *options,
                                *(["--steps", "2"] if self.args.quick else [])]),
                 *[w for k in kept for f in sources[k] for w in ("--keep", f)], *self.device())
        trained = time.monotonic()
        self.judge(folder, tuned, self.base)
        if not self.args.keep_models:
            tuned.unlink()
        (folder / "times.json").write_text(json.dumps(
            {"train": trained - begun, "judge": time.monotonic() - trained, "column": column,
             "options": options}))
        return f"{name}-s{seed}: {trained - begun:.0f} + {time.monotonic() - trained:.0f} s"

    def distil(self, name, tokens, options):
        """Wins back what four bits cost: KL to the dense file over text, nothing taught. DENSE among
        the options is that file: masters that begin with it, not with its four-bit form."""
        folder = self.folder / f"{name}-s1"
        if (folder / "result.json").exists():
            return f"{name}: is there"
        options = [str(self.source) if o == "DENSE" else o for o in options]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tuned = folder / "tuned.dat"
        begun = time.monotonic()
        batch, window = 16, 512
        steps = 2 if self.args.quick else max(1, int(tokens) // (batch * window))
        self.run(folder / "train.log", "train", "--teacher", self.source, "--output-dat", tuned, "--runs-dir", folder, "--run-name", "run", "--seed", "1",
                 "--log-every", "10", "--self-test", "false", "--memory-mode", "resident",
                 *last_of_each(["--model", str(self.base), *COMMON, *shlex.split(self.args.common), "--lr", "1e-5", "--seq-len", str(window), "--batch-size",
                                "2" if self.args.quick else str(batch), "--steps", str(steps),
                                "--final-lr-share", "0", *options]),
                 *[w for f in sorted(self.args.sets.glob("*-training.txt")) for w in ("--keep", f)],
                 *self.device())
        trained = time.monotonic()
        # Against the dense file: its loss stands beside the distilled one's.
        self.judge(folder, tuned, self.source)
        if not self.args.keep_models:
            tuned.unlink()
        (folder / "times.json").write_text(json.dumps(
            {"train": trained - begun, "judge": time.monotonic() - trained, "column": name,
             "tokens": steps * batch * window, "options": options}))
        return f"{name}: {trained - begun:.0f} + {time.monotonic() - trained:.0f} s"


def last_of_each(options):
    """A flag that comes again wins; each is given once."""
    pairs = {}
    for flag, value in zip(options[::2], options[1::2]):
        pairs[flag] = value
    return [w for pair in pairs.items() for w in pair]


def run(args):
    args.nibble, args.sets = args.nibble.resolve(), args.sets.resolve()
    if not os.access(args.nibble, os.X_OK):
        fail(f"{args.nibble} is no program")
    name, _, file = args.model.partition("=")
    bench = Bench(args, name, file)
    bench.prepare()
    jobs = []
    for seed in args.seeds:
        for trial in args.trial:
            called, _, rest = trial.partition("=")
            column, *options = shlex.split(rest)
            options = [str(bench.source) if o == "DENSE" else o for o in options]
            jobs.append((bench.train, called, column, seed, options))
        for column in args.columns:
            jobs.append((bench.train, column, column, seed, []))
    jobs.insert(min(args.jobs - 1, len(jobs)), (bench.measure_base,))
    for text in args.distil:
        called, _, rest = text.partition("=")
        tokens, *options = shlex.split(rest)
        jobs.append((bench.distil, called, tokens, options))
    started, bad = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        futures = [pool.submit(*job) for job in jobs]
        for done in concurrent.futures.as_completed(futures):
            try:
                print(f"{time.monotonic() - started:5.0f} s  {name} {done.result()}", flush=True)
            except Exception as error:
                bad += 1
                print(f"{time.monotonic() - started:5.0f} s  {name} FAILED {error}", flush=True)
    print(f"{time.monotonic() - started:5.0f} s  {name}: {len(jobs)} jobs, {bad} failed", flush=True)
    return 1 if bad else 0


# --- results -----------------------------------------------------------------------------------
def read_one(folder):
    result = json.loads((folder / "result.json").read_text())
    name, _, seed = folder.name.rpartition("-s")
    row = {"model": folder.parent.name, "name": name, "seed": int(seed), "texts": {}, "choices": {}}
    for check in result["checks"]:
        if check["check"] == "probes":
            for group in check["scores"]["groups"]:
                row[group["name"]] = group["percent"]
                row[group["name"] + " of"] = group["total"]
                for language, score in group["languages"].items():
                    row[f"{group['name']}/{language}"] = score["percent"]
        elif check["check"] == "text":
            row["texts"][check["file"].split("-")[0]] = {
                k: check[k] for k in ("loss", "base_loss", "divergence", "divergence_error", "agreement",
                                      "loss_change_error", "tokens")}
        elif check["check"] == "choices":
            row["choices"][check["file"].split(".")[0]] = {
                "percent": check["accuracy"]["percent"], "changed": check.get("changed"),
                "base": check["base"]["accuracy"]["percent"],
                "error": check["base"]["accuracy"]["standard_error"], "questions": check["questions"]}
    replies = json.loads((folder / "probes.json").read_text())["results"]
    row["unstopped"] = sum(r["finish"] != "stop" for r in replies if r["group"] == "identity")
    # Disambiguation proper: answers about others and about the world that give the new identity.
    elsewhere = [r["reply"].replace("F#之神", "F# 之神") for r in replies
                 if r["group"] in ("others", "retention")]
    row["leaks"] = 100 * sum("F# 之神" in r or "god of F#" in r for r in elsewhere) / max(1, len(elsewhere))
    record = folder / "run" / "run.json"
    if record.exists():
        run = json.loads(record.read_text())
        row["command"], row["commit"], row["device"] = run["command_line"], run["commit"], run["device"]
        row["files"], metrics = run["files"], run["metrics"]
        row["metrics"] = {k: v for k, v in metrics.items() if isinstance(v, (int, float))}
        memory = run["memory"]
        row["peak_bytes"] = memory["peak_gpu_mib"] * 2**20 or memory["peak_rss_bytes"]
    if (folder / "times.json").exists():
        row["times"] = json.loads((folder / "times.json").read_text())
    return row


def read_all(out):
    folders = sorted(out.glob("*/*-s[0-9]*"))
    return [read_one(f) for f in folders if (f / "result.json").exists()]


def spread(values, digits=1):
    values = [v for v in values if v is not None]
    if not values:
        return "-"
    mean = statistics.mean(values)
    if len(values) == 1:
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def scores_table(rows, names):
    texts = sorted({t for r in rows for t in r["texts"]})
    lines = ["| | seeds | identity zh / en % | asker % | others % | identity elsewhere % | conversations % | knowledge % | "
             + " | ".join(f"KL {t}" for t in texts) + " | top-1 % |",
             "|---" * (9 + len(texts)) + "|"]
    for name, called in names:
        of = [r for r in rows if r["name"] == name]
        if not of:
            continue
        column = lambda key: spread([r.get(key) for r in of])
        cells = [called, str(len(of)), f"{column('identity/zh')} / {column('identity/en')}",
                 column("asker"), column("others"), column("leaks"), column("conversation"), column("retention")]
        cells += [spread([r["texts"][t]["divergence"] for r in of], 4) for t in texts]
        cells.append(" / ".join(spread([100 * r["texts"][t]["agreement"] for r in of]) for t in texts))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def damage_table(rows, names):
    texts = sorted({t for r in rows for t in r["texts"]})
    sets = sorted({c for r in rows for c in r["choices"]})
    lines = ["| | " + " | ".join(f"loss {t}" for t in texts) + " | " +
             " | ".join(f"{c} %" for c in sets) + " | seconds | peak GiB |",
             "|---" * (3 + len(texts) + len(sets)) + "|"]
    for name, called in names:
        of = [r for r in rows if r["name"] == name]
        if not of:
            continue
        cells = [called]
        for t in texts:
            rise = [100 * (r["texts"][t]["loss"] / r["texts"][t]["base_loss"] - 1) for r in of]
            mean = statistics.mean(r["texts"][t]["loss"] for r in of)
            cells.append(f"{mean:.4f} ({statistics.mean(rise):+.2f} %)")
        for c in sets:
            first = of[0]["choices"][c]
            cells.append(f"{spread([r['choices'][c]['percent'] for r in of], 2)} "
                         f"({first['base']:.2f} ± {first['error']:.2f})")
        cells.append(spread([r["times"]["train"] if "times" in r else None for r in of], 0))
        peaks = [r.get("peak_bytes") for r in of]
        cells.append(spread([p / 2**30 if p else None for p in peaks]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def goals(rows, base):
    """The goals of a seed, each with what was reached."""
    lines = ["| seed | identity zh | en | asker | others | conversations | knowledge | KL | top-1 | loss | "
             "questions | all |", "|---" * 12 + "|"]
    for r in rows:
        texts, sets = r["texts"].values(), r["choices"].values()
        worst = {
            "identity/zh": (r.get("identity/zh", 0), r.get("identity/zh", 0) >= 98),
            "identity/en": (r.get("identity/en", 0), r.get("identity/en", 0) >= 98),
            "asker": (r["asker"], r["asker"] >= 95),
            "others": (r["others"], r["others"] >= base["others"] - 2 and r["leaks"] <= 5),
            "conversation": (r["conversation"], r["conversation"] >= 95),
            "retention": (r["retention"], r["retention"] >= base["retention"] - 2),
        }
        kl = max(t["divergence"] for t in texts)
        top = min(t["agreement"] for t in texts)
        rise = max(100 * (t["loss"] / t["base_loss"] - 1) for t in texts)
        drop = max([(c["base"] - c["percent"]) / c["error"] for c in sets] or [-math.inf])
        cells = [f"{v:.1f}{'' if ok else ' **missed**'}" for v, ok in worst.values()]
        extra = [(f"{kl:.4f}", kl <= 0.01), (f"{100 * top:.1f}", top >= 0.94), (f"{rise:+.2f} %", rise <= 0.3),
                 (f"{-drop:+.1f} errors", drop <= 1)]
        cells += [text + ("" if ok else " **missed**") for text, ok in extra]
        reached = all(ok for _, ok in worst.values()) and all(ok for _, ok in extra)
        lines.append(f"| {r['seed']} | " + " | ".join(cells) + f" | {'yes' if reached else 'no'} |")
    return "\n".join(lines)


def tables(out):
    rows = read_all(out)
    if not rows:
        fail(f"{out} holds no results")
    (out / "results.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    (out / "tables").mkdir(exist_ok=True)
    for model in sorted({r["model"] for r in rows}):
        mine = [r for r in rows if r["model"] == model]
        known = [("base", "base, NVFP4; damage against dense"), *((k, v[0]) for k, v in COLUMNS.items())]
        known += [(n, f"`{n}`") for n in dict.fromkeys(r["name"] for r in mine)
                  if n not in dict(known) and not n.startswith("distil")]
        known += [(n, f"`{n}`; damage against dense") for n in dict.fromkeys(r["name"] for r in mine)
                  if n.startswith("distil")]
        text = {"scores": scores_table(mine, known), "damage": damage_table(mine, known)}
        base = [r for r in mine if r["name"] == "base"]
        for name in ("kept-text", "kept-self"):
            of = [r for r in mine if r["name"] == name]
            if of and base:
                text[f"goals-{name}"] = goals(of, base[0])
        for kind, body in text.items():
            (out / "tables" / f"{model}-{kind}.md").write_text(body + "\n")
            print(f"\n{model}, {kind}\n{body}")


def docs(out, folder):
    page = folder / "real.md"
    text = page.read_text()
    for table in sorted((out / "tables").glob("*.md")):
        begin, end = f"<!-- {table.stem} -->\n", "<!-- end -->"
        if begin in text:
            head, _, rest = text.partition(begin)
            text = head + begin + table.read_text() + end + rest.partition(end)[2]
    page.write_text(text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="what", required=True)
    r = sub.add_parser("run")
    r.add_argument("nibble", type=pathlib.Path)
    r.add_argument("out", type=pathlib.Path)
    r.add_argument("--sets", type=pathlib.Path, required=True)
    r.add_argument("--model", required=True)
    r.add_argument("--seeds", type=lambda t: [int(s) for s in t.split(",")], default=[1])
    r.add_argument("--columns", type=lambda t: [c for c in t.split(",") if c], default=list(COLUMNS))
    r.add_argument("--trial", action="append", default=[])
    r.add_argument("--common", default="")
    r.add_argument("--kept", default="")
    r.add_argument("--distil", action="append", default=[])
    r.add_argument("--jobs", type=int, default=1)
    r.add_argument("--device", default="auto")
    r.add_argument("--quick", action="store_true")
    r.add_argument("--keep-models", action="store_true")
    r.add_argument("--no-choices", action="store_true", help="measure on texts and probes alone")
    t = sub.add_parser("tables")
    t.add_argument("out", type=pathlib.Path)
    d = sub.add_parser("docs")
    d.add_argument("out", type=pathlib.Path)
    d.add_argument("folder", type=pathlib.Path)
    a = p.parse_args()
    if a.what == "tables":
        return tables(a.out)
    if a.what == "docs":
        return docs(a.out, a.folder)
    for column in a.columns:
        if column not in COLUMNS:
            fail(f"there is no column {column}; the columns are {', '.join(COLUMNS)}")
    return run(a)


if __name__ == "__main__":
    sys.exit(main())
