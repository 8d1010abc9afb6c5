#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which kernel serves what on each GPU, and what it takes there: the tables of docs/gpus.md.

  gpu_table.py compile [--nvcc NVCC] [--jobs N] [--launches EXE]
      compiles the sources of kernels that are launched, for every architecture, where they have changed
      since (all of them: half an hour of one core), and writes the assembler's report of registers,
      shared memory and spills down in docs/gpus/kernels.json
  gpu_table.py write --launches EXE     makes the tables in docs/gpus.md anew
  gpu_table.py check --launches EXE     fails where they are not what would be made (ctest gpu_table)

EXE is build/tests/cuda/cuda_launches: it runs the backend on GPUs that are not there and prints what it
launches. Occupancy is arithmetic, with the limits of the CUDA programming guide.
"""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
KERNELS = ROOT / "src/backends/cuda"
RECORD = ROOT / "docs/gpus/kernels.json"
PAGE = ROOT / "docs/gpus.md"

# What a release holds for each: 8.x are compiled by the driver from the code for 8.0.
CODE = {80: ("compute_80", "sm_80"), 86: ("compute_80", "sm_86"), 89: ("compute_80", "sm_89"),
        90: ("compute_90a", "sm_90a"), 100: ("compute_100a", "sm_100a"), 120: ("compute_120a", "sm_120a"),
        121: ("compute_121a", "sm_121a")}
# Of a multiprocessor: KiB of shared memory, warps, blocks.
LIMITS = {80: (164, 64, 32), 86: (100, 48, 16), 89: (100, 48, 24), 90: (228, 64, 32), 100: (228, 64, 32),
          120: (100, 48, 24), 121: (100, 48, 24)}
REGISTERS = 65536


def one_name(mangled):
    """The name of a kernel without what differs from build to build: the unnamed namespaces' hashes."""
    out, at = "", 0
    for m in re.finditer(r"(\d+)_GLOBAL__N__", mangled):
        if m.start() < at:
            continue
        out += mangled[at:m.start()] + "12_GLOBAL__N_1"
        at = m.start() + len(m.group(1)) + int(m.group(1))
    return out + mangled[at:]


def demangled(names):
    names = list(names)
    if not names:
        return {}
    text = subprocess.run(["c++filt"], input="\n".join(map(one_name, names)), capture_output=True, text=True,
                          check=True).stdout.splitlines()
    return {name: short(line) for name, line in zip(names, text)}


def short(signature):
    """gemv_kernel<bf16, false, 8> of a whole signature."""
    text = re.sub(r"nibble::cuda::|\(anonymous namespace\)::|[a-z_0-9]+::(?=\w)", "", signature)
    text = text.replace("__nv_bfloat16", "bf16").replace("__half", "f16").replace("__nv_fp8_e4m3", "f8")
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0 and i > 0:
            text = text[:i]
            break
    return re.sub(r"^void ", "", re.sub(r"\((int|bool|[A-Za-z]+)\)", "", text)).strip()


# --- The compiler's report ---

def texts_of(source):
    """A source and the backend's headers that it includes."""
    text = source.read_text()
    return [text] + [(ROOT / "src" / header).read_text() for header in
                     re.findall(r'#include "(backends/cuda/[^"]+\.cuh)"', text)]


def hash_of(source):
    return hashlib.sha256("".join(texts_of(source)).encode()).hexdigest()[:16]


