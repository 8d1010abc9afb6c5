// SPDX-License-Identifier: MIT
// Every text of the page: key: [English, Traditional Chinese].
import {chatWords} from './words_chat.js';
import {modelWords} from './words_model.js';
import {runsWords} from './words_runs.js';
import {teachWords} from './words_teach.js';

const general = {
  tab_chat: ['Chat', '對話'],
  tab_teach: ['Teach', '教學'],
  tab_runs: ['Runs', '紀錄'],
  tab_model: ['Model', '模型'],
  language: ['中文', 'English'],
  language_switch: ['Switch to Traditional Chinese', '切換為英文'],
  theme: ['Theme: {mode}', '佈景：{mode}'],
  theme_auto: ['as the system', '跟隨系統'],
  theme_light: ['light', '淺色'],
  theme_dark: ['dark', '深色'],
  ok: ['OK', '確定'],
  cancel: ['Cancel', '取消'],
  remove: ['Remove', '移除'],
  close: ['Close', '關閉'],
  loading: ['Loading …', '載入中…'],
  copied: ['Copied', '已複製'],
  copy: ['Copy', '複製'],
  seconds: ['{n} s', '{n} 秒'],
  milliseconds: ['{n} ms', '{n} 毫秒'],
  unreachable: [
    'The server does not answer. Is nibble serve still running?',
    '伺服器沒有回應。nibble serve 還在執行嗎？'
  ],
  key_title: ['This server asks for its key', '這個伺服器需要金鑰'],
  key_text: [
    'It was given with --api-key-file or NIBBLE_API_KEY. It is kept until this window is closed.',
    '金鑰由 --api-key-file 或 NIBBLE_API_KEY 指定；只保留到這個視窗關閉為止。'
  ],
  step: ['Step', '步'],
  loss: ['Loss', '損失'],
};

export const words = {
  ...general,
  ...chatWords,
  ...teachWords,
  ...runsWords,
  ...modelWords
};
