// SPDX-License-Identifier: MIT
// What a conversation is asked with: system message and sampling. What is left empty is the model's
// own default, which the field shows.
import {el} from './dom.js';
import {t} from './i18n.js';

// Name, least, most, step.
const FIELDS = [
  ['temperature', 0, 2, 0.05],
  ['top_p', 0, 1, 0.01],
  ['top_k', 0, 1000, 1],
  ['min_p', 0, 1, 0.01],
  ['repetition_penalty', 0.5, 2, 0.01],
  ['max_tokens', 1, 100000, 1],
  ['seed', 0, 2147483647, 1],
];

/** The fields of a request that the settings ask for. */
export function sampling(settings) {
  const body = {};
  for (const [name] of FIELDS)
    if (Number.isFinite(settings[name])) body[name] = settings[name];
  return body;
}

export function settingsPanel(settings, models, changed) {
  const model = models.find((m) => m.name === settings.model) ?? models[0];
  const field = ([name, min, max, step]) => {
    const input = el('input', {
      type: 'number',
      id: `set-${name}`,
      min,
      max,
      step,
      value: settings[name] ?? '',
      placeholder: model?.sampling?.[name] ?? t('default_value'),
      oninput: () => {
        const value = input.valueAsNumber;
        if (Number.isFinite(value) && input.checkValidity())
          settings[name] = value;
        else
          delete settings[name];
        changed();
      },
    });
    return el('label.field', {htmlFor: `set-${name}`}, el('span', {}, t(name)), input);
  };
  const system = el('textarea', {
    id: 'set-system',
    rows: 3,
    value: settings.system ?? '',
    placeholder: t('system_hint'),
    oninput: () => {
      if (system.value.trim())
        settings.system = system.value;
      else
        delete settings.system;
      changed();
    },
  });
  return el(
      'section.card.settings', {},
      models.length > 1 &&
          el('label.field.wide', {}, el('span', {}, t('model_choice')),
             el('select', {
               id: 'set-model',
               onchange: (e) => {
                 settings.model = e.target.value;
                 changed(true);
               },
             },
                models.map((m) => el('option', {value: m.name, selected: m === model}, m.name)))),
      el('label.field.wide', {htmlFor: 'set-system'}, el('span', {}, t('system')), system),
      el('div.fields', {}, FIELDS.map(field)), el('p.muted.small', {}, t('temperature_help')),
      el('button', {
        type: 'button',
        onclick: () => {
          for (const [name] of FIELDS) delete settings[name];
          delete settings.system;
          changed(true);
        },
      },
         t('reset')));
}
