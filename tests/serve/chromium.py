# SPDX-License-Identifier: MIT
"""A headless Chromium over the DevTools protocol: Debian's chromium and python3-websocket, nothing else."""
import base64
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SKIP = 77


def require():
    """The program, or an end of the test that says what is missing."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        import websocket  # noqa: F401
    except ImportError:
        debian = "/usr/bin/python3"  # another Python does not see Debian's packages
        if os.path.realpath(sys.executable) != os.path.realpath(debian) and \
                subprocess.run([debian, "-c", "import websocket"], stderr=subprocess.DEVNULL).returncode == 0:
            os.execv(debian, [debian, sys.argv[0], *sys.argv[1:]])
        print("skipped: no websocket-client (package python3-websocket)")
        sys.exit(SKIP)
    if not program:
        print("skipped: no chromium (package chromium)")
        sys.exit(SKIP)
    return program


class Browser:
    def __init__(self, program):
        import websocket
        self.folder = tempfile.mkdtemp(prefix="nibble-chromium-")
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-extensions", "--remote-debugging-port=0", "--remote-allow-origins=*",
             f"--user-data-dir={self.folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port_file = pathlib.Path(self.folder) / "DevToolsActivePort"
        end = time.monotonic() + 60
        while not port_file.exists() or not port_file.read_text().strip():
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("chromium did not start")
            time.sleep(0.05)
        port = int(port_file.read_text().split()[0])
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        c.request("PUT", "/json/new?about:blank")
        target = json.loads(c.getresponse().read())
        self.socket = websocket.create_connection(target["webSocketDebuggerUrl"], timeout=120, suppress_origin=True)
        self.count, self.problems = 0, []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            self.note(message)
            if message.get("id") == self.count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def note(self, message):
        """Whatever the page complains of: exceptions, refused by the policy, files that are not there."""
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            entry = message["params"]["entry"]
            self.problems.append(f"{entry['text']} {entry.get('url', '')}")

    def run(self, script):
        """The value of an expression, which may be a promise."""
        r = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{script}: {r['exceptionDetails'].get('exception', {}).get('description')}")
        return r["result"].get("value")

    def wait(self, script, seconds=30):
        """Until it is true; its value."""
        end = time.monotonic() + seconds
        while True:
            try:
                value = self.run(script)
            except RuntimeError as e:
                value, why = None, e
            else:
                why = None
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {script} {why or ''}\n"
                                     f"{self.run('document.body.innerText')}\n{self.problems}")
            time.sleep(0.05)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def click(self, selector):
        self.wait(f"!!document.querySelector({json.dumps(selector)}) && !document.querySelector({json.dumps(selector)}).disabled")
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def type(self, selector, text):
        self.wait(f"!!document.querySelector({json.dumps(selector)})")
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.run(f"document.querySelector({json.dumps(selector)}).select?.()")
        self.send("Input.insertText", text=text)

    def enter(self):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")

    def point(self, selector):
        x, y = self.wait(f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getClientRects()[0];"
                         " return [r.x + r.width / 2, r.y + r.height / 2] })()")
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def look(self, width, height, dark, language="en-US", phone=False):
        """The size of the window, the system's colours and language, as a device has them."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.send("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        agent = self.run("navigator.userAgent")
        self.send("Network.setUserAgentOverride", userAgent=agent, acceptLanguage=language)

    def picture(self, file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        try:
            self.send("Browser.close")
        except Exception:
            pass
        self.socket.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
