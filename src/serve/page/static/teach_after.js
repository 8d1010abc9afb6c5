// SPDX-License-Identifier: MIT
// A lesson that made a model: both models asked the same, scores, what else changed; keep, export,
// throw away.
import {get, hasKey, part, post, request} from './api.js';
import {chatTab} from './chat.js';
import {ask, el, icon, saveFile, say} from './dom.js';
import {duration, figure, number, percent, t} from './i18n.js';
import {showReply} from './messages.js';
import {stateBadge, tile} from './run_view.js';
import {stream} from './sse.js';
import {readTokens} from './tokens.js';

export async function throwAway(status) {
  const sure = await ask({
    title: t('throw_dialog'),
    text: t('throw_dialog_text'),
    yes: t('throw_away'),
    no: t('cancel'),
    danger: true
  });
  if (!sure) return;
  try {
    await post(`/api/lessons/${part(status.name)}/discard`);
    location.hash = '#teach';
  } catch (e) {
    say(e.message, true);
  }
}

async function keepModel(status, {redraw, overview}) {
  const name = await ask({
    title: t('keep_dialog'),
    text: t('keep_dialog_text', {folder: overview.folders.models}),
    value: status.name,
    yes: t('keep_model'),
    no: t('cancel')
  });
  if (!name) return;
  try {
    await post(`/api/lessons/${part(status.name)}/keep`, {name: name.trim()});
    redraw();
  } catch (e) {
    say(e.message, true);
  }
}

async function exportModel(status) {
  const path = `/api/lessons/${part(status.name)}/export`;
  if (!hasKey()) return el('a', {href: path, download: `${status.name}.tar`}).click();
  try {
    saveFile(`${status.name}.tar`, 'application/x-tar', await (await request(path)).blob());
  } catch (e) {
    say(e.message, true);
  }
}

const noScores = {
  taught: {good: 0, total: 0},
  kept: {good: 0, total: 0},
  other: {good: 0, total: 0},
  replies: []
};

function scores(status) {
  const {taught, kept, other} = status.scores;
  const of = (c) => `${number(c.good)} / ${number(c.total)}`;
  const d = status.damage;
  return el(
      'div.tiles.scores', {}, tile(t('score_taught'), of(taught), t('score_taught_text')),
      kept.total > 0 && tile(t('score_kept'), of(kept), t('score_same')),
      other.total > 0 && tile(t('score_other'), of(other), t('score_other_text')),
      tile(
          t('score_divergence'), d ? figure(d.divergence) : t('measuring'),
          d ? t('score_divergence_text', {agreement: percent(d.agreement, 1)}) : ''));
}

/** One reply of one model; greedy, so that it is what the scores are made of. */
async function answer(node, model, question, signal) {
  const message = {content: '', tokens: []};
  node.replaceChildren(el('span.waiting', {}, el('i'), el('i'), el('i')));
  try {
    await stream(
        '/v1/chat/completions', {
          model,
          messages: [{role: 'user', content: question}],
          temperature: 0,
          max_tokens: 300,
          logprobs: true,
          top_logprobs: 5
        },
        signal, (event) => {
          const choice = event.choices?.[0];
          message.content += choice?.delta?.content ?? '';
          message.tokens.push(...readTokens(choice?.logprobs));
          showReply(node, message);
        });
    if (!message.content) node.replaceChildren('–');
  } catch (e) {
    if (e.name !== 'AbortError') node.replaceChildren(el('span.error', {}, e.message));
  }
}

function sideBySide(status, base, ready, live) {
  const before = el('div.reply', {}), after = el('div.reply', {}), asked = el('p.bubble.plain', {});
  const chips = el('div.examples', {});
  const input = el('input', {
    type: 'text',
    id: 'ask-both',
    placeholder: t('ask_hint'),
    'aria-label': t('ask_hint'),
    onkeydown: (e) => {
      if (e.key === 'Enter' && !e.isComposing) put(input.value);
    }
  });
  let controller = null;
  const put = async (question) => {
    if (!question.trim()) return;
    controller?.abort();
    controller = new AbortController();
    live.add(controller);
    asked.textContent = question;
    for (const chip of chips.children) chip.classList.toggle('on', chip.textContent === question);
    const {signal} = controller;
    after.replaceChildren(el('span.muted', {}, t('loading_model')));
    const first = answer(before, base, question, signal);
    if (await ready && !signal.aborted) await answer(after, status.name, question, signal);
    await first;
  };
  const changed =
      status.scores.replies
          .filter(
              (r) => r.group !== 'taught' && r.first.step === 0 && r.first.reply !== r.last.reply)
          .map((r) => r.prompt);
  const questions = [
    ...status.lesson.rows.filter((r) => !r.line).map((r) => r.question).slice(0, 6),
    ...changed.slice(0, 4)
  ];
  chips.append(...questions.map((q) => el('button', {type: 'button', onclick: () => put(q)}, q)));
  if (questions.length) put(questions[0]);
  return el(
      'section.card.both', {}, el('h2', {}, t('side_by_side')), chips,
      el('div.row', {}, input,
         el('button.primary', {type: 'button', id: 'ask', onclick: () => put(input.value)},
            t('ask_both'))),
      asked,
      el('div.sides', {},
         el('article.side', {},
            el('h3', {}, t('before_model'), el('span.muted.small', {}, ` ${base}`)), before),
         el('article.side.new', {},
            el('h3', {}, t('after_model'),
               el('span.muted.small', {}, ` ${status.kept_as || status.name}`)),
            after)));
}

