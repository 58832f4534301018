// @ts-check
// Requests to the console. The token, if required, is stored per tab and sent in a header only.

const KEY = "joulie-token";
const WHICH_TOKEN = "Enter the line in the file that the console's CONSOLE_TOKEN_FILE names.";
const SILENCE_MS = 40_000;
/** @type {(why: string) => Promise<void>} */
let askForToken = async () => {};

/** @param {(why: string) => Promise<void>} ask */
export function onTokenRequired(ask) {
  askForToken = ask;
}

/** @param {string} token */
export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

const tokenNow = () => sessionStorage.getItem(KEY);

/**
 * Asks for a token, unless a new one was entered since the refused request.
 * @param {string | null} token
 */
async function refusedWith(token) {
  if (token !== tokenNow()) return;
  await askForToken(`${token ? "This token is wrong. " : ""}${WHICH_TOKEN}`);
}

/** Whether a token gives access: a console behind a proxy may have none. @param {Response} answer */
function takesToken(answer) {
  return answer.status === 401 && answer.headers.has("WWW-Authenticate");
}

/** @param {Record<string, string>} [more] */
function headers(more) {
  const token = tokenNow();
  return token ? { Authorization: `Bearer ${token}`, ...more } : { ...more };
}

export class Problem extends Error {
  /**
   * @param {number} status
   * @param {string} detail
   */
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** @param {Response} answer */
async function problemOf(answer) {
  try {
    return new Problem(answer.status, (await answer.json()).detail);
  } catch {
    return new Problem(answer.status, `The console answered ${answer.status}.`);
  }
}

/**
 * The answer of the API to a query. Empty parameters are left out.
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @returns {Promise<any>}
 */
export async function ask(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) =>
    value !== null && value !== undefined && value !== ""
  );
  const asked = new URLSearchParams(given).toString();
  for (;;) {
    const token = tokenNow();
    const answer = await fetch(`/v1/${path}${asked ? `?${asked}` : ""}`, { headers: headers() });
    if (answer.ok) return answer.json();
    if (!takesToken(answer)) throw await problemOf(answer);
    await refusedWith(token);
  }
}

// --- the stream -------------------------------------------------------------------------------
// EventSource cannot send headers, so its protocol is implemented here.

/**
 * @typedef {object} StreamHandler
 * @property {() => void} open
 * @property {(kind: string, data: any) => void} event
 * @property {(why: string, againInMs: number) => void} lost
 */

export class Stream {
  /**
   * @param {string} topics
   * @param {StreamHandler} on
   */
  constructor(topics, on) {
    this.topics = topics;
    this.on = on;
    this.lastId = "";
    this.lost = 0;
  }

  async run() {
    for (;;) {
      const why = await this.#listen();
      this.lost += 1;
      const pause = Math.min(10_000, 500 * 2 ** Math.min(5, this.lost)) *
        (0.75 + Math.random() / 2);
      this.on.lost(why, pause);
      await new Promise((done) => setTimeout(done, pause));
    }
  }

  async #listen() {
    const abort = new AbortController();
    const quiet = new Watch(SILENCE_MS, () => abort.abort());
    try {
      /** @type {Record<string, string>} */
      const more = this.lastId ? { "Last-Event-ID": this.lastId } : {};
      const token = tokenNow();
      const answer = await fetch(`/v1/stream?topics=${this.topics}`, {
        headers: headers(more),
        signal: abort.signal,
      });
      if (!answer.ok) return await this.#refused(answer, token);
      this.lost = 0;
      this.on.open();
      if (answer.body) await this.#read(answer.body.getReader(), quiet);
      return "the console ended the stream";
    } catch {
      return abort.signal.aborted ? "no message for too long" : "the console does not respond";
    } finally {
      quiet.stop();
    }
  }

  /**
   * @param {Response} answer
   * @param {string | null} token
   */
  async #refused(answer, token) {
    if (takesToken(answer)) await refusedWith(token);
    return (await problemOf(answer)).message;
  }

  /**
   * @param {ReadableStreamDefaultReader<Uint8Array>} reader
   * @param {Watch} quiet
   */
  async #read(reader, quiet) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      quiet.restart();
      const frames = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = frames.pop() || "";
      for (const frame of frames) this.#take(frame);
    }
  }

  /** @param {string} frame */
  #take(frame) {
    let kind = "message";
    let data = "";
    for (const line of frame.split("\n")) {
      if (line.startsWith("id: ")) this.lastId = line.slice(4);
      else if (line.startsWith("event: ")) kind = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (data) this.on.event(kind, JSON.parse(data));
  }
}

class Watch {
  /**
   * @param {number} ms
   * @param {() => void} late
   */
  constructor(ms, late) {
    this.ms = ms;
    this.late = late;
    this.timer = setTimeout(this.late, this.ms);
  }

  restart() {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.late, this.ms);
  }

  stop() {
    clearTimeout(this.timer);
  }
}
