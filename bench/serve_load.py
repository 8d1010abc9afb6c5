#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loads servers that speak OpenAI's API; nothing beyond Python is needed.

bench/serve_load.py rate --url http://127.0.0.1:8080 --streams 1,8,32 --prompt 512 --tokens 256
    so many streams at once, each a prompt of random token ids: the rate of tokens while all streams
    decode, time to the first token and between tokens (p50, p99)
bench/serve_load.py table --nibble build/nibble --config config.json --streams 1,8,32,64,128,256 [-- --device cuda]
    the same of a server of its own, beside what `nibble bench` decodes at that batch. --config makes an
    NVFP4 model of random weights in --work; --model takes one that is there. What follows -- goes to both
bench/serve_load.py turns --url http://127.0.0.1:8080 --against http://127.0.0.1:8000 --against-body JSON --words
    two servers in turns, round by round, and the ratio of their rates
bench/serve_load.py prefix --url http://127.0.0.1:8080 --prompt 4000
    time to the first token of a prompt that shares its beginning with an earlier one, and of one that does not
bench/serve_load.py together --url http://127.0.0.1:8080 --clients 12 --prompt 1200 --tokens 24
    so many conversations at once behind one beginning: how many are answered at a time, and how many tokens of the
    cache they take
bench/serve_load.py soak --url http://127.0.0.1:8080 --clients 64 --seconds 60
    mixed requests: whole, streamed, left half-way, malformed. Every greedy answer must be the one the
    server gave when it was asked alone; anything that was not asked for is a failure (exit 1)
"""
import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from serve_client import Client, Rate, median_text, middle, one_stream, print_row, prompt_of, rate_of


async def rate(args):
    client = Client(args.url, args.key)
    print_row(["streams", *Rate.HEADS])
    for n in map(int, args.streams.split(",")):
        print_row([n, *middle([await rate_of(client, args, n, i) for i in range(args.rounds)]).cells()])


def bench_rates(args, model, both, counts):
    """What nibble bench decodes, by sequences at once: after prompts of that length, so many tokens."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "bench.json"
        subprocess.run([args.nibble, "bench", "--quiet", "--model", model, "--batch", ",".join(map(str, counts)),
                        "--prompt-tokens", str(args.prompt), "--tokens", str(args.tokens), "--repeat",
                        str(args.rounds), "--phase", "decode", "--json", out, *both], check=True,
                       stdout=subprocess.DEVNULL)
        return {r["batch"]: r["median_tok_s"] for r in json.loads(out.read_text())["rows"] if r["phase"] == "decode"}


async def table(args):
    counts = list(map(int, args.streams.split(",")))
    model, both = args.model, list(args.both)
    if args.config:
        dense, model = Path(args.work) / "random-weights", Path(args.work) / "random-weights-nvfp4.dat"
        if not model.exists():
            subprocess.run([args.nibble, "init", "--config", args.config, "--out", dense], check=True)
            subprocess.run([args.nibble, "convert", dense, model, "--quant", "nvfp4"], check=True)
        both += ["--config", args.config]
        # Without a tokenizer replies have no text, and nothing can be timed between first and last.
        tokenizer = Path(args.config).parent / "tokenizer.json"
        if not tokenizer.exists():
            sys.exit(f"{tokenizer} is needed: the model's tokenizer, beside its config")
        both += ["--tokenizer", str(tokenizer)]
    bench = bench_rates(args, model, both, counts)
    server = subprocess.Popen([args.nibble, "serve", "--quiet", "--model", model, "--port", "0", "--streams",
                               str(max(counts)), "--context", str(args.prompt + args.tokens + 8), *both],
                              stdout=subprocess.PIPE, text=True)
    try:
        found = re.search(r"http://\S+", server.stdout.readline())
        if not found:
            sys.exit("nibble serve did not start")
        client = Client(found[0])
        await rate_of(client, args, 1, 99)  # what is made at the first step
        print_row(["streams", *Rate.HEADS, "of bench"])
        for n in counts:
            rates = [await rate_of(client, args, n, i) for i in range(args.rounds)]
            share = statistics.median(r.together for r in rates) / bench[n]
            print_row([n, *middle(rates).cells(), f"{share:.1%}"])
    finally:
        server.terminate()
        server.wait()
    print("nibble bench, tokens/s:", ", ".join(f"{n}: {bench[n]:.1f}" for n in counts))


