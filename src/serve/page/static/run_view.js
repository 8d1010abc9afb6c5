// SPDX-License-Identifier: MIT
// Parts that show a run, here and in Teach: state, curves, figures, replies.
import {lineChart} from './chart.js';
import {el} from './dom.js';
import {duration, figure, number, t} from './i18n.js';

export const stateBadge = (state) => el(`span.badge.${state}`, {}, t(`state_${state}`));

export const tile = (name, value, extra = '') =>
    el('div.tile', {}, el('span.muted', {}, name), el('strong', {}, value),
       extra && el('span.small.muted', {}, extra));

export function lossChart(metrics, wide = false) {
  const parts = metrics.taught && metrics.kept;
  return lineChart(
      [
        metrics.loss && {...metrics.loss, kind: 'faint'},
        metrics.smoothed && {...metrics.smoothed, name: t('smoothed')},
        parts && {...metrics.taught, name: t('taught'), kind: 'second'},
        parts && {...metrics.kept, name: t('kept'), kind: 'third'},
        metrics.held_out && {...metrics.held_out, name: t('held_out'), kind: 'second'},
      ].filter(Boolean),
      {title: t('loss_curve'), zero: true, wide});
}

export const runTiles = (run) =>
    el('div.tiles', {},
       tile(
           t('step'), `${number(run.metrics?.step)}`,
           run.metrics?.steps_planned ? `/ ${number(run.metrics.steps_planned)}` : ''),
       tile(t('first_loss'), figure(run.metrics?.first_loss ?? NaN)),
       tile(t('last_loss'), figure(run.metrics?.smoothed_loss ?? run.metrics?.loss ?? NaN)),
       tile(t('took'), duration(run.metrics?.seconds ?? NaN)),
       tile(t('device_of_run'), run.device ?? '–'));

/** Scores of the first and the last gate, group by group. */
export function scoreTable(gates) {
  if (!gates?.length) return null;
  const first = gates[0], last = gates[gates.length - 1];
  const cell = (s) => el('td.figure', {}, s ? `${s.passed} / ${s.total}` : '–');
  return el(
      'table', {},
      el('thead', {},
         el('tr', {}, el('th', {}, t('group')),
            el('th.figure', {}, `${t('before')} · ${t('at_step', {n: first.step})}`),
            el('th.figure', {}, `${t('after')} · ${t('at_step', {n: last.step})}`))),
      el('tbody', {},
         Object.keys(last.scores)
             .map(
                 (group) =>
                     el('tr', {}, el('td', {}, group), cell(first.scores[group]),
                        cell(last.scores[group])))));
}

/** What was replied at the first and at the last gate. */
export function replyTable(replies) {
  if (!replies?.length) return null;
  const cell = (r) =>
      el('td.plain', {},
         el(r.passed ? 'span.mark.good' : 'span.mark.bad', {'aria-hidden': 'true'},
            r.passed ? '✓' : '✗'),
         ` ${r.reply}`);
  return el(
      'div.scroll', {},
      el('table.replies', {},
         el('thead', {},
            el('tr', {}, el('th', {}, t('question')), el('th', {}, t('before')),
               el('th', {}, t('after')))),
         el('tbody', {},
            replies.map(
                (r) => el('tr', {}, el('td.plain', {}, r.prompt), cell(r.first), cell(r.last))))));
}

export const sectionOf = (title, ...content) => {
  const some = content.filter(Boolean);
  return some.length ? el('section.card', {}, el('h2', {}, title), some) : null;
};
