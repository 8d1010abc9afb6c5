// SPDX-License-Identifier: MIT
// The server, asked. Where it wants a key, the page asks for it and keeps it for this window.
import {ask} from './dom.js';
import {t} from './i18n.js';

const KEY = 'nibble.key';

export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(body) {
  const h = {};
  if (body !== undefined) h['Content-Type'] = 'application/json';
  const key = sessionStorage.getItem(KEY);
  if (key) h.Authorization = `Bearer ${key}`;
  return h;
}

export const hasKey = () => !!sessionStorage.getItem(KEY);

async function failure(response) {
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error.message || message;
  } catch { /* it was not ours */
  }
  return new ServerError(response.status, message);
}

let asking = null;
function askForKey() {
  asking ??= ask({
               title: t('key_title'),
               text: t('key_text'),
               value: '',
               password: true,
               yes: t('ok'),
               no: t('cancel')
             }).finally(() => {
    asking = null;
  });
  return asking;
}

/** The response of a path, once it is one of success. */
export async function request(path, body, signal) {
  for (;;) {
    let response;
    try {
      response = await fetch(path, {
        method: body === undefined ? 'GET' : 'POST',
        headers: headers(body),
        body: body === undefined ? undefined : JSON.stringify(body),
        signal,
        cache: 'no-store',
      });
    } catch (e) {
      if (e.name === 'AbortError') throw e;
      throw new ServerError(0, t('unreachable'));
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await failure(response);
    const key = await askForKey();
    if (!key) throw await failure(response);
    sessionStorage.setItem(KEY, key.trim());
  }
}

export const get = async (path) => (await request(path)).json();
export const post = async (path, body = {}, signal) => (await request(path, body, signal)).json();

/** Part of a path. */
export const part = (name) => encodeURIComponent(name);
