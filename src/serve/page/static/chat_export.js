// SPDX-License-Identifier: MIT
// A conversation as a file: JSON in the shape of the API, or Markdown to read.
import {nameOf} from './chat_store.js';
import {saveFile} from './dom.js';

const fileName = (chat, ending) => `${
    (nameOf(chat) || 'chat').replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40) ||
    'chat'}.${ending}`;

export function exportJson(chat) {
  const {system, model, ...sampling} = chat.settings;
  const messages = chat.messages.map(({role, content}) => ({role, content}));
  if (system) messages.unshift({role: 'system', content: system});
  saveFile(
      fileName(chat, 'json'), 'application/json',
      JSON.stringify({model, ...sampling, messages}, null, 2) + '\n');
}

export function exportMarkdown(chat) {
  const parts = [`# ${nameOf(chat)}`];
  if (chat.settings.system) parts.push(`> ${chat.settings.system.replace(/\n/g, '\n> ')}`);
  for (const m of chat.messages)
    parts.push(`## ${m.role === 'user' ? 'User' : m.model || 'Assistant'}`, m.content);
  saveFile(fileName(chat, 'md'), 'text/markdown', parts.join('\n\n') + '\n');
}
