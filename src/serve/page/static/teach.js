// SPDX-License-Identifier: MIT
// The tab Teach: rows, what is to stay, what it takes, start. What follows is in teach_live.js and
// teach_after.js.
import { get, part, post } from './api.js';
import { button, el, icon, say } from './dom.js';
import { bytes, currentLanguage, duration, number, t, when } from './i18n.js';
import { stateBadge, tile } from './run_view.js';
import { showAfter } from './teach_after.js';
import { showLive } from './teach_live.js';
import { exampleRows } from './words_teach.js';

const KEY = 'nibble.lesson';
const PLAN_MS = 600;  // after the last change
const GROWS = CSS.supports('field-sizing', 'content');  // text boxes are as high as their text
let room = null, overview = null, leave = null, planTimer = 0;
let draft = read();

function read() {
  try {
    const d = JSON.parse(localStorage.getItem(KEY));
    if (Array.isArray(d?.rows)) return d;
  } catch { /* begun anew */ }
  return { rows: [] };
}
function saved() {
  try { localStorage.setItem(KEY, JSON.stringify(draft)); } catch { /* too large to be kept: it is on the page */ }
}

const filled = () => draft.rows.filter((r) => r.line || (r.question.trim() && r.answer.trim()));
const request = () => ({
  rows: filled().map((r) => (r.line ? { line: r.line, question: r.question, answer: r.answer } : { question: r.question.trim(), answer: r.answer.trim() })),
  keep: draft.keep, prompts: draft.keep === 'prompts' ? draft.prompts.split('\n').map((p) => p.trim()).filter(Boolean) : [],
  own_tokens: draft.own_tokens, steps: draft.steps, batch_size: draft.batch_size, lr: draft.lr,
});

async function addFile(name, text) {
  try {
    const { rows, problems } = await post('/api/lessons/rows', { name, text });
    draft.rows = [...draft.rows.filter((r) => r.question || r.answer || r.line), ...rows];
    changed(true);
    if (problems.length) say(t('rows_problems', { n: problems.length, first: problems[0] }), true);
    else say(t('rows_read', { n: rows.length, name }));
  } catch (e) {
    say(e.message, true);
  }
}

/** Text with a tab is rows of a spreadsheet. */
function pasted(e) {
  const text = e.clipboardData?.getData('text/plain') ?? '';
  if (!text.includes('\t')) return;
  e.preventDefault();
  addFile('paste.tsv', text);
}

function rowNode(row) {
  const remove = button('close', t('remove'), () => { draft.rows.splice(draft.rows.indexOf(row), 1); changed(true); });
  if (row.line) {
    return el('div.pair.whole', {}, el('p.plain', {}, row.question), el('p.plain', {}, row.answer, el('span.muted.small', {}, ` · ${t('conversation_row')}`)), remove);
  }
  const box = (field, hint) => {
    const area = el('textarea', { rows: 1, value: row[field], placeholder: t(hint), 'aria-label': t(field), onpaste: pasted, oninput: () => { row[field] = area.value; fit(); changed(false); } });
    const fit = () => { if (GROWS) return; area.style.height = 'auto'; area.style.height = `${Math.min(area.scrollHeight + 2, 180)}px`; };
    setTimeout(fit);
    return area;
  };
  return el('div.pair', {}, box('question', 'question_hint'), box('answer', 'answer_hint'), remove);
}

