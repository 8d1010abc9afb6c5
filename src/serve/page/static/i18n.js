// SPDX-License-Identifier: MIT
// The page's two languages. Every text of it is in the table of words.js.
import {words} from './words.js';

const KEY = 'nibble.language';
const LANGUAGES = ['en', 'zh'];

function first() {
  const kept = localStorage.getItem(KEY);
  if (LANGUAGES.includes(kept)) return kept;
  return navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en';
}

let language = first();
const listeners = [];

export const currentLanguage = () => language;
export const onLanguage = (f) => listeners.push(f);
export function setLanguage(l) {
  language = l;
  localStorage.setItem(KEY, l);
  apply();
  for (const f of listeners) f();
}
function apply() { document.documentElement.lang = language === 'zh' ? 'zh-Hant' : 'en'; }
apply();

/** The text of a key, with {name} replaced by values.name. */
export function t(key, values = {}) {
  const entry = words[key];
  if (!entry) return key;
  return entry[LANGUAGES.indexOf(language)].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
}

const locale = () => (language === 'zh' ? 'zh-Hant' : 'en');
export const number = (n, digits = 0) => (
    Number.isFinite(n) ?
        n.toLocaleString(locale(), {maximumFractionDigits: digits, minimumFractionDigits: digits}) :
        '–');
export const percent = (x, digits = 0) =>
    (Number.isFinite(x) ? `${number(100 * x, digits)}\u00a0%` : '–');

/** Tokens a second: slow ones with a digit more. */
export const speedText = (x) => number(x, x < 10 ? 1 : 0);

/** A number of any size with about four digits. */
export function figure(x) {
  if (!Number.isFinite(x)) return '–';
  const a = Math.abs(x);
  if (a !== 0 && (a < 1e-3 || a >= 1e6)) return x.toExponential(2);
  return number(x, a >= 100 ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : 4);
}

export function bytes(n) {
  if (!Number.isFinite(n)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let u = 0;
  while (n >= 1024 && u < units.length - 1) {
    n /= 1024;
    ++u;
  }
  return `${number(n, u > 0 && n < 100 ? 1 : 0)} ${units[u]}`;
}

export function duration(s) {
  if (!Number.isFinite(s) || s < 0) return '–';
  if (s < 1) return t('milliseconds', {n: number(s * 1000)});
  if (s < 60) return t('seconds', {n: number(s, s < 10 ? 1 : 0)});
  const m = Math.floor(s / 60), h = Math.floor(m / 60);
  const two = (n) => String(n).padStart(2, '0');
  return h > 0 ? `${h}:${two(m % 60)}:${two(Math.floor(s % 60))}` :
                 `${m}:${two(Math.floor(s % 60))}`;
}

export function when(utc) {
  const d = new Date(utc);
  return Number.isNaN(d.getTime()) ?
      '–' :
      d.toLocaleString(
          locale(), {month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit'});
}
