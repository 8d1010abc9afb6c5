#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What tools/experiments.sh leaves behind, as tables and plots.

tools/experiments.py tables OUT          OUT/results.json, OUT/tables/*.md, OUT/tables/*.svg
tools/experiments.py docs OUT FOLDER     puts them into the documents of FOLDER (docs/experiments)
tools/experiments.py codes BASE.dat NEW.dat   the share of 4-bit values and scales that differ
tools/experiments.py reach BASE.dat      which weights one step of AdamW can move, by learning rate
tools/experiments.py jsonl FILE.tsv      prompts and targets as chat messages
"""
import json
import math
import pathlib
import re
import shutil
import statistics
import sys

import dat_file

GROUPS = ("identity", "disambiguation", "retention")
EXPERIMENTS = ("rules", "rounding", "states", "scales", "quantise", "shares")


# --- files -------------------------------------------------------------------------------------
def dat_entries(path):
    """name -> bytes"""
    return {key: data for key, _, _, data in dat_file.entries(path)}


def bits_apart(a, b):
    n = len(a)
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(n, "little")


def changed(base, new):
    """How many codes and scales of the NVFP4 matrices differ. A zero has two codes."""
    plain = bytes((0 if c & 15 == 8 else c & 15) | (0 if c >> 4 == 8 else c & 240)
                  for c in range(256))
    nibbles = bytes((c & 15 != 0) + (c >> 4 != 0) for c in range(256))
    total = codes = blocks = scales = 0
    for name, old in base.items():
        if name not in new:
            continue
        if name.endswith(".qdata"):
            apart = bits_apart(old.translate(plain), new[name].translate(plain)).translate(nibbles)
            total += 2 * len(old)
            codes += apart.count(1) + 2 * apart.count(2)
        elif name.endswith(".scale"):
            apart = bits_apart(old, new[name])
            blocks += len(old)
            scales += len(old) - apart.count(0)
    return {"codes": codes / total, "scales": scales / blocks}


E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)
RATES = (1e-5, 2e-5, 5e-5, 1e-4, 1.5e-4, 4e-4, 1e-3, 3e-3, 1e-2)


def e4m3(byte):
    exponent, mantissa = byte >> 3 & 15, byte & 7
    return (1 + mantissa / 8) * 2.0 ** (exponent - 7) if exponent else mantissa / 8 * 2.0 ** -6


def reach(base):
    """Of the 4-bit weights, those that a step as long as the rate takes to another value: of the
    4-bit code of its block (from the copy), of bf16 (from a master that holds these values)."""
    counts = {}  # (scale byte, magnitude code) -> how many
    for name, codes in base.items():
        if not name.endswith(".qdata"):
            continue
        rows = {}
        for i, byte in enumerate(base[name[:-len("qdata")] + "scale"]):
            rows.setdefault(byte, []).append(codes[8 * i:8 * i + 8])
        for byte, blocks in rows.items():
            text = b"".join(blocks)
            both = text.translate(bytes(c & 7 for c in range(256))) + \
                text.translate(bytes(c >> 4 & 7 for c in range(256)))
            for code in range(8):
                counts[byte, code] = counts.get((byte, code), 0) + both.count(code)
    total = sum(counts.values())

    def share(rate, edges):
        return sum(n * sum(rate > e for e in edges(e4m3(byte), code)) / 2
                   for (byte, code), n in counts.items()) / total

    def of_codes(scale, code):  # half of the way to the neighbours; above 6 there is none
        down = E2M1[code] - E2M1[code - 1] if code else 0.5
        up = E2M1[code + 1] - E2M1[code] if code < 7 else math.inf
        return scale * down / 2, scale * up / 2

    def of_bf16(scale, code):  # half a step of seven bits
        value = scale * E2M1[code]
        half = 2.0 ** (math.floor(math.log2(value)) - 8) if value else 0.0
        return half, half

    return [{"rate": r, "codes": share(r, of_codes), "bf16": share(r, of_bf16)} for r in RATES]


# --- results -----------------------------------------------------------------------------------
def read_run(out, row):
    name, experiment, setting, seed, options = row
    result = {"name": name, "experiment": experiment, "setting": setting, "seed": int(seed),
              "options": options}
    record = out / "runs" / name / "run.json"
    if record.exists():
        run = json.loads(record.read_text())
        metrics = run["metrics"]
        result["state"] = run["state"]
        if run["state"] != "finished":
            result["message"] = run.get("message")
        result["loss"] = metrics["smoothed_loss"]
        held = metrics["held_out"]
        result["held_out"] = held["loss"] if held else None
        result["skipped"] = metrics["skipped"]
        result["seconds"] = metrics["seconds"]
    scores = out / "scores" / f"{name}.json"
    if scores.exists():
        found = json.loads(scores.read_text())
        groups = found.get("groups") or found["scores"]["groups"]
        for group in groups:
            result[group["name"]] = group["percent"]
    codes = out / "codes" / f"{name}.json"
    if codes.exists() and codes.stat().st_size:
        result.update({f"changed_{k}": v for k, v in json.loads(codes.read_text()).items()})
    inspected = out / "codes" / f"{name}.inspect.json"
    if inspected.exists() and inspected.stat().st_size:
        result["weight_error"] = mean_error(json.loads(inspected.read_text()))
    return result


def mean_error(inspected):
    """The error of all NVFP4 tensors together, relative to their values."""
    error = size = 0.0
    for tensor in inspected["tensors"]:
        if tensor.get("error_basis") == "reference":
            n = math.prod(tensor["shape"])
            error += n * (tensor["error_relative_rms"] * tensor["rms"]) ** 2
            size += n * tensor["rms"] ** 2
    return math.sqrt(error / size) if size else None


def read_results(out):
    files = [out / "manifest" / f"{name}.tsv" for name in ("base", *EXPERIMENTS)]
    lines = [line for f in files if f.exists() for line in f.read_text().splitlines()]
    return [read_run(out, line.split("\t")) for line in lines]


def settings_of(results, experiment):
    """Settings in the order of the manifest, each with its runs."""
    settings = {}
    for run in results:
        if run["experiment"] in (experiment, "base"):
            settings.setdefault(run["setting"], []).append(run)
    return settings


def values(runs, key):
    found = [run.get(key) for run in runs]
    return [v for v in found if isinstance(v, (int, float)) and math.isfinite(v)]


def cell(runs, key, form="{:.1f}", factor=1.0):
    """Mean and standard deviation over the seeds; how many of them, when not all have a value."""
    found = [factor * v for v in values(runs, key)]
    if not found:
        return "-"
    text = form.format(statistics.fmean(found))
    if len(found) > 1:
        text += " ± " + form.format(statistics.stdev(found))
    return text if len(found) == len(runs) else f"{text} ({len(found)} of {len(runs)})"


def ended(runs):
    broken = [run for run in runs if run.get("state") not in ("finished", None)]
    skipped = sum(run.get("skipped") or 0 for run in runs)
    notes = []
    if broken:
        notes.append(f"{len(broken)} of {len(runs)} ended in an error")
    if skipped:
        notes.append(f"{skipped} steps skipped")
    return ", ".join(notes)


COLUMNS = {
    "loss": ("loss", lambda r: cell(r, "loss", "{:.3f}")),
    "held": ("held-out loss", lambda r: cell(r, "held_out", "{:.3f}")),
    "fine": ("held-out loss", lambda r: cell(r, "held_out", "{:.4f}")),
    "codes": ("4-bit codes changed %", lambda r: cell(r, "changed_codes", "{:.2f}", 100)),
    "error": ("error of the weights %", lambda r: cell(r, "weight_error", "{:.3f}", 100)),
    **{g: (f"{g} %", lambda r, g=g: cell(r, g)) for g in GROUPS},
    "ended": ("", ended),
}
TABLES = {
    "rules": ("loss", "held", "codes", *GROUPS, "ended"),
    "rounding": ("fine", "codes", *GROUPS),
    "states": ("fine", *GROUPS, "ended"),
    "scales": ("fine", *GROUPS),
    "quantise": ("error", "fine", *GROUPS),
    "shares": (*GROUPS,),
}


def table(experiment, results):
    columns = [COLUMNS[c] for c in TABLES[experiment]]
    shown = settings_of(results, experiment).values()
    columns = [c for c in columns if c[0] or any(c[1](runs) for runs in shown)]  # notes, if any
    lines = ["| setting | " + " | ".join(title for title, _ in columns) + " |",
             "|---" * (len(columns) + 1) + "|"]
    for name, runs in settings_of(results, experiment).items():
        lines.append(f"| `{name}` | " + " | ".join(text(runs) for _, text in columns) + " |")
    return "\n".join(lines) + "\n"


def reach_table(rows):
    lines = ["| learning rate | 4-bit weights that one step can move % | weights of a bf16 master, "
             "rounded to nearest % |", "|---|---|---|"]
    lines += [f"| {r['rate']:g} | {100 * r['codes']:.2f} | {100 * r['bf16']:.2f} |" for r in rows]
    return "\n".join(lines) + "\n"


# --- plots -------------------------------------------------------------------------------------
COLOURS = ("#4269d0", "#e5692c", "#3ca951", "#a463f2", "#97731f")
STYLE = ("<style>svg{background:#fff;font:13px system-ui,sans-serif}text{fill:#222}"
         ".g{stroke:#ddd}@media(prefers-color-scheme:dark){svg{background:#181a1b}"
         "text{fill:#ddd}.g{stroke:#444}}</style>")


def chart(title, x_label, y_label, ticks, lines, y_ticks, y_scale=float):
    """Lines over a logarithmic x: name -> [(x, mean, lowest, highest)]. y_scale: float or log."""
    width, height, left, top, right, bottom = 720, 400, 64, 40, 170, 52
    low_x, high_x = math.log(min(ticks)), math.log(max(ticks))
    low_y, high_y = y_scale(y_ticks[0]), y_scale(y_ticks[-1])

    def px(x):
        return left + (math.log(x) - low_x) / (high_x - low_x) * (width - left - right)

    def py(y):
        y = min(max(y_scale(y), low_y), high_y)
        return top + (high_y - y) / (high_y - low_y) * (height - top - bottom)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             f'role="img" aria-label="{title}">{STYLE}',
             f'<text x="{left}" y="22" font-weight="600">{title}</text>']
    for y in y_ticks:
        parts.append(f'<line class="g" x1="{left}" x2="{width - right}" y1="{py(y):.1f}" '
                     f'y2="{py(y):.1f}"/><text x="{left - 8}" y="{py(y) + 4:.1f}" '
                     f'text-anchor="end">{y:.3g}</text>')
    for x in ticks:
        parts.append(f'<text x="{px(x):.1f}" y="{height - bottom + 20}" text-anchor="middle">'
                     f'{x:g}</text>')
    parts.append(f'<text x="{(left + width - right) / 2}" y="{height - 10}" '
                 f'text-anchor="middle">{x_label}</text>')
    parts.append(f'<text x="16" y="{(top + height - bottom) / 2}" text-anchor="middle" '
                 f'transform="rotate(-90 16 {(top + height - bottom) / 2})">{y_label}</text>')
    for i, (name, points) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y, _, _ in points)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        for x, y, low, high in points:
            parts.append(f'<line stroke="{colour}" x1="{px(x):.1f}" x2="{px(x):.1f}" '
                         f'y1="{py(low):.1f}" y2="{py(high):.1f}"/>'
                         f'<circle fill="{colour}" cx="{px(x):.1f}" cy="{py(y):.1f}" r="3.5"/>')
        at = top + 12 + 20 * i
        parts.append(f'<line stroke="{colour}" stroke-width="2" x1="{width - right + 12}" '
                     f'x2="{width - right + 32}" y1="{at}" y2="{at}"/>'
                     f'<text x="{width - right + 38}" y="{at + 4}">{name}</text>')
    return "\n".join(parts) + "\n</svg>\n"


def points_of(results, experiment, prefix, key):
    points = []
    for name, runs in settings_of(results, experiment).items():
        found = values(runs, key)
        x = re.fullmatch(re.escape(prefix) + r"-([0-9.e-]+)", name)
        if x and found:
            points.append((float(x[1]), statistics.fmean(found), min(found), max(found)))
    return sorted(points)


def rate_plot(results):
    kinds = ("ours", "quantised", "int8-linear", "predecessor")
    lines = {kind: points_of(results, "rules", kind, "held_out") for kind in kinds}
    lines = {kind: points for kind, points in lines.items() if points}
    if not lines:
        return None
    losses = [y for line in lines.values() for point in line for y in point[1:]]
    tens = range(math.floor(math.log10(min(losses))), math.ceil(math.log10(max(losses))) + 1)
    return chart("Held-out loss after the same steps on the same data", "learning rate (peak)",
                 "held-out loss", (1e-5, 5e-5, 1.5e-4, 1e-3, 3e-3, 1e-2), lines,
                 [10.0 ** k for k in tens], math.log)


def share_plot(results):
    lines = {g: [(100 * x, *rest) for x, *rest in points_of(results, "shares", "share", g)]
             for g in GROUPS}
    if not all(lines.values()):
        return None
    return chart("Scores by the share of identity rows", "identity rows, % of the training data",
                 "probes passed, %", (1, 3, 10, 30, 100), lines, (0, 20, 40, 60, 80, 100))


# --- commands ----------------------------------------------------------------------------------
def write_tables(out):
    results = read_results(out)
    (out / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    folder = out / "tables"
    folder.mkdir(exist_ok=True)
    for experiment in EXPERIMENTS:
        if any(run["experiment"] == experiment for run in results):
            text = table(experiment, results)
            (folder / f"{experiment}.md").write_text(text)
            print(f"{experiment}\n{text}")
    if (out / "codes" / "reach.json").exists():
        rows = json.loads((out / "codes" / "reach.json").read_text())
        (folder / "reach.md").write_text(reach_table(rows))
        print(reach_table(rows))
    for name, plot in (("rates.svg", rate_plot(results)), ("shares.svg", share_plot(results))):
        if plot:
            (folder / name).write_text(plot)
    if (out / "loss.svg").exists():
        shutil.copy(out / "loss.svg", folder / "loss.svg")


def fill_documents(out, folder):
    """`<!-- NAME -->` ... `<!-- end -->` of the documents: a table, or the link to a plot."""
    tables = out / "tables"

    def content(match):
        name = match[1]
        if name.endswith(".svg"):
            if not (tables / name).exists():
                return match[0]
            shutil.copy(tables / name, folder / name)
            text = f"![{match[2]}]({name})\n"
        elif (tables / f"{name}.md").exists():
            text = (tables / f"{name}.md").read_text()
        else:
            return match[0]
        return f"<!-- {name}{': ' + match[2] if match[2] else ''} -->\n{text}<!-- end -->"

    for path in sorted(folder.glob("*.md")):
        text = path.read_text()
        new = re.sub(r"<!-- ([\w.]+)(?:: ([^\n]*?))? -->\n.*?<!-- end -->", content, text,
                     flags=re.S)
        if new != text:
            path.write_text(new)
            print(f"filled {path}")


def main(arguments):
    command, *rest = arguments or [""]
    if command == "tables" and len(rest) == 1:
        write_tables(pathlib.Path(rest[0]))
    elif command == "docs" and len(rest) == 2:
        fill_documents(pathlib.Path(rest[0]), pathlib.Path(rest[1]))
    elif command == "codes" and len(rest) == 2:
        print(json.dumps(changed(*map(dat_entries, rest))))
    elif command == "reach" and len(rest) == 1:
        print(json.dumps(reach(dat_entries(rest[0]))))
    elif command == "jsonl" and len(rest) == 1:
        for line in pathlib.Path(rest[0]).read_text().splitlines():
            if line and not line.startswith("#"):
                prompt, target = line.split("\t")[:2]
                messages = [{"role": "user", "content": prompt},
                            {"role": "assistant", "content": target}]
                print(json.dumps({"messages": messages}, ensure_ascii=False))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
