// SPDX-License-Identifier: MIT
// The tab Chat: conversations, and a reply that is on its way.
import {get} from './api.js';
import {exportJson, exportMarkdown} from './chat_export.js';
import {sampling, settingsPanel} from './chat_settings.js';
import {chats, dropChat, keep, nameOf, newChat} from './chat_store.js';
import {ask, button, el, icon, say} from './dom.js';
import {t} from './i18n.js';
import {loading} from './markdown.js';
import {messageNode, showReply} from './messages.js';
import {stream} from './sse.js';
import {readTokens} from './tokens.js';

const ALTERNATIVES = 5;
const GROWS = CSS.supports('field-sizing', 'content');  // text boxes are as high as their text

let room = null;     // where the tab is drawn; null: another tab is open
let current = null;  // the conversation
let models = [];
let fetched = Promise.resolve();  // when the list of models is there
let running = null;               // {controller, message, chat} while a reply comes
let draft = '';
let showSettings = false, showList = false;

const conversation = () => {
  current ??= chats[0] ?? newChat();
  return current;
};
function saved() {
  if (!keep()) say(t('full_store'));
}

async function reply(chat) {
  const message = {role: 'assistant', content: '', tokens: [], count: 0, seconds: 0};
  const asked = chat.messages.map(({role, content}) => ({role, content}));
  if (chat.settings.system) asked.unshift({role: 'system', content: chat.settings.system});
  chat.messages.push(message);
  running = {controller: new AbortController(), message, chat};
  draw();
  await fetched;
  const known = models.some((m) => m.name === chat.settings.model);
  const body =
      {messages: asked, ...sampling(chat.settings), logprobs: true, top_logprobs: ALTERNATIVES};
  if (known) body.model = chat.settings.model;
  const began = performance.now();
  try {
    await stream('/v1/chat/completions', body, running.controller.signal, (event) => {
      message.model = event.model;
      const choice = event.choices?.[0];
      if (!choice) return;
      message.content += choice.delta?.content ?? '';
      const tokens = readTokens(choice.logprobs);
      message.tokens.push(...tokens);
      message.count += tokens.length;
      message.seconds = (performance.now() - began) / 1000;
      message.finish = choice.finish_reason ?? message.finish;
      drawReply(message);
    });
  } catch (e) {
    if (e.name === 'AbortError')
      message.finish = 'stopped';
    else
      message.error = e.message;
  }
  running = null;
  saved();
  draw();
}

function send(text) {
  const chat = conversation();
  if (running || !text.trim()) return;
  chat.messages.push({role: 'user', content: text});
  draft = '';
  reply(chat);
}
const actions = {
  edit(index, text) {
    if (text === null || !text.trim()) return draw();
    conversation().messages.splice(index);
    send(text);
  },
  again(index) {
    conversation().messages.splice(index);
    reply(conversation());
  },
  changed() {
    saved();
    draw();
  },
};

async function remove(chat) {
  const sure = await ask({
    title: t('delete_chat'),
    text: t('delete_chat_text'),
    yes: t('remove'),
    no: t('cancel'),
    danger: true
  });
  if (!sure) return;
  if (running?.chat === chat) running.controller.abort();
  dropChat(chat);
  if (current === chat) current = null;
  draw();
}

function listPanel() {
  const open = (chat) => () => {
    current = chat;
    showList = false;
    draw();
  };
  return el(
      showList ? 'aside.chats.open' : 'aside.chats', {'aria-label': t('chats')},
      el('button.new', {
        type: 'button',
        onclick: () => {
          if (conversation().messages.length) current = newChat({...conversation().settings});
          open(current)();
        },
      },
         icon('plus'), t('new_chat')),
      el('ul', {},
         chats.map(
             (chat) =>
                 el('li', {className: chat === current ? 'here' : ''},
                    el('button.name', {type: 'button', onclick: open(chat)},
                       nameOf(chat) || t('untitled')),
                    button('trash', t('delete_chat'), () => remove(chat))))));
}