function rowsSection() {
  const drop = (e) => {
    e.preventDefault();
    section.classList.remove('over');
    for (const file of e.dataTransfer.files) file.text().then((text) => addFile(file.name, text));
  };
  const picker = el('input', { type: 'file', accept: '.tsv,.jsonl,.json,.csv,.txt', hidden: true, multiple: true,
    onchange: () => { for (const file of picker.files) file.text().then((text) => addFile(file.name, text)); } });
  const section = el('section.card.rows', {
    ondragover: (e) => { e.preventDefault(); section.classList.add('over'); }, ondragleave: () => section.classList.remove('over'), ondrop: drop,
  },
  el('div.row.between', {}, el('h2', {}, t('rows'), ' ', el('span.muted.small', { id: 'row-count' }, t('rows_count', { n: number(filled().length) }))),
    el('div.row', {},
      el('button', { type: 'button', id: 'example', onclick: () => { draft.rows = exampleRows[currentLanguage()].map(([question, answer]) => ({ question, answer })); changed(true); } }, t('example')),
      draft.rows.length > 1 && el('button', { type: 'button', onclick: () => { draft.rows = []; changed(true); } }, t('clear_rows')))),
  el('div.pair.heads', {}, el('span', {}, t('question')), el('span', {}, t('answer')), el('span')),
  draft.rows.map(rowNode),
  el('div.row.between', {}, el('button', { type: 'button', id: 'add-row', onclick: () => { draft.rows.push({ question: '', answer: '' }); changed(true); room.querySelector('.pair:last-of-type textarea')?.focus(); } }, icon('plus'), t('add_row')),
    el('span.muted.small', {}, t('drop_hint'), ' ', el('button.link', { type: 'button', onclick: () => picker.click() }, t('choose_file')), picker)));
  return section;
}

function keepSection() {
  const choice = (name, ...more) => el('label', { className: draft.keep === name ? 'option on' : 'option' },
    el('input', { type: 'radio', name: 'keep', value: name, checked: draft.keep === name, onchange: () => { draft.keep = name; changed(true); } }),
    el('span', {}, el('strong', {}, t(`keep_${name}`)), el('span.muted.small', {}, t(`keep_${name}_text`)), more));
  const prompts = el('textarea', { id: 'prompts', rows: 6, value: draft.prompts, oninput: () => { draft.prompts = prompts.value; changed(false); } });
  const tokens = el('input', { type: 'number', id: 'own-tokens', min: 100, max: 200000, step: 100, value: draft.own_tokens, oninput: () => { draft.own_tokens = tokens.valueAsNumber; changed(false); } });
  return el('section.card', {}, el('h2', {}, t('keep_title')), el('div.options', {},
    choice('prompts', draft.keep === 'prompts' && prompts), choice('own_text', draft.keep === 'own_text' && tokens), choice('nothing')));
}

function howSection() {
  const field = (name, label, attributes) => {
    const input = el('input', { type: 'number', id: `how-${name}`, value: draft[name], ...attributes, oninput: () => { if (input.checkValidity() && input.value) { draft[name] = input.valueAsNumber; changed(false); } } });
    return el('label.field', { htmlFor: `how-${name}` }, el('span', {}, t(label)), input);
  };
  return el('details.card', {}, el('summary', {}, t('how')), el('div.fields', {},
    field('steps', 'steps', { min: 1, max: 100000, step: 1 }), field('lr', 'learning_rate', { min: 1e-9, max: 1, step: 'any' }),
    field('batch_size', 'batch_size', { min: 1, max: 256, step: 1 })));
}

function planTiles(plan) {
  return [el('div.tiles', {},
    tile(t('plan_time'), plan.seconds === undefined ? '–' : `≈ ${duration(plan.seconds)}`, t(plan.basis === 'run' ? 'plan_from_run' : 'plan_guess')),
    tile(t('plan_memory'), plan.memory ? bytes(plan.memory.total_bytes) : '–', t('plan_of', { bytes: bytes(plan.available_bytes) })),
    tile(t('plan_window'), t('tokens_n', { n: number(plan.window) })),
    tile(t('plan_passes'), number(plan.epochs))),
  !plan.fits && el('p.error', {}, t('plan_no_fit'))].filter(Boolean);
}

