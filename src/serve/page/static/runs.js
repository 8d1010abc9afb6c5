// SPDX-License-Identifier: MIT
// The tab Runs: the log, one run, two compared.
import {get, hasKey, part, post, request} from './api.js';
import {lineChart} from './chart.js';
import {button, el, saveFile, say} from './dom.js';
import {bytes, duration, figure, number, t, when} from './i18n.js';
import {lossChart, replyTable, runTiles, scoreTable, sectionOf, stateBadge} from './run_view.js';

let room = null, timer = 0;
const marked = new Set();

const link = (name, text) => el('a', {href: `#runs/${part(name)}`}, text ?? name);

function row(run, redraw) {
  const box = el('input', {
    type: 'checkbox',
    checked: marked.has(run.name),
    'aria-label': `${t('compare')}: ${run.name}`,
    onchange: () => {
      box.checked ? marked.add(run.name) : marked.delete(run.name);
      redraw();
    },
  });
  const steps = run.steps ? `${number(run.step)} / ${number(run.steps)}` : number(run.step);
  return el(
      'tr', {}, el('td', {}, box),
      el('td.name', {}, link(run.name), el('span.muted.small', {}, ` ${run.command}`)),
      el('td', {}, stateBadge(run.state)), el('td.figure', {}, steps),
      el('td.figure', {}, `${figure(run.first_loss ?? NaN)} → ${figure(run.loss ?? NaN)}`),
      el('td', {}, run.weights), el('td.figure', {}, duration(run.seconds ?? NaN)),
      el('td', {}, when(run.started_utc)));
}

async function showList() {
  const {runs, folder} = await get('/api/runs');
  const mine = room;
  const redraw = () => {
    if (room !== mine || !mine) return;
    const two = marked.size === 2;
    mine.replaceChildren(
        el('div.page', {},
           el('div.row.between', {}, el('h1', {}, t('runs_title')),
              runs.length > 1 &&
                  el('div.row', {}, !two && el('span.muted.small', {}, t('compare_hint')),
                     el('button.primary', {
                       type: 'button',
                       id: 'compare',
                       disabled: !two,
                       onclick: () => {
                         location.hash = `#runs/${[...marked].map(part).join('/')}`;
                       }
                     },
                        t('compare')))),
           runs.length === 0 ?
               el('p.card.muted', {}, t('runs_empty', {folder})) :
               el('div.card.scroll', {},
                  el('table.runs', {},
                     el('thead', {},
                        el('tr', {}, el('th'), el('th', {}, t('run')), el('th'),
                           el('th.figure', {}, t('step')), el('th.figure', {}, t('loss')),
                           el('th', {}, t('weights')), el('th.figure', {}, t('took')),
                           el('th', {}, t('started')))),
                     el('tbody', {}, runs.map((r) => row(r, redraw)))))));
  };
  redraw();
}

async function openReport(name) {
  const path = `/api/runs/${part(name)}/report`;
  if (!hasKey()) return window.open(path, '_blank', 'noopener');
  saveFile(
      `${name}.html`, 'text/html',
      await (await request(path)).blob());  // a link could not bring the key
}

function notesOf(run) {
  const list = el('ul.notes', {});
  const fill = (notes) => list.replaceChildren(
      ...(notes.length ? notes.map(
                             (n) =>
                                 el('li', {}, el('span.muted.small', {}, when(n.time_utc)),
                                    el('p.plain', {}, n.text))) :
                         [el('li.muted', {}, t('no_notes'))]));
  fill(run.notes);
  const box = el(
      'textarea', {id: 'note', rows: 2, placeholder: t('note_hint'), 'aria-label': t('add_note')});
  const add = async () => {
    if (!box.value.trim()) return;
    try {
      fill((await post(`/api/runs/${part(run.run)}/notes`, {text: box.value})).notes);
      box.value = '';
    } catch (e) {
      say(e.message, true);
    }
  };
  return [
    list, box,
    el('div.row.end', {},
       el('button', {type: 'button', id: 'add-note', onclick: add}, t('add_note')))
  ];
}

function lineageOf(run) {
  const {origin, ancestors, children} = run.lineage;
  if (!origin && !ancestors.length && !children.length) return null;
  return el(
      'ol.lineage', {}, origin && el('li.muted', {}, origin),
      [...ancestors].reverse().map((a) => el('li', {}, link(a))),
      el('li.here', {}, `${run.run} (${t('this_run')})`),
      children.map((c) => el('li', {}, link(c))));
}

