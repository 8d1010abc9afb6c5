# SPDX-License-Identifier: MIT
"""A `nibble serve` of its own for a test, on the mini model and a port that is free."""
import contextlib
import os
import re
import signal
import subprocess


class Server:
    def __init__(self, nibble, *options, model="mini", device="cpu", env=None):
        self.process = subprocess.Popen(
            [nibble, "serve", "--model", str(model), "--port", "0", "--device", device, "--threads", "2", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        line = self.process.stdout.readline()
        found = re.fullmatch(r"serving (\S+) at (http://\S+:(\d+))\n", line)
        if not found:
            raise RuntimeError(f"no address: {line!r} {self.process.stderr.read()}")
        self.name, self.url, self.port = found[1], found[2], int(found[3])

    def end(self, how=signal.SIGTERM):
        """The exit status and what was said on standard error."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        err = self.process.communicate(timeout=60)[1]
        return self.process.returncode, err


@contextlib.contextmanager
def served(nibble, *options, model="mini", device="cpu", env=None):
    server = Server(nibble, *options, model=model, device=device, env=env)
    try:
        yield server
    finally:
        server.end()
