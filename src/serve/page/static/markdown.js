// SPDX-License-Identifier: MIT
// Replies as Markdown, where the two libraries are built in: marked makes HTML, DOMPurify leaves of
// it what is listed here, as nodes. Without them, and until they are there, replies are plain text.
const TAGS = [
  'p',  'br', 'hr', 'em', 'strong', 'del',   'code',  'pre', 'blockquote',
  'ul', 'ol', 'li', 'a',  'table',  'thead', 'tbody', 'tr',  'th',
  'td', 'h1', 'h2', 'h3', 'h4',     'h5',    'h6'
];

const RULES = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ['href', 'start', 'align'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(https?:|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
};
const clean = (html) => globalThis.DOMPurify.sanitize(html, RULES);

// Debian's 2.4.1+deb12u1 asks the depth of a variable that it never declares, before its loop asks
// that of every node: without one of that name each call throws.
Object.defineProperty(globalThis, 'shadowNode', {value: Object.freeze({__depth: 0})});

/** Whether they do here what they are for. */
function sound() {
  const made = clean(
      globalThis.marked.parse('**a** <script>b</script><i class="c">d</i> [e](javascript:f)'));
  return made.querySelector('strong')?.textContent === 'a' &&
      !made.querySelector('script, i, [class], [href]');
}

let ready = false;
async function load() {
  try {
    await import('/page/lib/marked.js');
    await import('/page/lib/purify.js');
    ready = globalThis.DOMPurify.isSupported && sound();
  } catch { /* this build has none, or none that works: replies are text */
  }
}
export const loading = load();

/** Whether a text has anything that Markdown would show otherwise. */
export const looksMarked = (text) =>
    /(^|\n) {0,3}(#{1,6} |[-*+] |\d+[.)] |>|```|~~~|\|)|\*\*|__|`|\[[^\]]*\]\(|(^|[^\w*])\*[^\s*]/
        .test(text);

export function showMarkdown(node, text) {
  if (!ready) {
    node.textContent = text;
    node.classList.add('plain');
    return;
  }
  node.classList.remove('plain');
  const html =
      globalThis.marked.parse(text, {gfm: true, breaks: true, mangle: false, headerIds: false});
  const nodes = clean(html);
  for (const a of nodes.querySelectorAll('a')) {
    a.target = '_blank';
    a.rel = 'noopener noreferrer nofollow';
  }
  node.replaceChildren(nodes);
}
