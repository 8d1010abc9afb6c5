// SPDX-License-Identifier: MIT
// Line charts and bars as SVG nodes.
import {el, svg} from './dom.js';
import {figure, number} from './i18n.js';

const H = 220, LEFT = 46, RIGHT = 10, TOP = 12, BOTTOM = 26;
const NARROW = 560, WIDE = 1040, PHONE = 360;

function ticks(low, high, wanted) {
  const span = high - low || Math.abs(high) || 1, raw = span / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step)
    out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}

// With as many digits as tell one tick from the next.
function label(y, step) {
  return Math.abs(y) >= 1e5 || step < 1e-4 ?
      figure(y) :
      number(y, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
}

/**
 * Lines over steps: [{name, x, y, kind}]; kind: strong, faint, second. Points that are not numbers
 *  break a line. `wide`: it has a row for itself.
 */
export function lineChart(series, {title, zero = false, wide = false} = {}) {
  const W = innerWidth < 720 ? PHONE : wide ? WIDE : NARROW;
  const lines = series.filter((s) => s?.x?.length);
  const xs = lines.flatMap((s) => s.x), ys = lines.flatMap((s) => s.y).filter(Number.isFinite);
  if (!ys.length) return el('div.chart.nothing', {}, '–');
  const x0 = Math.min(...xs), x1 = Math.max(...xs, x0 + 1);
  let y0 = Math.min(...ys), y1 = Math.max(...ys);
  if (zero) y0 = Math.min(0, y0);
  if (y1 === y0) {
    y1 += Math.abs(y1) || 1;
    y0 -= zero ? 0 : Math.abs(y0) || 1;
  }
  const px = (x) => LEFT + (x - x0) / (x1 - x0) * (W - LEFT - RIGHT);
  const py = (y) => H - BOTTOM - (y - y0) / (y1 - y0) * (H - TOP - BOTTOM);
  const node = svg(
      'svg', {viewBox: `0 0 ${W} ${H}`, class: 'chart', role: 'img', 'aria-label': title ?? ''});
  const yTicks = ticks(y0, y1, 4);
  for (const y of yTicks) {
    node.append(
        svg('line', {class: 'grid', x1: LEFT, x2: W - RIGHT, y1: py(y), y2: py(y)}),
        svg('text', {x: LEFT - 8, y: py(y) + 4, 'text-anchor': 'end'},
            label(y, yTicks.length > 1 ? yTicks[1] - yTicks[0] : 1)));
  }
  for (const x of ticks(x0, x1, W / 110)) {
    if (x === Math.round(x))
      node.append(svg('text', {x: px(x), y: H - 8, 'text-anchor': 'middle'}, String(x)));
  }
  for (const s of lines) {
    let d = '', pen = 'M';
    s.x.forEach((x, i) => {
      if (!Number.isFinite(s.y[i])) {
        pen = 'M';
        return;
      }
      d += `${pen}${px(x).toFixed(1)} ${py(s.y[i]).toFixed(1)}`;
      pen = 'L';
    });
    node.append(svg('path', {d, class: `line ${s.kind ?? 'strong'}`}));
    const end = s.x.length - 1;
    if (s.kind !== 'faint' && Number.isFinite(s.y[end])) {
      node.append(
          svg('circle',
              {cx: px(s.x[end]), cy: py(s.y[end]), r: 3.5, class: `dot ${s.kind ?? 'strong'}`}));
    }
  }
  const named = lines.filter((s) => s.name);
  return el(
      'figure.plot', {},
      title &&
          el('figcaption', {}, title,
             named.length > 1 &&
                 el('span.legend', {},
                    named.map((s) => el(`span.key.${s.kind ?? 'strong'}`, {}, s.name)))),
      node);
}

/** A share of a whole. */
export function bar(share) {
  const fill = el('i');
  fill.style.width = `${100 * Math.max(0, Math.min(1, share || 0))}%`;
  return el('span.bar', {'aria-hidden': 'true'}, fill);
}

/** A share with its name before it and a text below. */
export const barRow = (name, share, text) =>
    el('div.barrow', {}, el('span', {}, name), bar(share), el('span.figure', {}, text));
