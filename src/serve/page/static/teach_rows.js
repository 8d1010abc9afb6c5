// SPDX-License-Identifier: MIT
// Rows of a lesson: typed, pasted from a spreadsheet, dropped as a file.
import {post} from './api.js';
import {button, el, icon, say} from './dom.js';
import {currentLanguage, number, t} from './i18n.js';
import {draft, filledRows} from './teach_draft.js';
import {exampleRows} from './words_teach.js';

const GROWS = CSS.supports('field-sizing', 'content');  // text boxes are as high as their text

async function addFile(name, text, changed) {
  try {
    const {rows, problems} = await post('/api/lessons/rows', {name, text});
    draft.rows = [...draft.rows.filter((r) => r.question || r.answer || r.line), ...rows];
    changed(true);
    if (problems.length)
      say(t('rows_problems', {n: problems.length, first: problems[0]}), true);
    else
      say(t('rows_read', {n: rows.length, name}));
  } catch (e) {
    say(e.message, true);
  }
}

/** Text with a tab is rows of a spreadsheet. */
const pasted = (changed) => (e) => {
  const text = e.clipboardData?.getData('text/plain') ?? '';
  if (!text.includes('\t')) return;
  e.preventDefault();
  addFile('paste.tsv', text, changed);
};

function rowNode(row, changed) {
  const remove = button('close', t('remove'), () => {
    draft.rows.splice(draft.rows.indexOf(row), 1);
    changed(true);
  });
  if (row.line) {
    return el(
        'div.pair.whole', {}, el('p.plain', {}, row.question),
        el('p.plain', {}, row.answer, el('span.muted.small', {}, ` · ${t('conversation_row')}`)),
        remove);
  }
  const box = (field, hint) => {
    const area = el('textarea', {
      rows: 1,
      value: row[field],
      placeholder: t(hint),
      'aria-label': t(field),
      onpaste: pasted(changed),
      oninput: () => {
        row[field] = area.value;
        fit();
        changed(false);
      }
    });
    const fit = () => {
      if (GROWS) return;
      area.style.height = 'auto';
      area.style.height = `${Math.min(area.scrollHeight + 2, 180)}px`;
    };
    setTimeout(fit);
    return area;
  };
  return el('div.pair', {}, box('question', 'question_hint'), box('answer', 'answer_hint'), remove);
}

/** `changed(redraw)` is told of every change; `redraw`: rows came or went, not only their words. */
export function rowsSection(changed) {
  const take = (files) => {
    for (const file of files) file.text().then((text) => addFile(file.name, text, changed));
  };
  const drop = (e) => {
    e.preventDefault();
    section.classList.remove('over');
    take(e.dataTransfer.files);
  };
  const picker = el('input', {
    type: 'file',
    accept: '.tsv,.jsonl,.json,.csv,.txt',
    hidden: true,
    multiple: true,
    onchange: () => take(picker.files),
  });
  const section =
      el('section.card.rows', {
        ondragover: (e) => {
          e.preventDefault();
          section.classList.add('over');
        },
        ondragleave: () => section.classList.remove('over'),
        ondrop: drop,
      },
         el('div.row.between', {},
            el('h2', {}, t('rows'), ' ',
               el('span.muted.small', {id: 'row-count'},
                  t('rows_count', {n: number(filledRows().length)}))),
            el('div.row', {},
               el('button', {
                 type: 'button',
                 id: 'example',
                 onclick: () => {
                   draft.rows = exampleRows[currentLanguage()].map(
                       ([question, answer]) => ({question, answer}));
                   changed(true);
                 }
               },
                  t('example')),
               draft.rows.length > 1 &&
                   el('button', {
                     type: 'button',
                     onclick: () => {
                       draft.rows = [];
                       changed(true);
                     }
                   },
                      t('clear_rows')))),
         el('div.pair.heads', {}, el('span', {}, t('question')), el('span', {}, t('answer')),
            el('span')),
         draft.rows.map((row) => rowNode(row, changed)),
         el('div.row.between', {},
            el('button',
               {
                 type: 'button',
                 id: 'add-row',
                 onclick: () => {
                   draft.rows.push({question: '', answer: ''});
                   changed(true);
                   [...document.querySelectorAll('.pair:not(.whole) textarea:first-child')]
                       .pop()
                       ?.focus();
                 }
               },
               icon('plus'), t('add_row')),
            el('span.muted.small', {}, t('drop_hint'), ' ',
               el('button.link', {type: 'button', onclick: () => picker.click()}, t('choose_file')),
               picker)));
  return section;
}