function planSoon() {
  clearTimeout(planTimer);
  const node = room?.querySelector('#plan');
  if (!node) return;
  const startButton = room.querySelector('#start');
  startButton.disabled = filled().length === 0;
  if (!filled().length) return node.replaceChildren(el('p.muted', {}, t('plan_empty')));
  planTimer = setTimeout(async () => {
    try {
      const plan = await post('/api/lessons/plan', request());
      if (node.isConnected) node.replaceChildren(...planTiles(plan));
      startButton.disabled = !plan.fits;
    } catch (e) {
      if (node.isConnected) node.replaceChildren(el('p.error', {}, e.message));
    }
  }, PLAN_MS);
}

/** `redraw`: rows came or went, not only their words. */
function changed(redraw) {
  saved();
  const count = room?.querySelector('#row-count');
  if (redraw && room) compose();
  else if (count) count.textContent = t('rows_count', { n: number(filled().length) });
  planSoon();
}

async function start() {
  const node = room.querySelector('#start');
  node.disabled = true;
  try {
    const { name } = await post('/api/lessons', request());
    location.hash = `#teach/${part(name)}`;
  } catch (e) {
    node.disabled = false;
    say(e.message, true);
  }
}

function lessonList() {
  if (!overview.lessons.length) return null;
  return el('section.card', {}, el('h2', {}, t('lessons_before')), el('ul.lessons', {}, overview.lessons.map((l) => el('li', {},
    el('a', { href: `#teach/${part(l.name)}` }, l.kept_as || l.name), l.state === 'starting' ? null : stateBadge(l.state),
    el('span.muted.small', {}, `${t('rows_count', { n: number(l.rows) })} · ${when(l.created_utc)}`)))));
}

function compose() {
  const at = room.scrollTop;
  const d = overview.defaults;
  draft.keep ??= d.keep;
  draft.prompts ??= d.prompts.join('\n');
  for (const name of ['own_tokens', 'steps', 'batch_size', 'lr']) draft[name] ??= d[name];
  if (!draft.rows.length) draft.rows = [{ question: '', answer: '' }];
  room.replaceChildren(el('div.page.teach', {},
    el('h1', {}, t('teach_title', { model: overview.base })), el('p.muted.lead', {}, t('teach_lead')),
    !overview.can_teach && el('p.card.error', {}, t('cannot_teach')),
    rowsSection(), keepSection(), howSection(),
    el('section.card.begin', {}, el('h2', {}, t('plan_title')), el('div', { id: 'plan' }),
      el('div.row.end', {}, el('button.primary.big', { type: 'button', id: 'start', disabled: true, onclick: start }, icon('play'), t('start')))),
    lessonList()));
  room.scrollTop = at;
}

/** The rows of a lesson that was, to be taught again. */
function again(lesson) {
  draft = { ...lesson, prompts: lesson.prompts.length ? lesson.prompts.join('\n') : undefined };
  saved();
  location.hash = '#teach';
}

async function lesson(name) {
  const here = room;
  const status = await get(`/api/lessons/${part(name)}`);
  if (room !== here) return;
  const redraw = () => { if (room === here) lesson(name).catch((e) => say(e.message, true)); };
  leave?.();
  leave = status.has_model && !status.goes_on ? showAfter(here, status, { redraw, again, overview }) : showLive(here, status, { redraw, again, overview });
}

export const teachTab = {
  async enter(node, rest) {
    room = node;
    node.replaceChildren(el('p.page.muted', {}, t('loading')));
    try {
      overview = await get('/api/lessons');
      if (room !== node) return;
      const running = overview.lessons.find((l) => l.goes_on);
      if (rest || running) await lesson(rest || running.name);
      else { compose(); planSoon(); }
    } catch (e) {
      node.replaceChildren(el('div.page', {}, el('a.backlink', { href: '#teach' }, `← ${t('new_lesson')}`), el('p.card.error', {}, e.message)));
    }
  },
  leave() {
    leave?.();
    leave = null;
    clearTimeout(planTimer);
    room = null;
  },
};
