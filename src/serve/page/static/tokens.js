// SPDX-License-Identifier: MIT
// A reply token by token. Pointing at one (or reaching it with the keyboard) shows how likely it
// was and what else it could have been.
import {bar} from './chart.js';
import {el} from './dom.js';
import {percent, t} from './i18n.js';

const LEVELS = 6;

/**
 * What an event's logprobs say, short enough to be kept: [text, probability, [[text,
 * probability]]].
 */
export function readTokens(logprobs) {
  const round = (x) => Math.round(1e4 * Math.exp(x)) / 1e4;
  return (logprobs?.content ?? [])
      .map(
          (c) =>
              [c.token, round(c.logprob), c.top_logprobs.map((a) => [a.token, round(a.logprob)]),
               c.bytes]);
}

/** Tokens that are part of a character stand together until it is whole. */
function joinBytes(tokens) {
  const out = [];
  const decoder = new TextDecoder();
  let open = null;
  for (const token of tokens) {
    const raw = token[3];
    const text = raw ? decoder.decode(new Uint8Array(raw), {stream: true}) : token[0];
    if (open) {
      open.text += text;
      open.parts.push(token);
    } else
      open = {text, parts: [token]};
    if (open.text !== '') {
      out.push(open);
      open = null;
    }
  }
  if (open) out.push(open);
  return out;
}

const visible = (text) => text.replace(/\n/g, '⏎').replace(/ /g, '␣') || '∅';
const level = (p) => Math.min(LEVELS - 1, Math.floor(Math.sqrt(1 - p) * LEVELS));

function card(parts) {
  return el(
      'div.card.token-card', {role: 'tooltip'},
      parts.map(
          ([text, p, others]) =>
              el('div.choices', {},
                 el('div.choice.taken', {}, el('code', {}, visible(text)), bar(p),
                    el('span', {}, percent(p, 1))),
                 others.length > 1 && el('p.muted.small', {}, t('alternatives')),
                 others.filter(([other]) => other !== text)
                     .slice(0, 4)
                     .map(
                         ([other, q]) =>
                             el('div.choice', {}, el('code', {}, visible(other)), bar(q),
                                el('span', {}, percent(q, 1)))))));
}

let open = null;
function close() {
  open?.remove();
  open = null;
}
function show(span, parts) {
  close();
  open = card(parts);
  document.body.append(open);
  const at = span.getClientRects()[0] ?? span.getBoundingClientRect(),
        size = open.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, innerWidth - size.width - 8));
  const below = at.bottom + 6 + size.height < innerHeight;
  open.style.left = `${left}px`;
  open.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - size.height - 6)}px`;
}
addEventListener('scroll', close, true);
addEventListener('hashchange', close);

/** `tinted`: the less likely a token was, the stronger its colour. */
export function showTokens(node, tokens, tinted) {
  node.classList.add('plain');
  node.classList.toggle('tinted', tinted);
  node.replaceChildren(...joinBytes(tokens).map(({text, parts}) => {
    const p = parts.reduce((all, part) => all * part[1], 1);
    const label = `${text.trim()} · ${t('probability')} ${percent(p, 1)}`;
    const span =
        el(`span.token.level${level(p)}`,
           {tabIndex: tinted ? 0 : -1, 'aria-label': tinted ? label : null}, text);
    span.addEventListener('pointerenter', () => show(span, parts));
    span.addEventListener('pointerleave', close);
    span.addEventListener('focus', () => show(span, parts));
    span.addEventListener('blur', close);
    return span;
  }));
}
