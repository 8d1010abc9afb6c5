// SPDX-License-Identifier: MIT
// Conversations, kept in this browser and nowhere else.
const KEY = 'nibble.chats';

function read() {
  try {
    const all = JSON.parse(localStorage.getItem(KEY));
    if (Array.isArray(all)) return all.filter((c) => c && Array.isArray(c.messages));
  } catch { /* begun anew */
  }
  return [];
}

export const chats = read();  // the newest first

/** False where the oldest had to lose their probabilities to make room. */
export function keep() {
  let whole = true;
  for (let i = chats.length - 1;; --i) {
    try {
      localStorage.setItem(KEY, JSON.stringify(chats));
      return whole;
    } catch {
      whole = false;
      if (i < 0) return false;
      for (const m of chats[i].messages) delete m.tokens;
    }
  }
}

export function newChat(settings = {}) {
  const chat = {
    id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()),
    title: '',
    made: Date.now(),
    settings: {...settings},
    messages: []
  };
  chats.unshift(chat);
  return chat;
}

export function dropChat(chat) {
  chats.splice(chats.indexOf(chat), 1);
  keep();
}

/** The first words that were said, as a name. */
export const nameOf = (chat) => {
  const said = chat.messages.find((m) => m.role === 'user')?.content ?? '';
  const line = said.trim().split('\n')[0];
  return line.length > 48 ? `${line.slice(0, 47)}…` : line;
};
