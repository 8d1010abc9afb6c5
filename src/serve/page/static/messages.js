// SPDX-License-Identifier: MIT
// The messages of a conversation, and what can be done with each.
import {button, el, say} from './dom.js';
import {number, speedText, t} from './i18n.js';
import {looksMarked, showMarkdown} from './markdown.js';
import {showTokens} from './tokens.js';

export function showReply(node, message) {
  if (message.showTokens && message.tokens?.length)
    showTokens(node, message.tokens, true);
  else if (message.tokens?.length && !looksMarked(message.content))
    showTokens(node, message.tokens, false);
  else
    showMarkdown(node, message.content);
}

function note(m) {
  const parts = [];
  if (m.model) parts.push(m.model);
  if (m.count)
    parts.push(
        t('reply_note',
          {tokens: number(m.count), speed: speedText(m.count / Math.max(m.seconds, 1e-3))}));
  if (m.finish === 'length') parts.push(t('reply_cut'));
  if (m.finish === 'stopped') parts.push(t('reply_stopped'));
  return el('span.note.muted', {}, parts.join(' · '));
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say(t('copied'));
  } catch (e) {
    say(e.message, true);
  }
}

function editor(message, done) {
  const box =
      el('textarea',
         {rows: Math.min(12, message.content.split('\n').length + 1), value: message.content});
  const node = el(
      'div.bubble.editing', {}, box,
      el('div.row.end', {}, el('button', {type: 'button', onclick: () => done(null)}, t('cancel')),
         el('button.primary', {type: 'button', onclick: () => done(box.value)}, t('resend'))));
  setTimeout(() => box.focus());
  return node;
}

/**
 * One message. `act`: {edit(index, text), again(index), changed()}; `busy`: a reply is on its way.
 */
export function messageNode(m, index, last, busy, act) {
  if (m.role === 'user') {
    const bubble = el('div.bubble.plain', {}, m.content);
    const row =
        el('article.message.user', {'aria-label': t('you')}, bubble,
           !busy &&
               el('div.row.actions', {}, button('copy', t('copy'), () => copy(m.content)),
                  button(
                      'edit', t('edit_resend'),
                      () => row.replaceChildren(editor(m, (text) => act.edit(index, text))))));
    return row;
  }
  const body = el('div.reply', {lang: /[\u4e00-\u9fff]/.test(m.content) ? 'zh-Hant' : null});
  if (m.content || m.tokens?.length)
    showReply(body, m);
  else if (busy && last)
    body.append(el('span.waiting', {'aria-label': t('loading')}, el('i'), el('i'), el('i')));
  const tokens = m.tokens?.length > 0 &&
      button(m.showTokens ? 'chat' : 'tokens',
             t(m.showTokens ? 'show_text' : 'show_tokens'), () => {
               m.showTokens = !m.showTokens;
               act.changed();
             }, {className: m.showTokens ? 'quiet on' : 'quiet'});
  return el(
      'article.message.assistant', {}, body,
      m.error && el('p.error', {role: 'alert'}, t('reply_failed', {why: m.error})),
      !(busy && last) &&
          el('div.row.actions', {}, button('copy', t('copy'), () => copy(m.content)), tokens,
             last && button('again', t('regenerate'), () => act.again(index)), note(m)));
}