function empty() {
  const model = conversation().settings.model ?? models[0]?.name ?? '';
  return el(
      'div.empty', {}, el('img', {src: '/page/icon.svg', alt: '', width: 56, height: 56}),
      el('h1', {}, t('chat_empty_title', {model})), el('p.muted', {}, t('chat_empty_text')),
      el('div.examples', {},
         [1, 2, 3].map(
             (n) =>
                 el('button', {type: 'button', onclick: () => send(t(`example_${n}`))},
                    t(`example_${n}`)))));
}

function composer() {
  const box = el('textarea', {
    id: 'message',
    rows: 1,
    value: draft,
    placeholder: t('message_hint'),
    'aria-label': t('message'),
    oninput: () => {
      draft = box.value;
      grow();
    },
    onkeydown: (e) => {
      if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
      e.preventDefault();
      send(box.value);
    },
  });
  const grow = () => {
    if (GROWS) return;
    box.style.height = 'auto';
    box.style.height = `${Math.min(box.scrollHeight, 220)}px`;
  };
  setTimeout(grow);
  return el(
      'div.composer', {}, box,
      running ? el('button.primary.round', {
        type: 'button',
        id: 'stop',
        title: t('stop'),
        'aria-label': t('stop'),
        onclick: () => running?.controller.abort()
      },
                   icon('stop')) :
                el('button.primary.round', {
                  type: 'button',
                  id: 'send',
                  title: t('send'),
                  'aria-label': t('send'),
                  onclick: () => send(box.value)
                },
                   icon('send')));
}

function bar(chat) {
  const some = chat.messages.length > 0;
  return el(
      'div.chatbar', {},
      button(
          'menu', t('chats'),
          () => {
            showList = !showList;
            draw();
          },
          {className: 'quiet phone'}),
      el('h2', {}, nameOf(chat) || t('untitled')),
      el('div.row', {}, some && button('down', t('export_markdown'), () => exportMarkdown(chat)),
         some &&
             el('button.quiet.text',
                {type: 'button', title: t('export_json'), onclick: () => exportJson(chat)}, 'JSON'),
         button('settings', t('settings'), () => {
           showSettings = !showSettings;
           draw();
         }, {className: showSettings ? 'quiet on' : 'quiet', id: 'settings'})));
}

const atEnd = (node) => node.scrollHeight - node.scrollTop - node.clientHeight < 80;

function draw() {
  if (!room) return;
  const chat = conversation();
  const busy = running?.chat === chat;
  const end = chat.messages.length - 1;
  const list =
      el('div.messages', {'aria-live': 'polite'},
         chat.messages.length === 0 ?
             empty() :
             chat.messages.map((m, i) => messageNode(m, i, i === end, busy, actions)));
  const old = room.querySelector('.messages');
  const stick = !old || atEnd(old), before = old?.scrollTop ?? 0;
  const focused = document.activeElement?.id === 'message';
  room.replaceChildren(
      listPanel(),
      el('section.talk', {}, bar(chat),
         showSettings && settingsPanel(chat.settings, models, (redraw) => {
           saved();
           if (redraw) draw();
         }), list, composer()));
  list.scrollTop = stick ? list.scrollHeight : before;
  if (focused || matchMedia('(hover: hover)').matches)
    room.querySelector('#message').focus({preventScroll: true});
}

function drawReply(message) {
  const node = room?.querySelector('.message.assistant:last-child .reply');
  if (!node || running?.chat !== current) return;
  const list = room.querySelector('.messages'), stick = atEnd(list);
  showReply(node, message);
  if (stick) list.scrollTop = list.scrollHeight;
}

export const chatTab = {
  async enter(node) {
    room = node;
    fetched = get('/api/model').then((answer) => {
      models = answer.models;
    }, (e) => say(e.message, true));
    draw();
    await Promise.all([loading, fetched]);
    draw();
  },
  leave() { room = null;},
  /** A conversation with this model, opened by another tab. */
  talkTo(model) {
    current = newChat({model});
    location.hash = '#chat';
  },
};