function changes(status) {
  const list = status.scores.replies.filter(
      (r) => r.group !== 'taught' && r.first.step === 0 && r.first.reply !== r.last.reply);
  return el(
      'section.card', {}, el('h2', {}, t('changed_only')),
      !list.length ? el('p.muted', {}, t('nothing_changed')) :
                     el('div.scroll', {},
                        el('table.replies', {},
                           el('thead', {},
                              el('tr', {}, el('th', {}, t('question')), el('th', {}, t('before')),
                                 el('th', {}, t('after')))),
                           el('tbody', {},
                              list.map(
                                  (r) =>
                                      el('tr', {}, el('td.plain', {}, r.prompt),
                                         el('td.plain', {}, r.first.reply),
                                         el('td.plain', {}, r.last.reply)))))));
}

const POLL_MS = 1000;

/** Draws; returns what ends what it began. */
export function showAfter(room, status, tools) {
  status.scores ??= noScores;  // its run is not there any more
  const live = new Set();
  let timer = 0, gone = false;
  const path = `/api/lessons/${part(status.name)}`;
  const ready =
      status.loaded ? Promise.resolve(true) : post(`${path}/load`).then(() => true, (e) => {
        say(e.message, true);
        return false;
      });
  const score = el('div', {}, scores(status));
  const measure = async () => {
    try {
      if (!status.damage && !status.checking) await post(`${path}/check`);
      const poll = async () => {
        const now = await get(path);
        if (gone) return;
        score.replaceChildren(scores({...now, scores: now.scores ?? noScores}));
        if (now.checking) timer = setTimeout(poll, POLL_MS);
      };
      timer = setTimeout(poll, POLL_MS);
    } catch (e) {
      say(e.message, true);
    }
  };
  const talk = async () => {
    if (await ready) chatTab.talkTo(status.name);
  };
  room.replaceChildren(el(
      'div.page.teach', {}, el('a.backlink', {href: '#teach'}, `← ${t('new_lesson')}`),
      el('div.row.between', {},
         el('div', {},
            el('h1', {}, t('learned_title', {name: status.kept_as || status.name}), ' ',
               stateBadge(status.state)),
            el('span.muted.small', {}, t('learned_in', {
                 time: duration(
                     (Date.parse(status.now?.updated_utc) - Date.parse(status.now?.started_utc)) /
                     1000)
               }),
               status.from && ` · ${t('learner_was', {name: status.from})}`,
               status.run && [' · ', el('a', {href: `#runs/${part(status.run)}`}, t('details'))])),
         el('div.row.wrap', {},
            el('button.primary', {type: 'button', id: 'chat-with', onclick: talk}, icon('chat'),
               t('chat_with')),
            status.kept_as ?
                el('span.badge.finished', {
                  title: t(
                      'keep_start', {path: `${tools.overview.folders.models}/${status.kept_as}`})
                },
                   t('kept_as', {name: status.kept_as})) :
                el('button',
                   {type: 'button', id: 'keep-model', onclick: () => keepModel(status, tools)},
                   icon('keep'), t('keep_model')),
            el('button', {type: 'button', id: 'export-model', onclick: () => exportModel(status)},
               icon('down'), t('export_model')),
            el('button.danger',
               {type: 'button', id: 'throw-away', onclick: () => throwAway(status)}, icon('trash'),
               t('throw_away')))),
      status.message && el('p.card.error.plain', {}, status.message),
      sideBySide(status, tools.overview.base, ready, live), score, changes(status),
      el('div.row', {},
         el('button', {type: 'button', onclick: () => tools.again(status.lesson)}, t('same_again')),
         el('button', {type: 'button', id: 'further', onclick: () => tools.further(status.name)},
            t('teach_further')))));
  if (!status.damage)
    ready.then((open) => {
      if (open && !gone) measure();
    });
  return () => {
    gone = true;
    clearTimeout(timer);
    for (const controller of live) controller.abort();
  };
}