async def turns(args):
    ours, theirs = Client(args.url, args.key), Client(args.against, more=json.loads(args.against_body))
    print_row(["streams", *Rate.HEADS])
    for n in map(int, args.streams.split(",")):
        a, b = [], []
        for i in range(args.rounds):
            for client, rates in ((ours, a), (theirs, b)):
                rates.append(await rate_of(client, args, n, i))
        for rates in (a, b):
            print_row([n, *middle(rates).cells()])
        print(f"         ratio of tokens/s {median_text([x.tokens_s / y.tokens_s for x, y in zip(a, b)])}, of first "
              f"p50 {median_text([y.first[0] / x.first[0] for x, y in zip(a, b)])}, {args.rounds} rounds", flush=True)


async def prefix(args):
    """Each round has a beginning of its own. The prompts differ behind it."""
    client = Client(args.url, args.key)
    first, shared = [], []
    for i in range(args.rounds):
        for begin, into in (("a", first), ("a", shared)):
            prompt = prompt_of(args, f"{args.seed} {i} {begin}", args.prompt)
            tail = prompt_of(args, f"{args.seed} {i} {len(into)} {into is shared}", args.tail)
            prompt = f"{prompt} {tail}" if args.words else prompt + tail
            sent, times, _ = await one_stream(client, args, prompt, time.monotonic(), tokens=4)
            into.append(times[0] - sent)
    print(f"first token: {median_text(first, ' s')}; with {args.prompt} tokens of an earlier prompt "
          f"{median_text(shared, ' s')}; {median_text([a / b for a, b in zip(first, shared)])} times sooner, "
          f"{args.rounds} rounds")


def metrics(args):
    """Of nibble's own: numbers by name."""
    with urllib.request.urlopen(f"{args.url}/metrics", timeout=30) as reply:
        lines = (line.split() for line in reply.read().decode().splitlines() if not line.startswith("#"))
        return {line[0].removeprefix("nibble_"): float(line[1]) for line in lines if len(line) == 2}


async def together(args):
    client = Client(args.url, args.key)
    beginning = prompt_of(args, f"{args.seed} together", args.prompt)
    most, ended = 0, asyncio.Event()

    async def watch():
        nonlocal most
        while not ended.is_set():
            most = max(most, int((await asyncio.to_thread(metrics, args))["requests_decoding"]))
            await asyncio.sleep(0.05)

    async def one(i):
        tail = prompt_of(args, f"{args.seed} together {i}", args.tail)
        await one_stream(client, args, f"{beginning} {tail}" if args.words else beginning + tail, time.monotonic())

    watching = asyncio.create_task(watch())
    await asyncio.gather(*map(one, range(args.clients)))
    ended.set()
    await watching
    m = metrics(args)
    print(f"{args.clients} conversations behind {args.prompt} tokens: {most} at a time; {m['cache_tokens']:.0f} tokens of "
          f"{m['cache_capacity_tokens']:.0f} in the cache, {m.get('cache_shared_tokens', 0):.0f} more are shared; "
          f"{m['preempted_total']:.0f} gave way")


