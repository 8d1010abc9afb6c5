// SPDX-License-Identifier: MIT
// The shell of the page: tabs by the address's hash, language, light and dark.
import {chatTab} from './chat.js';
import {button, el, icon} from './dom.js';
import {currentLanguage, onLanguage, setLanguage, t} from './i18n.js';
import {modelTab} from './model.js';
import {runsTab} from './runs.js';
import {teachTab} from './teach.js';

const TABS = [
  {id: 'chat', tab: chatTab},
  {id: 'teach', tab: teachTab},
  {id: 'runs', tab: runsTab},
  {id: 'model', tab: modelTab},
];
const THEMES = ['auto', 'light', 'dark'];
const THEME_KEY = 'nibble.theme';
const THEME_ICONS = {
  auto: 'auto',
  light: 'sun',
  dark: 'moon'
};

let shown = null;

function theme() {
  const kept = localStorage.getItem(THEME_KEY);
  return THEMES.includes(kept) ? kept : 'auto';
}
function applyTheme() {
  if (theme() === 'auto')
    delete document.documentElement.dataset.theme;
  else
    document.documentElement.dataset.theme = theme();
}
function nextTheme() {
  localStorage.setItem(THEME_KEY, THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  applyTheme();
  draw();
}

/** "#runs/NAME" as its tab and the rest. */
function place() {
  const [id, ...rest] = location.hash.slice(1).split('/');
  const known = TABS.find((entry) => entry.id === id) ?? TABS[0];
  return {entry: known, rest: rest.map(decodeURIComponent).join('/')};
}

function draw() {
  const {entry, rest} = place();
  shown?.tab.leave?.();
  shown = entry;
  const links = TABS.map(
      ({id}) =>
          el('a', {
            href: `#${id}`,
            className: id === entry.id ? 'tab here' : 'tab',
            'aria-current': id === entry.id ? 'page' : null,
          },
             icon(id), el('span', {}, t(`tab_${id}`))));
  const main = el('main', {id: 'main', className: `room-${entry.id}`});
  document.getElementById('app').replaceChildren(
      el('header.top', {},
         el('a.brand', {href: '#chat'},
            el('img', {src: '/page/icon.svg', alt: '', width: 26, height: 26}), 'nibble'),
         el('nav.tabs', {}, links),
         el('div.row.tools', {},
            button(
                THEME_ICONS[theme()], t('theme', {mode: t(`theme_${theme()}`)}), nextTheme,
                {id: 'theme'}),
            el('button.quiet.language', {
              type: 'button',
              id: 'language',
              title: t('language_switch'),
              onclick: () => setLanguage(currentLanguage() === 'en' ? 'zh' : 'en'),
            },
               t('language')))),
      main);
  document.title = `${t(`tab_${entry.id}`)} · nibble`;
  entry.tab.enter(main, rest);
}

applyTheme();
onLanguage(draw);
addEventListener('hashchange', draw);
draw();
