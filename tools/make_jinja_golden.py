#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tests/tokenizer/golden/jinja_language.jsonl: what Python's jinja2 makes of the constructs of its
language, in the environment chat templates have (sandboxed, trim_blocks, lstrip_blocks, loop
controls, tojson without ASCII escapes, raise_exception, strftime_now on 2026-11-16).

    tools/make_jinja_golden.py write [FILE]  answers the sources of FILE (lines {"source": ...});
                                             by default those of the golden file itself
    tools/make_jinja_golden.py check         compares the golden file with the jinja2 installed
                                             (exit 77: there is none)
"""
import json
import pathlib
import re
import sys
from datetime import datetime

GOLDEN = pathlib.Path(__file__).parent.parent / "tests/tokenizer/golden/jinja_language.jsonl"


def environment():
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        """{% generation %} ... {% endgeneration %}: the body, in a scope of its own."""

        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            call = self.call_method("_body")
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _body(self, caller):
            return caller()

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime(2026, 11, 16).strftime(form)
    return env


def answers(variables, sources):
    env = environment()
    for source in sources:
        try:
            yield {"source": source, "text": env.from_string(source).render(**variables)}
        except Exception as e:  # whatever a template can raise is an answer
            yield {"source": source, "error": f"{type(e).__name__}: {e}"}


def main():
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how not in ("write", "check"):
        sys.exit(__doc__)
    try:
        environment()
    except ImportError:
        print("[  SKIPPED ] jinja2 is not installed")
        sys.exit(77)
    stored = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    variables, cases = stored[0]["variables"], stored[1:]
    if how == "write":
        given = [json.loads(l) for l in open(sys.argv[2])] if len(sys.argv) > 2 else cases
        made = [a for a in answers(variables, [c["source"] for c in given])
                if not re.search("0x[0-9a-f]{6,}", str(a))]  # addresses of objects
        lines = [{"variables": variables}] + made
        GOLDEN.write_text("".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines))
        return
    wrong = 0
    for case, answer in zip(cases, answers(variables, [c["source"] for c in cases])):
        if case != answer:
            wrong += 1
            print(f"stored: {case}\njinja2: {answer}")
    print(f"{len(cases)} answers, {wrong} differ")
    sys.exit(1 if wrong else 0)


main()
