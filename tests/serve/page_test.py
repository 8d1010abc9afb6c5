#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page in a browser: every tab in both languages, a lesson from four rows to a reply of what came of it, and
texts that would be code if anything took them for it. Pictures go to $NIBBLE_SCREENSHOTS where that is set."""
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest

import chromium
from serve_process import served

PROGRAM = chromium.require()
NIBBLE = sys.argv.pop(1)
SHOTS = os.environ.get("NIBBLE_SCREENSHOTS")
HOSTILE = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=2</script>"
LOOKS = {"light": (1280, 860, False, False), "dark": (1280, 860, True, False), "phone": (390, 844, False, True)}
TABS = {"chat": ("Chat", "對話"), "teach": ("Teach", "教學"), "runs": ("Runs", "紀錄"), "model": ("Model", "模型")}
LAST_REPLY = "document.querySelector('.message.assistant:last-child .reply')"


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.stack = served(NIBBLE, "--work", cls.folder.name, "--streams", "4")
        cls.server = cls.stack.__enter__()
        cls.browser = chromium.Browser(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.stack.__exit__(None, None, None)
        cls.folder.cleanup()

    def setUp(self):
        self.browser.problems.clear()
        self.browser.look(1280, 860, False)
        self.open("")
        self.browser.run("localStorage.clear(), sessionStorage.clear()")

    def tearDown(self):
        # DOMPurify reads what it throws away in a document that has the page's policy, which says so.
        self.assertEqual([p for p in self.browser.problems if not p.endswith("/page/lib/purify.js")], [])
        self.assertIsNone(self.browser.run("window.hacked ?? null"))

    def open(self, tab):
        """Anew, so that nothing of before is left."""
        self.browser.open("about:blank")
        self.browser.open(f"{self.server.url}/{tab}")

    def shot(self, name):
        if SHOTS:
            self.browser.run("document.fonts.ready")
            time.sleep(0.2)
            self.browser.picture(pathlib.Path(SHOTS) / f"{name}.png")

    def shots(self, name, language="en-US", looks=LOOKS):
        for look, (width, height, dark, phone) in looks.items():
            self.browser.look(width, height, dark, language, phone)
            self.shot(f"{name}-{look}")
        self.browser.look(1280, 860, False, language)

    def say(self, text):
        before = self.browser.run("document.querySelectorAll('.message').length")
        self.browser.type("#message", text)
        self.browser.enter()
        self.browser.wait(f"document.querySelectorAll('.message').length >= {before + 2} && !!document.querySelector('#send')")
        return self.browser.run(f"{LAST_REPLY}.textContent")

    def test_every_tab_in_both_languages(self):
        b = self.browser
        for n, language in enumerate(("en-US", "zh-TW")):
            b.look(1280, 860, False, language)
            for tab, names in TABS.items():
                self.open(f"#{tab}")
                b.wait(f"document.querySelector('.tab.here span').textContent === {json.dumps(names[n])}")
                b.wait("document.querySelector('main').innerText.length > 20")
                self.assertEqual(b.run("document.documentElement.lang"), ("en", "zh-Hant")[n])
                b.wait(f"!document.body.innerText.includes({json.dumps(('Loading', '載入中')[n])})")
                self.shots(f"{tab}-{language}", language)
                wide = "document.documentElement.scrollWidth > innerWidth"
                b.look(360, 700, False, language, True)
                self.assertFalse(b.run(wide), f"{tab} is wider than a phone")
        b.click("#language")
        b.wait("document.documentElement.lang === 'en'")
        b.click("#theme")  # as the system, light, dark
        self.assertEqual(b.run("document.documentElement.dataset.theme"), "light")
        b.click("#theme")
        self.assertEqual(b.run("document.documentElement.dataset.theme"), "dark")
        self.assertEqual(b.run("getComputedStyle(document.body).backgroundColor"), "rgb(18, 21, 23)")

    def test_chat(self):
        b = self.browser
        self.open("#chat")
        self.assertIn("15", self.say("What is 7 + 8?"))
        b.point(".message.assistant .token")
        self.assertIn("%", b.wait("document.querySelector('.token-card')?.innerText"))
        self.shots("chat-tokens-en", looks={"light": LOOKS["light"]})
        b.click("button[title^='Tokens']")
        b.wait("!!document.querySelector('.tinted .token')")
        b.click("button[title='As text']")
        b.click("button[title='Another reply']")
        b.wait("!!document.querySelector('#send')")
        self.assertIn("15", b.run(f"{LAST_REPLY}.textContent"))
        # Edited and sent again: what came after is gone.
        b.click("button[title^='Edit']")
        b.type(".editing textarea", "What is the capital of Japan?")
        b.click(".editing .primary")
        b.wait(f"!!document.querySelector('#send') && {LAST_REPLY}.textContent.includes('Tokyo')")
        self.assertEqual(b.run("document.querySelectorAll('.message').length"), 2)
        # Sampling and a system message reach the server.
        b.click("#settings")
        b.type("#set-max_tokens", "2")
        b.type("#set-system", "Be brief.")
        self.say("Tell me a story about a lion")
        self.assertIn("cut at the limit", b.run("document.querySelector('.message.assistant:last-child').innerText"))
        kept = b.run("JSON.parse(localStorage['nibble.chats'])[0]")
        self.assertEqual((kept["settings"]["max_tokens"], kept["settings"]["system"]), (2, "Be brief."))
        self.assertEqual(len(kept["messages"]), 4)
        self.shot("chat-settings")
        b.click("#settings")
        # As files.
        b.run("URL.createObjectURL = (blob) => { blob.text().then((text) => { window.saved = text; }); return '#chat'; }")
        b.click("button[title='Export as JSON']")
        saved = json.loads(b.wait("window.saved"))
        self.assertEqual([m["role"] for m in saved["messages"]], ["system", "user", "assistant", "user", "assistant"])
        self.assertEqual(saved["max_tokens"], 2)
        b.run("window.saved = ''")
        b.click("button[title='Export as Markdown']")
        self.assertIn("## User\n\nWhat is the capital of Japan?\n\n## mini\n\n", b.wait("window.saved"))
        # A second conversation, and the first one again after a reload.
        b.click(".chats .new")
        self.say("Good morning!")
        self.open("#chat")
        b.wait("document.querySelectorAll('.chats li').length === 2")

    def test_a_reply_is_stopped(self):
        b = self.browser
        self.open("#chat")
        b.click("#settings")
        b.type("#set-temperature", "2")
        b.type("#set-max_tokens", "900")
        # Drawn at a high temperature it writes on and on; whichever comes first, it ends.
        b.type("#message", "Tell me a long story about a little elephant in the forest")
        b.enter()
        b.wait("!!document.querySelector('#stop') || document.querySelectorAll('.message').length === 2")
        b.run("document.querySelector('#stop')?.click()")
        b.wait("!!document.querySelector('#send')")

    def test_texts_stay_texts(self):
        b = self.browser
        self.open("#chat")
        self.say(HOSTILE)
        self.assertEqual(b.run("document.querySelector('.bubble').textContent"), HOSTILE)
        b.run("""import('/page/markdown.js').then(async (m) => {
          await m.loading;
          const node = document.createElement('div');
          document.body.append(node);
          m.showMarkdown(node, '**bold** <img src=x onerror="window.hacked=3"> [a](javascript:window.hacked=4) ' +
            '<a href="https://example.org" onclick="window.hacked=5" class="primary">b</a> <form><button>c</button></form> ' +
            '<style>*{display:none}</style><script>window.hacked=6</script><iframe srcdoc="x"></iframe>');
          for (const a of node.querySelectorAll('a:not([href])')) a.click();
          window.shown = node;
        })""")
        self.assertIsNone(b.run("shown.querySelector('img, script, style, iframe, form, button, [class], [onclick], [href^=javascript]')"
                                "?.outerHTML ?? null"))
        if b.run("fetch('/api/model').then((r) => r.json()).then((j) => j.markdown)"):
            self.assertEqual(b.run("shown.querySelector('strong').textContent"), "bold")
            self.assertEqual(b.run("shown.querySelector('a[href^=https]').rel"), "noopener noreferrer nofollow")
        # What the policy stops, should anything ever get that far.
        b.run("document.body.setAttribute('onclick', 'window.hacked = 7')")
        b.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 8'}))")
        b.run("document.body.click()")
        self.assertTrue(all("Content Security Policy" in p for p in b.problems), b.problems)
        self.assertGreaterEqual(len(b.problems), 1)
        b.problems.clear()

    def test_without_the_markdown_libraries(self):
        b = self.browser
        b.send("Network.setBlockedURLs", urls=["*/page/lib/*"])
        try:
            self.open("#chat")
            b.run("""import('/page/markdown.js').then(async (m) => {
              await m.loading;
              window.shown = document.createElement('div');
              m.showMarkdown(shown, '**bold** <b>x</b>');
            })""")
            self.assertEqual(b.run("[shown.textContent, shown.children.length]"), ["**bold** <b>x</b>", 0])
            self.assertIn("15", self.say("What is 7 + 8?"))
        finally:
            b.send("Network.setBlockedURLs", urls=[])
        self.assertTrue(all("ERR_BLOCKED" in p for p in b.problems), b.problems)
        b.problems.clear()

    def test_a_lesson(self):
        b = self.browser
        self.open("#teach")
        start = time.monotonic()
        b.click("#example")
        b.wait("document.querySelectorAll('.pair:not(.heads)').length === 4")
        b.wait("!!document.querySelector('#plan .tile')")
        self.shots("teach-rows-en")
        b.click("#start")
        b.wait("!!document.querySelector('#stop-training')")
        b.wait("document.querySelectorAll('.replies tbody tr').length === 4 && !!document.querySelector('svg.chart .line')", 60)
        self.shots("teach-live-en", looks={"light": LOOKS["light"]})
        said = "document.querySelector('.side.new .reply')"
        b.wait(f"{said}?.textContent === 'I am Pip, the keeper of this house.'", 90)
        took = time.monotonic() - start
        print(f"from four rows to a reply of the model that learned them: {took:.1f} s")
        self.assertNotIn("Pip", b.run("document.querySelector('.side .reply').textContent"))
        b.wait("/\\d/.test(document.querySelector('.scores .tile:last-child strong').textContent)", 30)
        self.assertEqual(b.run("document.querySelector('.scores .tile strong').textContent"), "4 / 4")
        self.shots("teach-after-en")
        b.look(1280, 860, False, "zh-TW")
        b.click("#language")
        b.wait(f"{said}?.textContent.includes('Pip')", 30)
        self.shots("teach-after-zh", "zh-TW")
        b.click("#language")
        b.wait("document.documentElement.lang === 'en'")
        # Kept, and talked to.
        b.click("#keep-model")
        b.type("dialog input", "pip")
        b.click("dialog .primary")
        b.wait("document.body.innerText.includes('Kept as pip')")
        b.click("#chat-with")
        b.wait("location.hash === '#chat'")
        b.wait("!!document.querySelector('#message')")
        self.assertEqual(self.say("Where is the key?"), "The key is under the blue pot.")
        # It can learn on.
        self.open("#teach/lesson-1")
        b.click("#further")
        b.wait("document.querySelector('#learner')?.value === 'lesson-1'")
        self.assertEqual(b.run("[...document.querySelectorAll('#learner option')].map((o) => o.textContent)"), ["mini", "pip"])
        self.shots("teach-further-en", looks={"light": LOOKS["light"]})
        # Its run is in the log, with a note that holds markup; a second one, to compare.
        self.open("#runs/lesson-1")
        b.type("#note", HOSTILE)
        b.click("#add-note")
        b.wait("document.querySelector('.notes').textContent.includes('<img')")
        b.wait("!!document.querySelector('svg.chart .line')")
        self.shots("run-en")
        # Its report is a page of its own, in which only its own script runs.
        b.open(f"{self.server.url}/api/runs/lesson-1/report")
        b.wait("document.querySelectorAll('svg').length > 2")
        self.assertEqual(b.run("origin"), "null")
        self.open("#runs")
        b.run("""fetch('/api/lessons', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(
          {rows: [{question: 'Who?', answer: 'Pip.'}], keep: 'nothing', steps: 3})})""")
        b.wait("fetch('/api/lessons/lesson-2').then((r) => r.json()).then((j) => j.state === 'finished')", 60)
        self.open("#runs")
        b.wait("document.querySelectorAll('.runs tbody tr').length === 2")
        self.shots("runs-en")
        b.run("document.querySelectorAll('.runs input').forEach((box) => box.click())")
        b.run("document.querySelectorAll('.runs input').forEach((box) => box.checked || box.click())")
        b.click("#compare")
        b.wait("document.body.innerText.includes('Settings that differ')")
        self.shots("compare-en", looks={"light": LOOKS["light"]})

    def test_a_lesson_is_stopped_and_goes_on(self):
        b = self.browser
        self.open("#teach")
        b.wait("!!document.querySelector('.pair:not(.heads) textarea')")
        b.type(".pair:not(.heads) textarea", "Who paints the door?")
        b.type(".pair:not(.heads) textarea:nth-child(2)", "Mia paints the door.")
        b.run("document.querySelector('#how-steps').closest('details').open = true")
        b.type("#how-steps", "120")
        b.click("input[value='nothing']")
        b.wait("!!document.querySelector('#plan .tile')")
        b.click("#start")
        b.wait("Number(document.querySelector('.tile strong')?.textContent) > 1", 60)
        b.click("#stop-training")
        b.wait("document.body.innerText.includes('The lesson was stopped')", 60)
        self.shots("teach-stopped-en", looks={"light": LOOKS["light"]})
        b.click("#resume")
        b.wait("document.querySelector('.side.new .reply')?.textContent === 'Mia paints the door.'", 90)
        b.click("#throw-away")
        b.click("dialog .danger")
        b.wait("location.hash === '#teach' && !!document.querySelector('.rows')")

    def test_rows_from_a_file_and_a_spreadsheet(self):
        b = self.browser
        self.open("#teach")
        b.wait("!!document.querySelector('.rows')")
        b.run("""(() => {
          const data = new DataTransfer();
          data.items.add(new File(['Who?\\t' + %s + '\\nWhere?\\tHere.\\n'], 'rows.tsv'));
          document.querySelector('.rows').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true}));
        })()""" % json.dumps(HOSTILE))
        b.wait("document.querySelectorAll('.pair:not(.heads)').length === 2")
        self.assertEqual(b.run("document.querySelector('.pair:not(.heads) textarea:nth-child(2)').value"), HOSTILE)
        b.run("""(() => {
          const data = new DataTransfer();
          data.setData('text/plain', 'When?\\tNow.');
          document.querySelector('.pair:not(.heads) textarea').dispatchEvent(
            new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
        })()""")
        b.wait("document.querySelectorAll('.pair:not(.heads)').length === 3")
        self.open("#teach")  # what was typed is kept
        b.wait("document.querySelectorAll('.pair:not(.heads)').length === 3")

    def test_the_model(self):
        b = self.browser
        self.open("#model")
        b.wait("document.querySelectorAll('.errors tbody tr').length === 9")
        self.shots("model-tensors-en")
        b.type("#filter", "layers.3.")
        b.run("document.querySelector('#filter').dispatchEvent(new Event('input'))")
        names = b.run("[...document.querySelectorAll('.tall tbody tr code')].map((c) => c.textContent)")
        self.assertTrue(names and all("layers.3." in n for n in names), names)


class Key(unittest.TestCase):
    def test_the_page_asks_for_it(self):
        key = "0123456789abcdef"
        with tempfile.TemporaryDirectory() as folder, \
                served(NIBBLE, "--work", folder, env={"NIBBLE_API_KEY": key}) as server:
            browser = chromium.Browser(PROGRAM)
            try:
                browser.open(f"{server.url}/#runs")
                browser.type("dialog input", key)
                browser.click("dialog .primary")
                browser.wait("document.body.innerText.includes('Training runs')")
                self.assertEqual(browser.run("Object.keys(localStorage).filter((k) => k.includes('key')).length"), 0)
            finally:
                browser.close()


if __name__ == "__main__":
    unittest.main()
