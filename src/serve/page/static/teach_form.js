// SPDX-License-Identifier: MIT
// What a lesson keeps, its settings, and what it takes.
import {el} from './dom.js';
import {bytes, duration, number, t} from './i18n.js';
import {tile} from './run_view.js';
import {draft} from './teach_draft.js';

function prompts(changed) {
  const box = el('textarea', {
    id: 'prompts',
    rows: 8,
    value: draft.prompts,
    'aria-label': t('keep_prompts'),
    oninput: () => {
      draft.prompts = box.value;
      changed(false);
    }
  });
  const count = draft.prompts.split('\n').filter((p) => p.trim()).length;
  return el('details.more', {}, el('summary', {}, t('prompts_count', {n: number(count)})), box);
}

function ownTokens(changed) {
  const box = el('input', {
    type: 'number',
    id: 'own-tokens',
    min: 100,
    max: 200000,
    step: 100,
    value: draft.own_tokens,
    oninput: () => {
      draft.own_tokens = box.value ? box.valueAsNumber : undefined;
      changed(false);
    }
  });
  return el('label.field.more', {htmlFor: 'own-tokens'}, el('span', {}, t('own_tokens')), box);
}

/**
 * The model that learns: the server's own, or what a lesson has made of it. Nothing to choose:
 * nothing.
 */
export function fromSection(overview, changed) {
  const made = overview.lessons.filter((l) => l.has_model);
  if (!made.some((l) => l.name === draft.from)) draft.from = undefined;
  if (!made.length) return null;
  const choice =
      el('select', {
        id: 'learner',
        'aria-labelledby': 'learner-title',
        onchange: () => {
          draft.from = choice.value || undefined;
          changed(false);
        }
      },
         el('option', {value: ''}, overview.base),
         made.map((l) => el('option', {value: l.name}, l.kept_as || l.name)));
  choice.value = draft.from ?? '';
  return el(
      'section.card.learner', {}, el('h2', {id: 'learner-title'}, t('learner')), choice,
      el('span.muted.small', {}, t('learner_text')));
}

export function keepSection(changed) {
  const choice = (name) =>
      el('label', {className: draft.keep === name ? 'option on' : 'option'}, el('input', {
           type: 'radio',
           name: 'keep',
           value: name,
           checked: draft.keep === name,
           onchange: () => {
             draft.keep = name;
             changed(true);
           }
         }),
         el('span', {}, el('strong', {}, t(`keep_${name}`)),
            el('span.muted.small', {}, t(`keep_${name}_text`))));
  return el(
      'section.card', {}, el('h2', {}, t('keep_title')),
      el('div.options', {}, choice('prompts'), choice('own_text'), choice('nothing')),
      draft.keep === 'prompts' && prompts(changed),
      draft.keep === 'own_text' && ownTokens(changed));
}

/** Empty fields are left to the server. */
export function howSection(changed) {
  const field = (name, label, attributes) => {
    const input = el('input', {
      type: 'number',
      id: `how-${name}`,
      value: draft[name] ?? '',
      ...attributes,
      oninput: () => {
        if (!input.checkValidity()) return;
        draft[name] = input.value ? input.valueAsNumber : undefined;
        changed(false);
      }
    });
    return el('label.field', {htmlFor: `how-${name}`}, el('span', {}, t(label)), input);
  };
  return el(
      'details.card', {}, el('summary', {}, t('how')),
      el('div.fields', {}, field('steps', 'steps', {min: 1, max: 100000, step: 1}),
         field('lr', 'learning_rate', {min: 1e-9, max: 1, step: 'any'}),
         field('batch_size', 'batch_size', {min: 1, max: 256, step: 1})));
}

export function planTiles(plan) {
  return [
    el('div.tiles', {},
       tile(
           t('plan_time'), plan.seconds === undefined ? '–' : `≈ ${duration(plan.seconds)}`,
           t(plan.basis === 'run' ? 'plan_from_run' : 'plan_guess')),
       tile(
           t('plan_memory'), plan.memory ? bytes(plan.memory.total_bytes) : '–',
           t('plan_of', {bytes: bytes(plan.available_bytes)})),
       tile(t('plan_window'), t('tokens_n', {n: number(plan.window)})),
       tile(t('plan_passes'), number(plan.passes))),
    !plan.fits && el('p.error', {}, t('plan_no_fit'))
  ].filter(Boolean);
}
