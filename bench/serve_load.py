#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Loads a running server that speaks OpenAI's API; nothing beyond Python is needed.

bench/serve_load.py rate --url http://127.0.0.1:8080 --streams 1,8,32 --prompt 512 --tokens 256
    so many streams at once, each a prompt of random token ids: the rate of tokens while all streams
    decode, time to the first token and between tokens (p50, p99)
bench/serve_load.py soak --url http://127.0.0.1:8080 --clients 64 --seconds 60
    mixed requests: whole, streamed, left half-way, malformed. Every greedy answer must be the one the
    server gave when it was asked alone; anything that was not asked for is a failure (exit 1)
"""
import argparse
import asyncio
import json
import random
import sys
import time
import urllib.parse

HEADERS = "Host: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n{key}\r\n"


class Client:
    def __init__(self, url, key):
        self.at = urllib.parse.urlsplit(url)
        self.key = f"Authorization: Bearer {key}\r\n" if key else ""

    async def open(self, path, body):
        reader, writer = await asyncio.open_connection(self.at.hostname, self.at.port)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\n" + HEADERS.format(host=self.at.netloc, length=len(data), key=self.key)
        writer.write(head.encode() + data)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        return status, reader, writer

    async def whole(self, path, body):
        status, reader, writer = await self.open(path, body)
        text = await reader.read()
        writer.close()
        return status, json.loads(text)

    async def events(self, path, body):
        """(seconds since the request, event) until [DONE]; the first line says what went wrong."""
        begin = time.monotonic()
        status, reader, writer = await self.open(path, {**body, "stream": True})
        try:
            if status != 200:
                raise RuntimeError(f"{status}: {(await reader.read())[:300]!r}")
            while line := await reader.readline():
                if line.startswith(b"data: [DONE]"):
                    return
                if line.startswith(b"data: "):
                    yield time.monotonic() - begin, json.loads(line[6:])
            raise RuntimeError("the stream was cut")
        finally:
            writer.close()


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))] if values else float("nan")


async def one_stream(client, args, seed, start):
    draw = random.Random(seed)
    body = {"prompt": [draw.randrange(args.first_id, args.last_id) for _ in range(args.prompt)],
            "max_tokens": args.tokens, "ignore_eos": True, "temperature": 0, "logprobs": 0 if args.count else None,
            "stream_options": {"include_usage": True}}
    times, tokens = [], 0
    sent = time.monotonic() - start
    async for at, event in client.events("/v1/completions", body):
        if event.get("error"):
            raise RuntimeError(event["error"]["message"])
        if event["choices"]:
            times.append(sent + at)
        elif event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    return sent, times, tokens


async def rate(args):
    client = Client(args.url, args.key)
    print(f"{'streams':>8} {'tokens/s':>10} {'all decode':>11} {'first p50':>10} {'p99':>8} {'between p50':>12} {'p99':>8}")
    for n in map(int, args.streams.split(",")):
        start = time.monotonic()
        done = await asyncio.gather(*(one_stream(client, args, args.seed + 1000 * n + i, start) for i in range(n)))
        seconds = time.monotonic() - start
        first = [t[0] - sent for sent, t, _ in done]
        between = [b - a for _, t, _ in done for a, b in zip(t, t[1:])]
        tokens = sum(k for _, _, k in done)
        # While all streams decode: from the last first token to the first last one. Events may hold
        # several tokens; each stream's tokens are spread over its events.
        begin, end = max(t[0] for _, t, _ in done), min(t[-1] for _, t, _ in done)
        inside = sum(k * sum(begin < x <= end for x in t) / len(t) for _, t, k in done)
        together = inside / (end - begin) if end > begin else float("nan")
        print(f"{n:8} {tokens / seconds:10.1f} {together:11.1f} {percentile(first, .5) * 1e3:8.1f}ms "
              f"{percentile(first, .99) * 1e3:6.1f}ms {percentile(between, .5) * 1e3:10.2f}ms "
              f"{percentile(between, .99) * 1e3:6.2f}ms", flush=True)


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
    p.add_argument("mode", choices=["rate", "soak"])
    p.add_argument("--url", default="http://127.0.0.1:8080")
    p.add_argument("--key", default="")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--streams", default="1,8,32", help="rate: how many at once, one after the other")
    p.add_argument("--prompt", type=int, default=512, help="rate: tokens of each prompt")
    p.add_argument("--tokens", type=int, default=256, help="rate: tokens of each reply")
    p.add_argument("--first-id", type=int, default=300, help="rate: prompts are drawn from these ids")
    p.add_argument("--last-id", type=int, default=1000)
    p.add_argument("--count", action="store_true", help="rate: an event for every token (asks for logprobs)")
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--seconds", type=float, default=60)
    args = p.parse_args()
    return asyncio.run(rate(args) if args.mode == "rate" else soak(args))


if __name__ == "__main__":
    sys.exit(main())
