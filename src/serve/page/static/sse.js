// SPDX-License-Identifier: MIT
// Events of a reply that streams.
import {request, ServerError} from './api.js';

/** Calls `use` with the JSON of each event until the stream says that it is done. */
export async function stream(path, body, signal, use) {
  const response = await request(path, {...body, stream: true}, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    const events = rest.split('\n\n');
    rest = events.pop();
    for (const event of events) {
      const data = event.split('\n')
                       .filter((l) => l.startsWith('data:'))
                       .map((l) => l.slice(5).trim())
                       .join('\n');
      if (!data) continue;
      if (data === '[DONE]') return;
      const json = JSON.parse(data);
      if (json.error) throw new ServerError(500, json.error.message);
      use(json);
    }
  }
}
