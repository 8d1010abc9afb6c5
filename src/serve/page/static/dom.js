// SPDX-License-Identifier: MIT
// Elements without markup: texts become text nodes, whatever they hold. Nothing here, nor in any
// other module, writes HTML.

/** el('button.primary', {onclick: f, title: 'x'}, 'text', child, ...) */
export function el(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split('.');
  const node = document.createElement(tag || 'div');
  if (classes.length) node.className = classes.join(' ');
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on'))
      node.addEventListener(name.slice(2), value);
    else if (name in node && name !== 'list' && name !== 'form')
      node[name] = value;
    else
      node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false));
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const ICONS = {
  chat: 'M4 5h16v11H9l-5 4z',
  teach: 'M2 9l10-5 10 5-10 5zM6 11.5V17c3 3 9 3 12 0v-5.5',
  runs: 'M3 20h18M5 16l4-5 4 3 6-8',
  model: 'M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9',
  plus: 'M12 5v14M5 12h14',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  edit: 'M4 20h4L19 9l-4-4L4 16z',
  again: 'M20 11a8 8 0 1 0-2 6M20 5v6h-6',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  settings: 'M4 7h9M17 7h3M4 17h3M11 17h9M13 4.5v5M9 14.5v5',
  down: 'M12 4v12M6 11l6 6 6-6M5 20h14',
  menu: 'M4 7h16M4 12h16M4 17h16',
  close: 'M6 6l12 12M18 6L6 18',
  sun:
      'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5M17.5 6.5L19 5',
  moon: 'M20 14A8.5 8.5 0 0 1 10 4a8.5 8.5 0 1 0 10 10z',
  auto: 'M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18',
  tokens: 'M3 8h6v8H3zM11 8h4v8h-4zM17 8h4v8h-4z',
  check: 'M5 13l4 4L19 7',
  play: 'M8 5l11 7-11 7z',
  keep: 'M6 3h12v18l-6-4-6 4z',
};
const SOLID = ['stop', 'play'];
export function icon(name) {
  return svg(
      'svg', {
        viewBox: '0 0 24 24',
        class: SOLID.includes(name) ? 'icon solid' : 'icon',
        'aria-hidden': 'true'
      },
      svg('path', {d: ICONS[name]}));
}

export function button(name, label, onclick, extra = {}) {
  return el(
      'button.quiet', {type: 'button', title: label, 'aria-label': label, onclick, ...extra},
      icon(name));
}

/** A file for the person's own disk. */
export function saveFile(name, type, text) {
  const url = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], {type}));
  const link = el('a', {href: url, download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

let toastTimer = 0;
/** A word at the edge of the page; `bad`: something went wrong. */
export function say(text, bad = false) {
  document.querySelector('.toast')?.remove();
  const node = el(bad ? 'div.toast.bad' : 'div.toast', {role: bad ? 'alert' : 'status'}, text);
  document.body.append(node);
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => node.remove(), bad ? 9000 : 4000);
}

/** A question in a dialog of the page: the text that was typed, true, or null. */
export function ask({title, text = '', value, password = false, yes, no, danger = false}) {
  return new Promise((resolve) => {
    const input = value === undefined ?
        null :
        el('input', {type: password ? 'password' : 'text', value, autocomplete: 'off'});
    const end = (answer) => dialog.close(answer);
    const dialog =
        el('dialog.ask', {}, el('h2', {}, title), text && el('p.muted', {}, text), input,
           el('div.row.end', {}, el('button', {type: 'button', onclick: () => end('no')}, no),
              el(danger ? 'button.danger' : 'button.primary',
                 {type: 'button', onclick: () => end('yes')}, yes)));
    input?.addEventListener('keydown', (e) => {
      if (e.key === 'Enter') end('yes');
    });
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue !== 'yes' ? null : input ? input.value : true);
    });
    document.body.append(dialog);
    dialog.showModal();
    input?.select();
  });
}
