// SPDX-License-Identifier: MIT
// What is about to be taught, as this browser keeps it until it starts. What a person has not said
// is undefined: the server chooses.
const KEY = 'nibble.lesson';

function read() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY));
    if (Array.isArray(kept?.rows)) return kept;
  } catch { /* begun anew */
  }
  return {rows: []};
}

export const draft = read();

export function keepDraft() {
  try {
    localStorage.setItem(KEY, JSON.stringify(draft));
  } catch { /* too large to be kept: it is on the page */
  }
}

/** Instead of what it was: the rows and settings of a lesson. */
export function draftFrom(lesson) {
  for (const name of Object.keys(draft)) delete draft[name];
  Object.assign(draft, lesson, {prompts: lesson.prompts.join('\n') || undefined});
  keepDraft();
}

export const filledRows = () =>
    draft.rows.filter((r) => r.line || (r.question.trim() && r.answer.trim()));

const row = ({question, answer, line}) =>
    line ? {question, answer, line} : {question: question.trim(), answer: answer.trim()};

/** As the server is asked for it. */
export function lessonRequest() {
  const {from, keep, own_tokens, steps, batch_size, lr} = draft;
  const prompts = (draft.prompts ?? '').split('\n').map((p) => p.trim()).filter(Boolean);
  return {
    from: from || undefined,
    rows: filledRows().map(row),
    prompts: keep === 'prompts' ? prompts : [],
    keep,
    own_tokens,
    steps,
    batch_size,
    lr,
  };
}