const filesOf = (run) => run.files?.length > 0 &&
    el('div.scroll', {},
       el('table', {},
          el('tbody', {},
             run.files.map(
                 (f) =>
                     el('tr', {}, el('td', {}, f.role), el('td.path', {}, f.path),
                        el('td.figure', {}, bytes(f.bytes)),
                        el('td', {},
                           el('code.small', {title: f.sha256 ?? ''},
                              (f.sha256 ?? '').slice(0, 12))))))));

async function showOne(name) {
  const [run, metrics] =
      await Promise.all([get(`/api/runs/${part(name)}`), get(`/api/runs/${part(name)}/metrics`)]);
  if (!room) return;
  const settings = Object.entries(run.config ?? {});
  room.replaceChildren(el(
      'div.page', {}, el('a.backlink', {href: '#runs'}, `← ${t('back')}`),
      el('div.row.between', {}, el('h1', {}, run.run, ' ', stateBadge(run.state)),
         el('button', {
           type: 'button',
           id: 'report',
           onclick: () => openReport(name).catch?.((e) => say(e.message, true))
         },
            t('report'))),
      run.message && el('p.card.error.plain', {}, run.message), runTiles(run),
      el('div.columns', {}, el('section.card', {}, lossChart(metrics)),
         el('section.card', {}, lineChart([metrics.speed], {title: t('speed_curve'), zero: true}),
            lineChart([metrics.lr], {title: t('lr_curve'), zero: true}))),
      sectionOf(t('scores'), scoreTable(run.gate_scores)),
      sectionOf(t('replies'), replyTable(run.replies)), sectionOf(t('notes'), ...notesOf(run)),
      sectionOf(t('lineage'), lineageOf(run)),
      sectionOf(
          t('warnings'),
          run.warnings?.length > 0 && el('ul', {}, run.warnings.map((w) => el('li.plain', {}, w)))),
      sectionOf(t('files'), filesOf(run)),
      el('details.card', {}, el('summary', {}, t('configuration')),
         el('dl.pairs', {},
            settings.flatMap(
                ([k, v]) =>
                    [el('dt', {}, k),
                     el('dd', {}, typeof v === 'string' ? v : JSON.stringify(v))])))));
  if (run.state === 'running') timer = setTimeout(() => show([name]), 3000);
}

/** {name: {run: value}} as a table. */
function comparedTable(rows, runs) {
  const names = Object.keys(rows);
  if (!names.length) return el('p.muted', {}, t('no_difference'));
  return el(
      'div.scroll', {},
      el('table', {},
         el('thead', {}, el('tr', {}, el('th'), runs.map((r) => el('th', {}, link(r))))),
         el('tbody', {},
            names.map(
                (name) =>
                    el('tr', {}, el('td', {}, name),
                       runs.map((r) => el('td.path', {}, rows[name][r])))))));
}

async function showTwo(a, b) {
  const c = await get(`/api/compare/${part(a)}/${part(b)}`);
  if (!room) return;
  room.replaceChildren(
      el('div.page', {}, el('a.backlink', {href: '#runs'}, `← ${t('back')}`),
         el('h1', {}, t('compare_title', {a, b})),
         el('section.card', {},
            lineChart(
                [{...c.losses[0], name: a}, {...c.losses[1], name: b, kind: 'second'}],
                {title: t('loss_curve'), zero: true, wide: true})),
         sectionOf(t('results'), comparedTable(c.results, c.runs)),
         sectionOf(t('differing_settings'), comparedTable(c.settings_that_differ, c.runs)),
         sectionOf(t('differing_files'), comparedTable(c.input_files_that_differ, c.runs))));
}

async function show(names) {
  clearTimeout(timer);
  try {
    if (names.length === 2)
      await showTwo(...names);
    else if (names.length === 1)
      await showOne(names[0]);
    else
      await showList();
  } catch (e) {
    room?.replaceChildren(
        el('div.page', {}, el('a.backlink', {href: '#runs'}, `← ${t('back')}`),
           el('p.card.error', {}, e.message)));
  }
}

export const runsTab = {
  enter(node, rest) {
    room = node;
    node.replaceChildren(el('p.page.muted', {}, t('loading')));
    return show(rest ? rest.split('/') : []);
  },
  leave() {
    clearTimeout(timer);
    room = null;
  },
};
