#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`nibble serve` as a process: its options, and how it ends. Nothing beyond Python is needed."""
import http.client
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from serve_process import Server, served

NIBBLE = sys.argv.pop(1)
JSON = {"Content-Type": "application/json"}


def ask(server, path, body=None, headers=None):
    """Status, headers and body."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    c.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
              {**JSON, **(headers or {})})
    r = c.getresponse()
    out = r.status, dict(r.getheaders()), r.read().decode()
    c.close()
    return out


def refused(*options, env=None):
    import os
    p = subprocess.run([NIBBLE, "serve", "--model", "mini", "--port", "0", *options], text=True,
                       capture_output=True, timeout=60, env={**os.environ, **(env or {})})
    return p.returncode, p.stderr


class Serve(unittest.TestCase):
    def test_says_what_generate_says(self):
        said = subprocess.run([NIBBLE, "--quiet", "generate", "--model", "mini", "--prompt", "Who are you?"],
                              capture_output=True, text=True, check=True).stdout
        with served(NIBBLE) as s:
            status, _, body = ask(s, "/v1/chat/completions",
                                  {"messages": [{"role": "user", "content": "Who are you?"}]})
            self.assertEqual(status, 200, body)
            self.assertEqual(json.loads(body)["choices"][0]["message"]["content"] + "\n", said)

    def test_options(self):
        with tempfile.TemporaryDirectory() as folder:
            key = pathlib.Path(folder) / "key"
            key.write_text("0123456789abcdef\n")
            with served(NIBBLE, "--served-name", "tiny", "--context", "64", "--streams", "2", "--max-body-mib", "1",
                        "--api-key-file", str(key), "--allow-host", "model.lan", "--host", "127.0.0.1",
                        "--allow-origin", "https://example.org", "--prompt-chunk", "3", "--connections", "9") as s:
                self.assertEqual(ask(s, "/health")[0], 200)
                self.assertEqual(ask(s, "/v1/models")[0], 401)
                bearer = {"Authorization": "Bearer 0123456789abcdef"}
                model = json.loads(ask(s, "/v1/models", headers=bearer)[2])["data"][0]
                self.assertEqual((model["id"], model["max_model_len"]), ("tiny", 64))
                self.assertEqual(ask(s, "/v1/models", headers={**bearer, "Host": "model.lan"})[0], 200)
                self.assertEqual(ask(s, "/v1/models", headers={**bearer, "Host": "evil.example"})[0], 403)
                cors = ask(s, "/v1/models", headers={**bearer, "Origin": "https://example.org"})[1]
                self.assertEqual(cors["Access-Control-Allow-Origin"], "https://example.org")
                self.assertEqual(ask(s, "/tokenize", {"prompt": "a" * 2000000}, bearer)[0], 413)
                self.assertIn("nibble_cache_places 2\n", ask(s, "/metrics", headers=bearer)[2])
            with served(NIBBLE, env={"NIBBLE_API_KEY": "another-key-of-16"}) as s:
                self.assertEqual(ask(s, "/metrics")[0], 401)
            key.write_text("short\n")
            self.assertIn("at least 16", refused("--api-key-file", str(key))[1])
        self.assertEqual(refused("--host", "0.0.0.0")[0], 2)
        self.assertIn("--api-key-file", refused("--host", "0.0.0.0")[1])
        self.assertIn("without a path", refused("--allow-origin", "https://example.org/")[1])
        self.assertEqual(refused("--use-kvc", "false")[0], 2)

    def test_the_cache_takes_what_is_said(self):
        """Contexts of 40 streams are 160 MiB of addresses at least; 64 MiB stand behind them, and no more."""
        s = Server(NIBBLE, "--streams", "40", "--cache-mib", "64")
        try:
            for i in range(20):  # more than there is room for
                prompt = [300 + (i * 97 + k * k) % 700 for k in range(1010)]
                self.assertEqual(ask(s, "/v1/completions", {"prompt": prompt, "max_tokens": 1})[0], 200)
            metrics = ask(s, "/metrics")[2]
            maps = pathlib.Path(f"/proc/{s.process.pid}/smaps").read_text()
        finally:
            err = s.end()[1]
        found = re.search(r"40 streams of 1024 tokens at most share a cache of (\S+) MiB: 512 blocks of 32 tokens", err)
        self.assertTrue(found, err)
        self.assertIn("nibble_cache_capacity_tokens 16384\n", metrics)
        # A page that several sequences share counts once: Pss.
        there = re.findall(r"/memfd:nibble cache.*\n(?:(?!Pss:).*\n)+Pss: +(\d+) kB", maps)
        self.assertGreaterEqual(len(there), 1, maps)
        share = sum(map(int, there)) / 1024 / float(found[1])
        self.assertLessEqual(share, 1)
        self.assertGreater(share, 0.97)
        self.assertIn("one context of 1024 tokens takes 4.00 MiB", refused("--cache-mib", "3")[1])

    def test_a_queue_and_a_time_limit(self):
        long = {"prompt": "Hello", "max_tokens": 900, "ignore_eos": True, "temperature": 1, "seed": 1}
        with served(NIBBLE, "--streams", "1", "--queue", "1") as s:
            # Two replies are all it holds; the next is asked when they have just begun.
            c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
            c.request("POST", "/v1/completions", json.dumps({**long, "n": 2, "stream": True}), JSON)
            r = c.getresponse()
            self.assertTrue(r.readline().startswith(b"data: "))
            status, headers, body = ask(s, "/v1/completions", long)
            self.assertEqual(status, 429, body)
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)
            r.read()
            c.close()
            self.assertEqual(ask(s, "/v1/completions", long)[0], 200)
        with served(NIBBLE, "--streams", "1", "--timeout", "1", "--prefix-reuse", "false") as s:
            start = time.monotonic()
            for _ in range(3):
                self.assertEqual(ask(s, "/v1/completions", long)[0], 200)
            self.assertLess(time.monotonic() - start, 20)

    def test_several_devices(self):
        """Replies drawn with a seed are those of one device; the log, /health and /metrics name both."""
        body = {"prompt": "Hello", "max_tokens": 30, "ignore_eos": True, "temperature": 1, "n": 4, "seed": 5}
        with served(NIBBLE) as s:
            want = json.loads(ask(s, "/v1/completions", body)[2])["choices"]
        s = Server(NIBBLE, "--streams", "2", device="cpu,cpu")
        try:
            self.assertEqual(json.loads(ask(s, "/v1/completions", body)[2])["choices"], want)
            up = {"device": "cpu", "status": "ok"}
            self.assertEqual(json.loads(ask(s, "/health")[2]), {"status": "ok", "replicas": [up, up]})
            metrics = ask(s, "/metrics")[2]
        finally:
            err = s.end()[1]
        self.assertIn("nibble_cache_places 4\n", metrics)
        for i in range(2):
            self.assertRegex(metrics, rf'nibble_replica_generated_tokens_total{{replica="{i}",device="cpu"}} [1-9]')
        self.assertIn("2 replicas, each with 2 streams of", err)
        self.assertIn("two kinds", refused("--device", "cpu,cuda")[1])

    def test_ends_when_it_is_asked_to(self):
        for device in "cpu", "cpu,cpu":
            with self.subTest(device):
                self.ends(device)

    def ends(self, device):
        s = Server(NIBBLE, "--grace", "0", "--streams", "2", device=device)
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=60)
        c.request("POST", "/v1/completions", json.dumps({"prompt": "Hello", "max_tokens": 1000, "stream": True,
                                                         "ignore_eos": True, "temperature": 1}), JSON)
        r = c.getresponse()
        first = r.readline()
        self.assertTrue(first.startswith(b"data: "), first)
        status, err = s.end(signal.SIGTERM)
        rest = r.read().decode()  # raises where the stream was cut
        self.assertTrue(rest.endswith("data: [DONE]\n\n"), rest[-300:])
        self.assertEqual(status, 0, err)
        self.assertIn("ending", err)


if __name__ == "__main__":
    unittest.main()
