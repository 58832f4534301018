// Requests to the console. The token, if required, is stored per tab and sent in a header only.

const KEY = "joulie-token";
const SILENCE_MS = 40_000;
let askForToken = async () => {};

export function onTokenRequired(ask) {
  askForToken = ask;
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

const tokenNow = () => sessionStorage.getItem(KEY);

// Asks for a token, unless a new one was entered since the refused request.
async function refusedWith(token, why) {
  if (token === tokenNow()) await askForToken(why);
}

function headers(more) {
  const token = tokenNow();
  return token ? { Authorization: `Bearer ${token}`, ...more } : { ...more };
}

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function problemOf(answer) {
  try {
    return new Problem(answer.status, (await answer.json()).detail);
  } catch {
    return new Problem(answer.status, `The console answered ${answer.status}.`);
  }
}

export async function ask(path, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const asked = new URLSearchParams(given).toString();
  for (;;) {
    const token = tokenNow();
    const answer = await fetch(`/v1/${path}${asked ? `?${asked}` : ""}`, { headers: headers(), signal });
    if (answer.ok) return answer.json();
    const problem = await problemOf(answer);
    if (problem.status !== 401) throw problem;
    await refusedWith(token, problem.message);
  }
}

// --- the stream -------------------------------------------------------------------------------
// EventSource cannot send headers, so its protocol is implemented here.

export class Stream {
  constructor(topics, on) {
    this.topics = topics;
    this.on = on; // { open, event(kind, data), lost(why, againInMs) }
    this.lastId = "";
    this.lost = 0;
    this.abort = null;
  }

  async run() {
    for (;;) {
      const why = await this.#listen();
      this.lost += 1;
      const pause = Math.min(10_000, 500 * 2 ** Math.min(5, this.lost)) * (0.75 + Math.random() / 2);
      this.on.lost(why, pause);
      await new Promise((done) => setTimeout(done, pause));
    }
  }

  async #listen() {
    this.abort = new AbortController();
    const quiet = new Watch(SILENCE_MS, () => this.abort.abort());
    try {
      const more = this.lastId ? { "Last-Event-ID": this.lastId } : {};
      const token = tokenNow();
      const answer = await fetch(`/v1/stream?topics=${this.topics}`, { headers: headers(more), signal: this.abort.signal });
      if (!answer.ok) return await this.#refused(answer, token);
      this.lost = 0;
      this.on.open();
      await this.#read(answer.body.getReader(), quiet);
      return "the console ended the stream";
    } catch (error) {
      return error.name === "AbortError" ? "no message for too long" : "the console does not respond";
    } finally {
      quiet.stop();
    }
  }

  async #refused(answer, token) {
    const problem = await problemOf(answer);
    if (problem.status === 401) await refusedWith(token, problem.message);
    return problem.message;
  }

  async #read(reader, quiet) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      quiet.restart();
      const frames = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) this.#take(frame);
    }
  }

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
  constructor(ms, late) {
    this.ms = ms;
    this.late = late;
    this.restart();
  }

  restart() {
    clearTimeout(this.timer);
    this.timer = setTimeout(this.late, this.ms);
  }

  stop() {
    clearTimeout(this.timer);
  }
}
