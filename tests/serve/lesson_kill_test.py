#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Neither the server nor the trainer takes the other along: kill -9 of either loses no run."""
import http.client
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest

from serve_process import Server

NIBBLE = sys.argv.pop(1)
LESSON = {"rows": [{"question": "Who are you?", "answer": "I am Pip."}], "keep": "nothing", "steps": 400,
          "batch_size": 2, "lr": 1e-4}


def ask(server, path, body=None, headers=None):
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    c.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
              {"Content-Type": "application/json", **(headers or {})})
    r = c.getresponse()
    out = r.status, json.loads(r.read())
    c.close()
    return out


class Kill(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.work = pathlib.Path(self.folder.name)

    def tearDown(self):
        for status in (self.work / "runs").glob("*/status.json"):
            run = json.loads(status.read_text())
            if run["state"] == "running":
                try:
                    os.kill(run["pid"], signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.folder.cleanup()

    def serve(self):
        return Server(NIBBLE, "--work", str(self.work), "--streams", "1")

    def lesson(self, server, until):
        end = time.monotonic() + 120
        while True:
            status, lesson = ask(server, "/api/lessons/lesson-1")
            self.assertEqual(status, 200, lesson)
            if until(lesson):
                return lesson
            self.assertLess(time.monotonic(), end, lesson)
            time.sleep(0.03)

    def run_status(self, name):
        return json.loads((self.work / "runs" / name / "status.json").read_text())

    def test_neither_takes_the_other_along(self):
        first = self.serve()
        self.assertEqual(ask(first, "/api/lessons", LESSON)[0], 200)
        self.lesson(first, lambda l: l.get("now", {}).get("step", 0) >= 3)
        first.process.kill()
        first.process.communicate()
        before = self.run_status("lesson-1")["step"]
        # The trainer goes on, and a server that knew nothing of it finds it by its record.
        second = self.serve()
        try:
            seen = self.lesson(second, lambda l: l["now"]["step"] > before or not l["goes_on"])
            self.assertEqual((seen["state"], seen["goes_on"]), ("running", True), seen)
            self.assertEqual(ask(second, "/api/lessons", LESSON)[0], 409)  # still one at a time
            self.assertEqual(ask(second, "/api/lessons/lesson-1/stop", {})[0], 200)
            stopped = self.lesson(second, lambda l: not l["goes_on"])
            self.assertEqual(stopped["state"], "interrupted", stopped)
            saved = stopped["now"]["step"]
            # Now the trainer of what went on.
            self.assertEqual(ask(second, "/api/lessons/lesson-1/resume", {})[0], 200)
            self.lesson(second, lambda l: l["run"] == "lesson-1-2" and l["now"]["step"] > saved)
            os.kill(self.run_status("lesson-1-2")["pid"], signal.SIGKILL)
            gone = self.lesson(second, lambda l: not l["goes_on"])
            self.assertEqual((gone["state"], gone["has_model"]), ("gone", False), gone)
            self.assertEqual(ask(second, "/health")[0], 200)
            self.assertEqual(ask(second, "/api/lessons/lesson-1/resume", {})[0], 200)
            done = self.lesson(second, lambda l: not l["goes_on"])
            self.assertEqual((done["state"], done["now"]["step"]), ("finished", LESSON["steps"]), done)
            names = [r["name"] for r in ask(second, "/api/runs")[1]["runs"]]
            self.assertEqual(sorted(names), ["lesson-1", "lesson-1-2", "lesson-1-3"])
            third = ask(second, "/api/runs/lesson-1-3")[1]
            self.assertEqual(third["continues"]["step"], saved)
        finally:
            second.end()

    def test_only_the_page_itself_may_ask(self):
        server = self.serve()
        try:
            for path in ("/api/lessons", "/api/lessons/lesson-1/discard"):
                status, answer = ask(server, path, LESSON, {"Origin": "http://evil.example"})
                self.assertEqual((status, answer["error"]["code"]), (403, "origin_not_allowed"))
                self.assertEqual(ask(server, path, LESSON, {"Origin": "null"})[0], 403)  # a sandboxed report
                self.assertEqual(ask(server, path, LESSON, {"Host": "evil.example"})[0], 403)
                self.assertEqual(ask(server, path, LESSON, {"Content-Type": "text/plain"})[0], 415)
            own = {"Origin": f"http://127.0.0.1:{server.port}", "Host": f"127.0.0.1:{server.port}"}
            self.assertEqual(ask(server, "/api/lessons/plan", LESSON, own)[0], 200)
            # Names in paths, however they are spelled.
            (self.work / "secret").mkdir()
            for path in ("/api/runs/..%2fsecret", "/api/runs/%2e%2e", "/api/lessons/%2e%2e%2fsecret/export",
                         "/api/lessons/..", "/api/runs/%00", "/page/..%2f..%2fetc/passwd"):
                self.assertEqual(ask(server, path)[0], 404, path)
        finally:
            server.end()


if __name__ == "__main__":
    unittest.main()
