// SPDX-License-Identifier: MIT
// The tab Model: shape, memory, speed now, and what quantisation cost, layer by layer.
import {get, part} from './api.js';
import {bar, barRow} from './chart.js';
import {el, say} from './dom.js';
import {bytes, duration, figure, number, percent, speedText, t} from './i18n.js';
import {sectionOf, tile} from './run_view.js';

const POLL_MS = 1000;
let room = null, timer = 0, chosen = '', filter = '';
let last = null;            // of the poll before, for speeds
const tensors = new Map();  // by model

// A name may have been another model's before.
const keyOf = (model) => `${model.name} ${model.created}`;

const pairs = (list) =>
    el('dl.pairs', {}, list.flatMap(([k, v]) => [el('dt', {}, k), el('dd', {}, v)]));

function speed(model) {
  const now = model.now, time = performance.now();
  const before = last?.name === model.name ? last : null;
  last = {name: model.name, time, tokens: now.chosen_tokens + now.prompt_tokens};
  const rate = before ? (last.tokens - before.tokens) / ((time - before.time) / 1000) : 0;
  const busy = now.decoding + now.feeding > 0 || rate > 0;
  return el(
      'div.tiles', {id: 'speed'},
      tile(
          t('speed_now'), busy ? `${speedText(rate)} ${t('tokens_a_second')}` : t('idle'),
          t('served', {n: number(now.requests), tokens: number(now.chosen_tokens)})),
      tile(t('first_token'), duration(now.requests ? now.first_token_seconds / now.requests : NaN)),
      tile(
          t('reused'),
          percent(now.reused_tokens / Math.max(1, now.reused_tokens + now.prompt_tokens))));
}

function memory(model, machine) {
  const all = machine.total_bytes || 1,
        most = Math.max(model.weights_bytes, model.cache_bytes, machine.resident_bytes);
  return el(
      'div', {id: 'memory'},
      barRow(t('weights'), model.weights_bytes / most, bytes(model.weights_bytes)),
      barRow(
          t('cache'), model.cache_bytes / most, `${bytes(model.cache_bytes)} · ${t('cache_used', {
            n: number(model.now.cached_tokens),
            all: number(model.cache_tokens)
          })}`),
      barRow(t('process'), machine.resident_bytes / most, bytes(machine.resident_bytes)),
      barRow(
          t('machine'), 1 - machine.available_bytes / all,
          `${bytes(machine.total_bytes)} · ${bytes(machine.available_bytes)} ${t('free_memory')}`));
}

const architecture = ({config: c, ...m}) => pairs([
  [t('parameters'), number(c.parameters)],
  [t('layers'), number(c.layers)],
  [t('hidden_size'), number(c.hidden_size)],
  [t('heads'), `${c.query_heads} / ${c.key_value_heads}`],
  [t('head_size'), number(c.head_size)],
  [t('feed_forward'), number(c.feed_forward)],
  [t('vocabulary'), number(c.vocabulary)],
  [t('positions'), number(c.positions)],
  [t('tied_head'), c.tied_head ? t('tied_yes') : t('tied_no')],
  [t('device'), `${m.device}, ${m.compute}`],
  [t('context'), number(m.context)],
  [t('streams'), number(m.streams)],
]);

const layerOf = (name) => Number(/\blayers\.(\d+)\./.exec(name)?.[1] ?? NaN);
const kindOf = (name) => name.replace(/^.*\blayers\.\d+\./, '').replace(/\.weight$/, '');

/** A matrix of small bars: a row for each layer, a column for each of its matrices. */
function errorTable(list) {
  const packed = list.filter((x) => x.error !== undefined);
  if (!packed.length) return el('p.muted', {}, t('quantisation_none'));
  const inLayers = packed.filter((x) => !Number.isNaN(layerOf(x.name)));
  const kinds = [...new Set(inLayers.map((x) => kindOf(x.name)))];
  const most = Math.max(...packed.map((x) => x.error));
  const cell = (x) =>
      el('td', {},
         x &&
             el('div.errorcell',
                {title: `${x.name}: ${percent(x.error, 2)} (${t(`error_${x.error_basis}`)})`},
                bar(x.error / most), el('span.figure', {}, percent(x.error, 1))));
  const layers = [...new Set(inLayers.map((x) => layerOf(x.name)))].sort((a, b) => a - b);
  const rest = packed.filter((x) => Number.isNaN(layerOf(x.name)));
  return el(
      'div.scroll', {},
      el('table.errors', {},
         el('thead', {},
            el('tr', {}, el('th', {}, t('layers')),
               kinds.map((k) => el('th', {}, k.split('.').pop())))),
         el('tbody', {},
            layers.map(
                (l) => el(
                    'tr', {}, el('th', {}, String(l)),
                    kinds.map(
                        (k) => cell(
                            inLayers.find((x) => layerOf(x.name) === l && kindOf(x.name) === k))))),
            rest.map((x) => el('tr', {}, el('th', {}, x.name.split('.').slice(-2)[0]), cell(x))))));
}

