// SPDX-License-Identifier: MIT
// A lesson while it goes on, or after it ended without a model: how far it is, losses, what the
// weights of the moment say.
import {get, part, post} from './api.js';
import {el, icon, say} from './dom.js';
import {bytes, duration, figure, number, speedText, t} from './i18n.js';
import {lossChart, stateBadge, tile} from './run_view.js';
import {throwAway} from './teach_after.js';

const POLL_MS = 700;

function tiles(now) {
  return el(
      'div.tiles', {}, tile(t('step'), number(now.step), `/ ${number(now.steps)}`),
      tile(
          t('loss'), figure(now.taught_loss ?? now.smoothed_loss ?? NaN),
          now.kept_loss === null ? '' : `${t('kept')} ${figure(now.kept_loss)}`),
      tile(t('rate'), figure(now.lr ?? NaN)),
      tile(t('speed_now'), speedText(now.tokens_per_second), t('tokens_a_second')),
      tile(t('training_memory'), bytes(now.rss_bytes)),
      tile(t('time_left'), duration(now.eta_seconds ?? NaN)));
}

function replies(status) {
  const taught = (status.scores?.replies ?? []).filter((r) => r.group === 'taught');
  if (!taught.length) return el('p.muted', {}, t('no_replies_yet'));
  const wanted = new Map(status.lesson.rows.map((r) => [r.question, r.answer]));
  const step = Math.max(...taught.map((r) => r.last.step));
  return el(
      'div.scroll', {},
      el('table.replies', {},
         el('thead', {},
            el('tr', {}, el('th', {}, t('question')), el('th', {}, t('wanted')),
               el('th', {}, t('says_now', {n: step})))),
         el('tbody', {},
            taught.map(
                (r) =>
                    el('tr', {}, el('td.plain', {}, r.prompt),
                       el('td.plain.muted', {}, wanted.get(r.prompt) ?? ''),
                       el('td.plain', {},
                          el(r.last.passed ? 'span.mark.good' : 'span.mark.bad', {},
                             r.last.passed ? '✓ ' : '· '),
                          r.last.reply))))));
}

/** What takes its time before the first step, in words. */
function before(status) {
  const p = status.preparing;
  if (p)
    return t(`preparing_${p.what}`, {percent: number(p.percent), left: duration(p.seconds_left)});
  return status.now?.step === 0 ? t('first_look') : '';
}

function title(status) {
  if (status.goes_on) return t('learning', {model: status.name});
  return t(['interrupted', 'gone'].includes(status.state) ? 'stopped_title' : 'failed_title');
}

function controls(status, {redraw, again}) {
  const act = (path) => async (e) => {
    e.currentTarget.disabled = true;
    try {
      await post(`/api/lessons/${part(status.name)}/${path}`);
      if (path === 'stop') say(t('stopping'));
    } catch (error) {
      say(error.message, true);
    }
    redraw();
  };
  if (status.goes_on)
    return el(
        'div.row', {},
        el('button.danger', {type: 'button', id: 'stop-training', onclick: act('stop')},
           icon('stop'), t('stop_training')));
  return el(
      'div.row', {},
      el('button.primary', {type: 'button', id: 'resume', onclick: act('resume')}, icon('play'),
         t('resume')),
      el('button', {type: 'button', onclick: () => again(status.lesson)}, t('same_again')),
      el('button.danger', {type: 'button', onclick: () => throwAway(status)}, t('throw_away')));
}

/** Draws and goes on drawing; returns what ends that. */
export function showLive(room, first, tools) {
  let timer = 0, gone = false;
  const chart = el('section.card', {}), figures = el('div', {}), said = el('div', {}),
        bar = el('progress', {max: 1, value: 0}), badge = el('span', {}),
        doing = el('p.muted', {id: 'doing'});
  const fill = (status, metrics) => {
    badge.replaceChildren(
        status.state === 'starting' ? el('span.badge.running', {}, t('starting')) :
                                      stateBadge(status.state));
    doing.textContent = first.goes_on ? before(status) : '';
    if (status.now) {
      bar.value = status.now.steps ? status.now.step / status.now.steps : 0;
      figures.replaceChildren(tiles(status.now));
    }
    if (metrics) chart.replaceChildren(lossChart(metrics, true));
    said.replaceChildren(replies(status));
  };
  const poll = async () => {
    try {
      const status = await get(`/api/lessons/${part(first.name)}`);
      if (gone) return;
      if (!status.goes_on) return tools.redraw();
      fill(status, status.run ? await get(`/api/runs/${part(status.run)}/metrics`) : null);
    } catch { /* the next one may be answered; the training does not need us */
    }
    if (!gone) timer = setTimeout(poll, POLL_MS);
  };
  room.replaceChildren(
      el('div.page.teach', {},
         el('a.backlink', {href: '#teach'}, !first.goes_on && `← ${t('new_lesson')}`),
         el('div.row.between', {}, el('h1', {}, title(first), ' ', badge), controls(first, tools)),
         first.message && el('p.card.error.plain', {}, first.message), first.goes_on && bar,
         first.goes_on && doing, figures, chart,
         el('section.card', {}, el('h2', {}, t('replies_now')), said),
         first.run && !first.goes_on && el('a', {href: `#runs/${part(first.run)}`}, t('details'))));
  fill(first, null);
  if (first.goes_on)
    poll();
  else if (first.run)
    get(`/api/runs/${part(first.run)}/metrics`).then((m) => {
      if (!gone) chart.replaceChildren(lossChart(m, true));
    }, () => {/* a run that never began has none */});
  return () => {
    gone = true;
    clearTimeout(timer);
  };
}
