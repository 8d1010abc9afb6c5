# SPDX-License-Identifier: MIT
"""What bench/serve_load.py asks servers of OpenAI's API with, and what it makes of the answers."""
import asyncio
import json
import random
import statistics
import time
import urllib.parse

HEADERS = "Host: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n{key}\r\n"
WORDS = ("time year people way day man thing woman life child world school state family student group country problem "
         "hand part place case week company system program question work number night point home water room mother "
         "area money story fact month lot right study book eye job word business issue side kind head house").split()


class Client:
    def __init__(self, url, key="", more=None):
        self.url, self.at = url, urllib.parse.urlsplit(url)
        self.key = f"Authorization: Bearer {key}\r\n" if key else ""
        self.more = more or {}  # of every streamed request

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

    async def lines(self, path, body):
        """(seconds since the request, data of an event) until [DONE]; the error says what went wrong."""
        begin = time.monotonic()
        status, reader, writer = await self.open(path, {**body, **self.more, "stream": True})
        try:
            if status != 200:
                raise RuntimeError(f"{status}: {(await reader.read())[:300]!r}")
            while line := await reader.readline():
                if line.startswith(b"data: [DONE]"):
                    return
                if line.startswith(b"data: "):
                    yield time.monotonic() - begin, line[6:]
            raise RuntimeError("the stream was cut")
        finally:
            writer.close()

    async def events(self, path, body):
        async for at, data in self.lines(path, body):
            yield at, json.loads(data)


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))] if values else float("nan")


def prompt_of(args, seed, tokens):
    """Random ids; or words, for servers that take text alone: about a token each."""
    draw = random.Random(seed)
    if args.words:
        return " ".join(draw.choice(WORDS) for _ in range(tokens))
    return [draw.randrange(args.first_id, args.last_id) for _ in range(tokens)]


async def one_stream(client, args, prompt, start, tokens=None):
    """(when it was sent, when its events came, tokens of the reply)"""
    body = {"prompt": prompt, "max_tokens": tokens or args.tokens, "temperature": 0}
    if not client.more:
        body.update({"ignore_eos": True, "logprobs": 0 if args.count else None,
                     "stream_options": {"include_usage": True}})
    times, said = [], 0
    sent = time.monotonic() - start
    async for at, data in client.lines("/v1/completions", body):
        # Hundreds of streams are too much for a JSON parser at every event.
        if b'"error"' in data:
            raise RuntimeError(json.loads(data)["error"]["message"])
        if b'"completion_tokens"' in data:
            said = json.loads(data)["usage"]["completion_tokens"]
        if b'"choices":[]' not in data and b'"choices": []' not in data:
            times.append(sent + at)
    return sent, times, said or len(times)


class Rate:
    """Of so many streams at once."""

    def __init__(self, done, seconds):
        first = [t[0] - sent for sent, t, _ in done]
        self.tokens_s = sum(k for _, _, k in done) / seconds
        # While all streams decode: from the last first token to the first last one. Events may hold several tokens;
        # each stream's tokens are spread over its events.
        begin, end = max(t[0] for _, t, _ in done), min(t[-1] for _, t, _ in done)
        inside = sum(k * sum(begin < x <= end for x in t) / len(t) for _, t, k in done)
        self.together = inside / (end - begin) if end > begin else float("nan")
        gaps = [(b, b - a) for _, t, _ in done for a, b in zip(t, t[1:])]
        between, beside = [g for _, g in gaps], [g for at, g in gaps if at <= begin]
        self.first = [percentile(first, p) * 1e3 for p in (.5, .99)]
        self.between = [percentile(between, p) * 1e3 for p in (.5, .99)]
        self.beside = percentile(beside, .5) * 1e3  # between tokens, while others' prompts run

    HEADS = ["tokens/s", "all decode", "first p50 ms", "p99", "between p50 ms", "p99", "beside prompts"]

    def cells(self):
        return [f"{self.tokens_s:.1f}", f"{self.together:.1f}", *(f"{x:.0f}" for x in self.first),
                *(f"{x:.2f}" for x in (*self.between, self.beside))]


async def rate_of(client, args, streams, round_=0):
    start = time.monotonic()
    seeds = [args.seed + 100000 * round_ + 1000 * streams + i for i in range(streams)]
    done = await asyncio.gather(*(one_stream(client, args, prompt_of(args, s, args.prompt), start) for s in seeds))
    return Rate(done, time.monotonic() - start)


def middle(rates):
    """The round whose rate is the median one."""
    return sorted(rates, key=lambda r: r.tokens_s)[len(rates) // 2]


def print_row(cells, widths=(8, 10, 12, 14, 9, 16, 9, 16, 10)):
    print(" ".join(f"{c!s:>{w}}" for c, w in zip(cells, widths)), flush=True)


def median_text(values, unit=""):
    return f"{statistics.median(values):.3g}{unit} ({min(values):.3g} to {max(values):.3g})"