def compile_one(nvcc, source, folder):
    """The assembler's report."""
    log = folder / (source.stem + ".log")
    command = [nvcc, "-fatbin", "-std=c++20", "-O3", "-DNDEBUG", "-fmad=false", "-DFMT_USE_CONSTEXPR=1",
               "--expt-relaxed-constexpr", "-I", ROOT / "src", "-Xptxas", "-v", "-o", log.with_suffix(".fatbin")]
    for virtual, real in CODE.values():
        command += ["-gencode", f"arch={virtual},code={real}"]
    done = subprocess.run([*map(str, command), str(source)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{source}:\n{done.stderr}")
    log.with_suffix(".fatbin").unlink(missing_ok=True)
    print(f"{source.name} compiled", flush=True)
    return done.stderr


def read_log(text):
    """(mangled name, capability) -> registers, static shared memory, stack, spilled bytes."""
    found, key, stack, spills = {}, None, 0, 0
    for line in text.splitlines():
        if m := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)a?'", line):
            key, stack, spills = (m[1], int(m[2])), 0, 0
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stack, spills = int(m[1]), int(m[2]) + int(m[3])
        elif key and (m := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            found[key] = [int(m[1]), int(shared[1]) if shared else 0, stack, spills]
            key = None
    return found


def holds(source, kernels):
    return any(re.search(rf"\b{kernel}\(", text) for text in texts_of(source) for kernel in kernels)


def record(args):
    old = json.loads(RECORD.read_text()) if RECORD.exists() else {"sources": {}, "kernels": {}}
    launched = {l["kernel"] for l in launches(args.launches)} - {"cuBLASLt"}
    kernels = {name.split("<")[0] for name in launched}
    sources = [s for s in sorted(KERNELS.rglob("*.cu")) if holds(s, kernels)]
    hashes = {str(s.relative_to(KERNELS)): hash_of(s) for s in sources}
    missing = {name.split("<")[0] for name in launched - old["kernels"].keys()}
    stale = [s for s, (name, now) in zip(sources, hashes.items())
             if old["sources"].get(name) != now or holds(s, missing)]
    report = {name: k for name, k in old["kernels"].items() if KERNELS / k["file"] not in stale}
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        logs = pool.map(lambda s: compile_one(args.nvcc, s, pathlib.Path(folder)), stale)
        for source, log in zip(stale, logs):
            found = read_log(log)
            names = demangled({name for name, _ in found})
            for (name, capability), numbers in found.items():
                kernel = report.setdefault(names[name], {"file": str(source.relative_to(KERNELS))})
                kernel[str(capability)] = numbers
    missing = launched - report.keys()
    if missing:
        sys.exit(f"launched, but not in the compiler's report: {sorted(missing)}")
    rows = ",\n".join(f"    {json.dumps(name)}: {json.dumps(report[name])}" for name in sorted(launched))
    files = ",\n".join(f"    {json.dumps(name)}: {json.dumps(hashes[name])}" for name in sorted(hashes))
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(f'{{\n  "sources": {{\n{files}\n  }},\n  "kernels": {{\n{rows}\n  }}\n}}\n')


# --- What is launched ---

def launches(exe):
    lines = subprocess.run([exe], capture_output=True, text=True, check=True).stdout.splitlines()
    all_of = [json.loads(line) for line in lines]
    names = demangled({l["kernel"] for l in all_of} - {"cuBLASLt"})
    for l in all_of:
        l["kernel"] = names.get(l["kernel"], l["kernel"])
    return all_of


def blocks_resident(capability, registers, shared, threads):
    """Blocks of a kernel that a multiprocessor holds at a time; shared: static and dynamic."""
    kib, most_warps, most_blocks = LIMITS[capability]
    warps = -(-threads // 32)
    by_registers = REGISTERS // (-(-max(registers, 1) * 32 // 256) * 256) // 4 * 4 // warps
    by_shared = kib * 1024 // (-(-(shared + 1024) // 128) * 128)
    return min(by_registers, by_shared, most_warps // warps, most_blocks)


# --- The tables ---

ROOMS = {"linear": "Linear layers", "attention": "Attention and heads", "quant": "Weights", "optimizer": "Optimizer",
         "decode": "One launch a token"}


def scenes_text(scenes):
    """"decode 1, 2; prompt 512"."""
    by_kind = {}
    for scene in scenes:
        kind, number = scene.split()
        by_kind.setdefault(kind, set()).add(int(number))
    return "; ".join(f"{kind} {', '.join(map(str, sorted(numbers)))}" for kind, numbers in by_kind.items())


def cell(numbers, capability, threads, dynamic):
    registers, static, stack, spills = numbers
    resident = blocks_resident(capability, registers, static + dynamic, threads)
    if resident == 0:
        sys.exit(f"a block of {threads} threads with {registers} registers and {static} + {dynamic} bytes of shared "
                 f"memory does not fit compute capability {capability / 10}")
    share = 100 * resident * -(-threads // 32) / LIMITS[capability][1]
    text = f"{registers} · {(static + dynamic) / 1024:.1f} · {share:.0f} %"
    return text + (f" · spills {spills}" if spills else "")


def kernel_rows(all_of, report):
    """Room -> rows of a table, one for each kernel."""
    used = {}
    for l in all_of:
        if l["kernel"] == "cuBLASLt":
            continue
        k = used.setdefault(l["kernel"], {"scenes": [], "threads": {}, "shared": {}})
        if l["scene"] not in k["scenes"]:
            k["scenes"].append(l["scene"])
        c = l["capability"]
        k["threads"][c] = max(l["threads"], k["threads"].get(c, 0))
        k["shared"][c] = max(l["shared"], k["shared"].get(c, 0))
    rooms = {}
    for name, k in sorted(used.items(), key=lambda item: (report[item[0]]["file"], item[0])):
        file = report[name]["file"]
        parts = file.split("/")
        room = ROOMS.get(parts[-2] if len(parts) > 1 else "", "Everything else")
        threads = sorted(set(k["threads"].values()))
        cells = [cell(report[name][str(c)], c, k["threads"][c], k["shared"][c]) if c in k["shared"] else ""
                 for c in LIMITS]
        rooms.setdefault(room, []).append(
            f"| `{name}`, {parts[-1]} | {scenes_text(k['scenes'])} | {' or '.join(map(str, threads))} | " +
            " | ".join(cells) + " |")
    return rooms


def kernels_text(all_of, report):
    head = ("| kernel | serves | threads | " + " | ".join(f"{c / 10:.1f}" for c in LIMITS) + " |\n|" +
            "---|" * (3 + len(LIMITS)))
    rooms = kernel_rows(all_of, report)
    order = [*ROOMS.values(), "Everything else"]
    return "\n\n".join(f"### {room}\n{head}\n" + "\n".join(rooms[room]) for room in order if room in rooms)


# --- Predictions: arithmetic, from what was measured on an H200 ---

# GB/s; TFLOP/s of dense bf16 products with fp32 sums; multiprocessors; their clock in GHz.
H200 = (4800, 989, 132, 1.8)
CARDS = {"DGX Spark (GB10)": (273, 62.5, 48, 2.5), "RTX 4090": (1008, 165, 128, 2.5), "RTX 5090": (1792, 209, 170, 2.4),
         "A100 80 GB": (2039, 312, 108, 1.4), "H100 SXM": (3350, 989, 132, 1.8), "B200": (8000, 2250, 148, 1.8)}
COPY = 4.27 / 4.8  # of the published bandwidth, that a copy reaches on the H200
WEIGHTS, CACHE = 2.263, 0.078  # GB a step: once; for each sequence, context 512 to 544
# tok/s on the H200: code for 8.0, and for 9.0.
DECODE = {False: {1: 477, 32: 4294}, True: {1: 970, 8: 4443, 32: 14253}}
# TFLOP and, of the optimizer, GB; the share of the published peak and of the bandwidth on the H200.
PROMPT_FLOPS = 7.871e-3  # TFLOP a token, prompt of 2048
STEP_FLOPS, STEP_BYTES = 53.75, 50.79
PROMPT = {False: 64.0e3, True: 75.2e3}
STEP = {False: (114.6, 19.96), True: (92.4, 17.18)}  # ms on the H200: products, optimizer


def decode_text(card, hopper, n):
    bandwidth, _, sms, clock = card
    gb = WEIGHTS + n * CACHE
    measured = DECODE[hopper]
    like = n if n in measured else 32
    seconds = like / measured[like]  # of a step on the H200
    share = (WEIGHTS + like * CACHE) / seconds / H200[0]
    low = n / (gb / (share * bandwidth))
    memory = gb / (COPY * bandwidth)
    high = n / memory
    if n not in measured:
        return f"{low:,.0f} / - / {high:,.0f}"
    work = seconds * H200[2] * H200[3] / (sms * clock)
    return f"{low:,.0f} / {max(low, n / (memory + work)):,.0f} / {high:,.0f}"


def predictions_text():
    rows = ["| | decode 1 | 8 | 32 sequences, tok/s | prompt 2048, tok/s | training 1 x 2048, s a step |",
            "|---|---|---|---|---|---|"]
    for name, card in CARDS.items():
        hopper = name.startswith("H100")
        peak = card[1] / H200[1]
        products, optimizer = STEP[hopper]
        step = products / peak / 1e3 + optimizer * H200[0] / card[0] / 1e3
        rows.append(f"| {name} | " + " | ".join(decode_text(card, hopper, n) for n in (1, 8, 32)) +
                    f" | {PROMPT[hopper] * peak:,.0f} | {step:.2f} |")
    return "\n".join(rows)


def page_with(text, tables):
    for name, table in tables.items():
        begin = f"<!-- {name}: made by tools/gpu_table.py -->\n"
        before, _, rest = text.partition(begin)
        old, end, after = rest.partition("\n<!-- end -->")
        if not end:
            sys.exit(f"{PAGE}: no place for {name}")
        text = before + begin + table + end + after
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["compile", "write", "check"])
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--launches", default="build/tests/cuda/cuda_launches")
    args = parser.parse_args()
    if args.command == "compile":
        record(args)
        return
    all_of, report = launches(args.launches), json.loads(RECORD.read_text())["kernels"]
    missing = {l["kernel"] for l in all_of} - {"cuBLASLt"} - report.keys()
    if missing:
        sys.exit(f"launched, but not in {RECORD}: {sorted(missing)}; tools/gpu_table.py compile makes it anew")
    old = PAGE.read_text()
    new = page_with(old, {"kernels": kernels_text(all_of, report), "predictions": predictions_text()})
    if args.command == "write":
        PAGE.write_text(new)
    elif old != new:
        sys.exit(f"{PAGE} is not what is launched now: tools/gpu_table.py write makes it anew")


if __name__ == "__main__":
    main()
