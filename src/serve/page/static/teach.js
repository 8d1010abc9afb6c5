// SPDX-License-Identifier: MIT
// The tab Teach: a form, what it takes, start. What follows is in teach_live.js and teach_after.js.
import {get, part, post} from './api.js';
import {el, icon, say} from './dom.js';
import {number, t, when} from './i18n.js';
import {stateBadge} from './run_view.js';
import {showAfter} from './teach_after.js';
import {draft, draftFrom, filledRows, keepDraft, lessonRequest} from './teach_draft.js';
import {fromSection, howSection, keepSection, planTiles} from './teach_form.js';
import {showLive} from './teach_live.js';
import {rowsSection} from './teach_rows.js';

const PLAN_MS = 600;                           // after the last change
const CHOSEN = ['steps', 'lr', 'batch_size'];  // by the server where a person says nothing
let room = null, overview = null, leave = null, planTimer = 0;

function planSoon() {
  clearTimeout(planTimer);
  const node = room?.querySelector('#plan');
  if (!node) return;
  const startButton = room.querySelector('#start');
  startButton.disabled = filledRows().length === 0;
  if (!filledRows().length) return node.replaceChildren(el('p.muted', {}, t('plan_empty')));
  planTimer = setTimeout(async () => {
    try {
      const plan = await post('/api/lessons/plan', lessonRequest());
      if (!node.isConnected) return;
      node.replaceChildren(...planTiles(plan));
      for (const name of CHOSEN) room.querySelector(`#how-${name}`).placeholder = plan[name];
      startButton.disabled = !plan.fits;
    } catch (e) {
      if (node.isConnected) node.replaceChildren(el('p.error', {}, e.message));
    }
  }, PLAN_MS);
}

function changed(redraw) {
  keepDraft();
  const count = room?.querySelector('#row-count');
  if (redraw && room)
    compose();
  else if (count)
    count.textContent = t('rows_count', {n: number(filledRows().length)});
  planSoon();
}

async function start() {
  const node = room.querySelector('#start');
  node.disabled = true;
  try {
    const {name} = await post('/api/lessons', lessonRequest());
    location.hash = `#teach/${part(name)}`;
  } catch (e) {
    node.disabled = false;
    say(e.message, true);
  }
}

function lessonList() {
  if (!overview.lessons.length) return null;
  return el(
      'section.card', {}, el('h2', {}, t('lessons_before')),
      el('ul.lessons', {},
         overview.lessons.map(
             (l) =>
                 el('li', {}, el('a', {href: `#teach/${part(l.name)}`}, l.kept_as || l.name),
                    l.state === 'starting' ? null : stateBadge(l.state),
                    el('span.muted.small', {},
                       `${t('rows_count', {n: number(l.rows)})} · ${when(l.created_utc)}`)))));
}

function compose() {
  const at = room.scrollTop;
  const d = overview.defaults;
  draft.keep ??= d.keep;
  draft.prompts ??= d.prompts.join('\n');
  draft.own_tokens ??= d.own_tokens;
  if (!draft.rows.length) draft.rows = [{question: '', answer: ''}];
  room.replaceChildren(el(
      'div.page.teach', {}, el('h1', {}, t('teach_title', {model: overview.base})),
      el('p.muted.lead', {}, t('teach_lead')),
      !overview.can_teach && el('p.card.error', {}, t('cannot_teach')), rowsSection(changed),
      fromSection(overview, changed), keepSection(changed), howSection(changed),
      el('section.card.begin', {}, el('h2', {}, t('plan_title')), el('div', {id: 'plan'}),
         el('div.row.end', {},
            el('button.primary.big', {type: 'button', id: 'start', disabled: true, onclick: start},
               icon('play'), t('start')))),
      lessonList()));
  room.scrollTop = at;
}

/** More for the model that a lesson has made. */
function further(name) {
  draftFrom({rows: [], prompts: [], from: name});
  location.hash = '#teach';
}

/** The rows of a lesson that was, to be taught again. */
function again(lesson) {
  draftFrom(lesson);
  location.hash = '#teach';
}

async function lesson(name) {
  const here = room;
  const status = await get(`/api/lessons/${part(name)}`);
  if (room !== here) return;
  const redraw = () => {
    if (room === here) lesson(name).catch((e) => say(e.message, true));
  };
  leave?.();
  leave = status.has_model && !status.goes_on ?
      showAfter(here, status, {redraw, again, further, overview}) :
      showLive(here, status, {redraw, again, further, overview});
}

export const teachTab = {
  async enter(node, rest) {
    room = node;
    node.replaceChildren(el('p.page.muted', {}, t('loading')));
    try {
      overview = await get('/api/lessons');
      if (room !== node) return;
      const running = overview.lessons.find((l) => l.goes_on);
      if (rest || running)
        await lesson(rest || running.name);
      else {
        compose();
        planSoon();
      }
    } catch (e) {
      node.replaceChildren(
          el('div.page', {}, el('a.backlink', {href: '#teach'}, `← ${t('new_lesson')}`),
             el('p.card.error', {}, e.message)));
    }
  },
  leave() {
    leave?.();
    leave = null;
    clearTimeout(planTimer);
    room = null;
  },
};