function tensorTable(list) {
  const body = el('tbody');
  const fill = () => body.replaceChildren(
      ...list.filter((x) => x.name.includes(filter))
          .map(
              (x) =>
                  el('tr', {}, el('td', {}, el('code', {}, x.name)), el('td', {}, x.stored),
                     el('td.figure', {}, x.shape.join(' × ')), el('td.figure', {}, bytes(x.bytes)),
                     el('td.figure', {}, figure(x.rms ?? NaN)),
                     el('td.figure', {},
                        x.error === undefined ?
                            '–' :
                            `${x.error_basis === 'estimate' ? '~ ' : ''}${percent(x.error, 2)}`))));
  fill();
  const input = el('input', {
    type: 'search',
    id: 'filter',
    value: filter,
    placeholder: t('tensors_filter'),
    oninput: () => {
      filter = input.value;
      fill();
    }
  });
  return [
    input,
    el('div.scroll.tall', {},
       el('table', {},
          el('thead', {},
             el('tr', {}, el('th', {}, t('tensor_name')), el('th', {}, t('tensor_stored')),
                el('th.figure', {}, t('tensor_shape')), el('th.figure', {}, t('tensor_bytes')),
                el('th.figure', {}, t('tensor_rms')), el('th.figure', {}, t('tensor_error')))),
          body))
  ];
}

function fileSections(model) {
  const found = tensors.get(keyOf(model));
  if (!found) {
    const start =
        el('button.primary', {
          type: 'button',
          id: 'read-tensors',
          onclick: () => {
            start.disabled = true;
            start.textContent = t('loading');
            readTensors(model);
          }
        },
           t('read_tensors'));
    return [sectionOf(t('quantisation'), el('p.muted', {}, t('read_tensors_text')), start)];
  }
  return [
    sectionOf(
        t('quantisation'), el('p.muted', {}, t('quantisation_text')), errorTable(found.tensors)),
    sectionOf(
        `${t('tensors')} · ${found.tensors.length} · ${bytes(found.stored_bytes)} · ${
            t(found.damaged ? 'damaged' : 'sound')}`,
        found.problems.length > 0 && el('ul', {}, found.problems.map((p) => el('li.error', {}, p))),
        ...tensorTable(found.tensors)),
  ];
}

const SMALL = 2e8;        // parameters; such a file is read without being asked
const asked = new Set();  // once
async function readTensors(model) {
  asked.add(keyOf(model));
  try {
    tensors.set(keyOf(model), await get(`/api/model/${part(model.name)}/tensors`));
  } catch (e) {
    say(e.message, true);
  }
  if (room) draw(await get('/api/model'));
}

function draw(answer) {
  const model = answer.models.find((m) => m.name === chosen) ?? answer.models[0];
  chosen = model.name;
  room.replaceChildren(
      el('div.page', {},
         el('div.row.between', {},
            el('h1', {}, model.name, ' ',
               el('span.muted.small', {}, `${number(model.config.parameters / 1e6, 1)} M`)),
            answer.models.length > 1 &&
                el('div.segments', {},
                   answer.models.map(
                       (m) =>
                           el('button', {
                             type: 'button',
                             className: m.name === chosen ? 'on' : '',
                             onclick: () => {
                               chosen = m.name;
                               draw(answer);
                             },
                           },
                              m.name)))),
         el('p.muted.path', {}, `${model.file} · ${model.held}`), speed(model),
         el('div.columns', {}, sectionOf(t('architecture'), architecture(model)),
            sectionOf(t('memory'), memory(model, answer.machine))),
         ...fileSections(model), el('p.muted.small', {}, answer.machine.version)));
  if (!asked.has(keyOf(model)) && model.config.parameters < SMALL) readTensors(model);
}

async function poll() {
  try {
    const answer = await get('/api/model');
    const model = answer.models.find((m) => m.name === chosen);
    if (!room) return;
    if (!model)
      draw(answer);
    else {
      room.querySelector('#speed')?.replaceWith(speed(model));
      room.querySelector('#memory')?.replaceWith(memory(model, answer.machine));
    }
  } catch { /* the next one may be answered */
  }
  if (room) timer = setTimeout(poll, POLL_MS);
}

export const modelTab = {
  async enter(node) {
    room = node;
    node.replaceChildren(el('p.page.muted', {}, t('loading')));
    try {
      const answer = await get('/api/model');
      if (room !== node) return;
      draw(answer);
      timer = setTimeout(poll, POLL_MS);
    } catch (e) {
      node.replaceChildren(el('p.page.error', {}, e.message));
    }
  },
  leave() {
    clearTimeout(timer);
    room = null;
  },
};