async def soak(args):
    client = Client(args.url, args.key)
    questions = ["Hello", "Who are you?", "What is 2 + 3?", "Tell me a story", "你好", "你是誰"]

    def chat(question, **more):
        return {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 48, **more}

    alone = {}
    for q in questions:
        status, reply = await client.whole("/v1/chat/completions", chat(q))
        assert status == 200, reply
        alone[q] = reply["choices"][0]["message"]["content"]
    count = {"whole": 0, "streamed": 0, "left": 0, "malformed": 0, "busy": 0}
    wrong = []
    end = time.monotonic() + args.seconds

    async def one(seed):
        draw = random.Random(seed)
        while time.monotonic() < end:
            q, kind = draw.choice(questions), draw.random()
            try:
                if kind < 0.5:
                    status, reply = await client.whole("/v1/chat/completions", chat(q))
                    if status in (429, 503):
                        count["busy"] += 1
                        await asyncio.sleep(draw.random() / 5)
                        continue
                    if status != 200 or reply["choices"][0]["message"]["content"] != alone[q]:
                        wrong.append((status, q, reply))
                    count["whole"] += 1
                elif kind < 0.8:
                    text = ""
                    async for _, e in client.events("/v1/chat/completions", chat(q)):
                        text += e["choices"][0]["delta"].get("content", "") if e.get("choices") else ""
                        if e.get("error"):
                            wrong.append(e)
                    if text != alone[q]:
                        wrong.append((q, text))
                    count["streamed"] += 1
                elif kind < 0.9:
                    body = {"prompt": q, "max_tokens": 900, "ignore_eos": True, "temperature": 1}
                    async for _, _ in client.events("/v1/completions", body):
                        break
                    count["left"] += 1
                else:
                    body = draw.choice([b"{", b"[]", b"\xff", b'{"messages": 5}', b'{"messages": [], "x": 1}',
                                        b"[" * 50000, b'{"prompt": [-1]}'])
                    status, _ = await client.whole(draw.choice(["/v1/chat/completions", "/v1/completions"]), body)
                    if status != 400:
                        wrong.append((status, body[:50]))
                    count["malformed"] += 1
            except RuntimeError as e:
                if not str(e).startswith(("429", "503")):
                    wrong.append(str(e))
                count["busy"] += 1
                await asyncio.sleep(draw.random() / 5)
            except (OSError, asyncio.IncompleteReadError, IndexError) as e:
                wrong.append(repr(e))

    await asyncio.gather(*(one(args.seed + i) for i in range(args.clients)))
    print(json.dumps(count), f"{len(wrong)} wrong")
    for w in wrong[:10]:
        print("wrong:", w)
    return 1 if wrong else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = {"rate": rate, "table": table, "turns": turns, "prefix": prefix, "together": together, "soak": soak}
    p.add_argument("mode", choices=modes)
    p.add_argument("--url", default="http://127.0.0.1:8080")
    p.add_argument("--key", default="")
    p.add_argument("--seed", type=int, default=int(time.time()), help="of prompts; a server may remember old ones")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--streams", default="1,8,32", help="how many at once, one after the other")
    p.add_argument("--prompt", type=int, default=512, help="tokens of each prompt; prefix: of what is shared")
    p.add_argument("--tail", type=int, default=16, help="prefix: tokens behind what is shared")
    p.add_argument("--tokens", type=int, default=256, help="tokens of each reply")
    p.add_argument("--words", action="store_true", help="prompts are words instead of token ids")
    p.add_argument("--first-id", type=int, default=300, help="prompts are drawn from these ids")
    p.add_argument("--last-id", type=int, default=1000)
    p.add_argument("--count", action="store_true", help="an event for every token (asks for logprobs)")
    p.add_argument("--against", default="http://127.0.0.1:8000", help="turns: the other server")
    p.add_argument("--against-body", default="{}", help="turns: JSON of its requests, such as a logit_bias")
    p.add_argument("--nibble", default="build/nibble")
    p.add_argument("--model", default="mini")
    p.add_argument("--config")
    p.add_argument("--work", default=tempfile.gettempdir())
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--seconds", type=float, default=60)
    args = p.parse_args(sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:])
    args.both = sys.argv[sys.argv.index("--") + 1:] if "--" in sys.argv else []
    return asyncio.run(modes[args.mode](args))


if __name__ == "__main__":
    sys.exit(main())
