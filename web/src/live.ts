// A job that runs, by the routes of gyre/page/routes.h: that of `gyre run --page`, which sends what is new, or one of a
// job server, which is asked again and again. What has come stays when the job can no longer be asked.
import { type ChartData, type Connection, type Index, type Job, type Range, type Source, type State, isOver } from "./data";
import type { TimelineData, View } from "./timeline_data";

const POLL_MS = 2_000;
/** So long, the first of several charts waits for the others. */
const TOGETHER_MS = 20;
/** A server takes so many, in an address of 8 KB. */
const MOST_TOGETHER = 64;
const LONGEST_QUERY = 6_000;
/** In place of a stream: a launcher whose job has ended waits for two seconds for those who ask. */
const POLL_STREAM_MS = 1_000;
/** Of a job that is over: it may be tried again. */
const POLL_OVER_MS = 10_000;
/** Of each log this much is fetched when the job ends, for whoever looks at another rank afterwards. */
const LAST_BYTES = 65_536;
/** And this much of the log that is shown, and of the rank's that failed first. */
const LAST_BYTES_SHOWN = 4_194_304;
const MOST_LAST_LOGS = 64;
/** A server says something every two seconds; the silence of one that is stopped, or out of reach, has no other sign. */
export const SILENT_MS = 7_000;
const BETWEEN_LOOKS_MS = 1_000;
const OVER: Job["state"][] = ["ended", "failed", "stopped"];

/** What `/now` answers. */
interface Now {
  job: Job;
  metrics: number;
  timeline: number;
  logs: Record<string, number>;
  over: boolean;
}

interface Piece {
  at: number;
  bytes: Uint8Array;
}

/** Of the address that makes them: a link for another browser. */
export async function newLink(address: string): Promise<string> {
  const answer = await fetch(address, { method: "POST" });
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  const { path } = (await answer.json()) as { path: string };
  return location.origin + path;
}

function queryOf(names: string[]): string {
  return new URLSearchParams({ names: JSON.stringify(names) }).toString();
}

/** Each is asked for at once. */
function groups(names: string[]): string[][] {
  const all: string[][] = [];
  for (const name of names) {
    const last = all.at(-1);
    if (last === undefined || last.length === MOST_TOGETHER || queryOf([...last, name]).length > LONGEST_QUERY) all.push([name]);
    else last.push(name);
  }
  return all;
}

abstract class RoutesSource implements Source {
  readonly live = true;
  #state: State = { index: { runs: [], charts: [] }, job: null, logs: new Map(), metrics: 0, timeline: 0, connection: "connecting" };
  #watchers = new Set<() => void>();
  #charts = new Map<string, ChartData>();
  #wanted = new Set<string>();
  #coming: Promise<void> | null = null;
  #timeline: TimelineData | null = null;
  protected readonly lastLogs = new Map<number, Piece>();
  /** Whose log was read last. */
  protected shown = 0;
  #told = false;

  /** Of what is asked for. */
  #open = new AbortController();

  constructor(protected readonly routes: string) {}

  async ask(path: string, options: RequestInit = {}): Promise<Response> {
    const answer = await fetch(this.routes + path, { ...options, signal: this.#open.signal });
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer;
  }

  state(): State {
    return this.#state;
  }

  watch(change: () => void): () => void {
    this.#watchers.add(change);
    return () => this.#watchers.delete(change);
  }

  kept(name: string): ChartData | null {
    return this.#charts.get(name) ?? null;
  }

  async chart(name: string, range?: Range): Promise<ChartData> {
    if (range === undefined) return this.#wholeChart(name);
    const query = new URLSearchParams({ name, axis: range.axis, from: String(range.from), to: String(range.to) });
    return (await (await this.ask(`/chart?${query.toString()}`)).json()) as ChartData;
  }

  /** Those that are wanted at the same time come together. */
  async #wholeChart(name: string): Promise<ChartData> {
    this.#wanted.add(name);
    this.#coming ??= new Promise<void>((resolve) => setTimeout(resolve, TOGETHER_MS)).then(async () => {
      const names = [...this.#wanted];
      this.#wanted.clear();
      this.#coming = null;
      await Promise.all(groups(names).map((group) => this.#fetchCharts(group)));
    });
    await this.#coming;
    return this.#charts.get(name) as ChartData;
  }

  async #fetchCharts(names: string[]): Promise<void> {
    const charts = (await (await this.ask(`/charts?${queryOf(names)}`)).json()) as ChartData[];
    names.forEach((name, i) => this.#charts.set(name, charts[i] as ChartData));
  }

  keptTimeline(): TimelineData | null {
    return this.#timeline;
  }

  async timeline(view: View | null): Promise<TimelineData> {
    const query = view === null ? "" : `?from=${view.from}&to=${view.to}`;
    const data = (await (await this.ask(`/timeline${query}`)).json()) as TimelineData;
    if (view === null) this.#timeline = data;
    return data;
  }

  async log(rank: number, from: number, to: number): Promise<Piece> {
    this.shown = rank;
    try {
      return await this.askLog(rank, from, to);
    } catch (error) {
      const last = this.lastLogs.get(rank);
      const begin = last === undefined ? to : Math.max(from, last.at);
      if (last === undefined || begin >= to) throw error;
      return { at: begin, bytes: last.bytes.subarray(begin - last.at, to - last.at) };
    }
  }

  keptLogFrom(rank: number): number {
    return this.lastLogs.get(rank)?.at ?? 0;
  }

  protected async askLog(rank: number, from: number, to: number): Promise<Piece> {
    if (to <= from) return { at: from, bytes: new Uint8Array() };
    const answer = await this.ask(`/ranks/${rank}/log`, { headers: { Range: `bytes=${from}-${to - 1}` } });
    return { at: from, bytes: new Uint8Array(await answer.arrayBuffer()) };
  }

  async newLink(): Promise<string> {
    return newLink(`${this.routes}/links`);
  }

  /** What has been asked for fails: it may never be answered. */
  protected giveUp(): void {
    this.#open.abort();
    this.#open = new AbortController();
  }

  protected async askNow(): Promise<Now> {
    const timer = setTimeout(() => this.giveUp(), SILENT_MS);
    try {
      return (await (await this.ask("/now")).json()) as Now;
    } finally {
      clearTimeout(timer);
    }
  }

  protected change(part: Partial<State>): void {
    this.#state = { ...this.#state, ...part };
    if (this.#told) return;
    this.#told = true;
    // Events come in bunches; a page in the background has no frames.
    setTimeout(() => {
      this.#told = false;
      for (const change of this.#watchers) change();
    }, 16);
  }

  protected async fetchIndex(version: number): Promise<void> {
    const index = (await (await this.ask("/index")).json()) as Index;
    this.change({ index, metrics: version });
  }

  protected async takeMetrics(version: number): Promise<void> {
    await this.fetchIndex(version).catch(() => {}); // The stream says so too.
  }

  protected takeLogs(sizes: Record<string, number>): void {
    const logs = new Map(this.#state.logs);
    for (const [rank, bytes] of Object.entries(sizes)) logs.set(Number(rank), bytes);
    this.change({ logs });
  }
}

/**
 * A browser has six connections to one host, and each stream keeps one for as long as its tab is open: with more streams
 * than this, nothing else would get through. Tabs behind these ask again and again instead, until one is closed.
 */
const MOST_STREAMS = 3;

function lossOf(error: unknown): Connection {
  return error instanceof DOMException && error.name === "AbortError" ? "silent" : "lost";
}

class LiveSource extends RoutesSource {
  #events: EventSource | null = null;
  #heard = 0;
  #watch = 0;
  #polled = -1;

  constructor(routes: string) {
    super(routes);
    void this.#follow();
  }

  async #follow(): Promise<void> {
    // Browsers have no locks on pages that are not from this machine.
    if (!("locks" in navigator)) return this.#listen();
    for (let number = 0; number < MOST_STREAMS; number++) {
      if (await this.#streamAs(number, { ifAvailable: true })) return;
    }
    void this.#streamAs(Math.floor(Math.random() * MOST_STREAMS), {});
    await this.#poll();
  }

  /** False where another tab has this number. The browser frees it when the tab goes. */
  #streamAs(number: number, options: LockOptions): Promise<boolean> {
    return new Promise((resolve) => {
      void navigator.locks.request(`gyre stream ${number}`, options, (lock) => {
        resolve(lock !== null);
        if (lock === null || isOver(this.state().connection)) return undefined;
        this.#listen();
        return new Promise<void>(() => {});
      });
    });
  }

  async #poll(): Promise<void> {
    while (this.#events === null && !isOver(this.state().connection)) {
      try {
        const now = await this.askNow();
        if (this.#events !== null) return;
        this.takeLogs(now.logs);
        if (this.state().connection !== "live") this.change({ connection: "live" });
        if (now.timeline > 0) this.change({ timeline: now.timeline });
        if (now.metrics !== this.#polled) await this.takeMetrics((this.#polled = now.metrics));
        this.#takeJob(now.job);
      } catch (error) {
        if (this.#events === null && !isOver(this.state().connection)) this.change({ connection: lossOf(error) });
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_STREAM_MS));
    }
  }

  #listen(): void {
    const events = new EventSource(`${this.routes}/live`);
    this.#events = events;
    const hear = () => {
      this.#heard = performance.now();
      if (["connecting", "lost", "silent"].includes(this.state().connection)) this.change({ connection: "live" });
    };
    const on = (name: string, take: (data: string) => void) =>
      events.addEventListener(name, (event) => {
        hear();
        take((event as MessageEvent<string>).data);
      });
    on("alive", () => {});
    on("job", (data) => this.#takeJob(JSON.parse(data) as Job));
    on("metrics", (data) => void this.takeMetrics(Number(data)));
    on("timeline", (data) => this.change({ timeline: Number(data) }));
    on("logs", (data) => this.takeLogs(JSON.parse(data) as Record<string, number>));
    events.onopen = hear;
    events.onerror = () => this.#lose(events);
    this.#heard = performance.now();
    clearInterval(this.#watch);
    this.#watch = setInterval(() => this.#look(), BETWEEN_LOOKS_MS);
  }

  /** Whether the stream still is one. */
  #look(): void {
    const { connection } = this.state();
    if (["over", "cut", "refused"].includes(connection)) return clearInterval(this.#watch);
    if (performance.now() - this.#heard < SILENT_MS) return;
    this.giveUp();
    if (connection === "ending") return;
    this.#events?.close();
    this.change({ connection: "silent" });
    this.#listen(); // A connection of its own: the old one may lead nowhere.
  }

  #lose(events: EventSource): void {
    if (isOver(this.state().connection)) {
      events.close(); // The launcher has gone.
      return;
    }
    const refused = events.readyState === EventSource.CLOSED;
    const connection: Connection = refused ? "refused" : "lost";
    this.change({ connection });
  }

  #takeJob(job: Job): void {
    const over = OVER.includes(job.state);
    const isNews = over && !isOver(this.state().connection);
    this.change({ job, ...(isNews ? { connection: "ending" as const } : {}) });
    if (isNews) void this.#end(job);
  }

  /** The launcher stays until the stream is closed, for some seconds. */
  async #end(job: Job): Promise<void> {
    const hasAll = await this.#fetchTheLast(job).catch(() => false);
    this.#events?.close();
    this.change({ metrics: this.state().metrics + 1, connection: hasAll ? "over" : "cut" });
  }

  async #fetchTheLast(job: Job): Promise<boolean> {
    await this.fetchIndex(this.state().metrics + 1);
    const all = job.ranks.slice(0, MOST_LAST_LOGS).map(({ rank }) => this.#keepLog(rank, LAST_BYTES));
    const charts = this.state().index.charts.map(({ name }) => this.chart(name));
    const timeline = this.state().timeline > 0 ? [this.timeline(null)] : [];
    const fetched = await Promise.allSettled([...all, ...charts, ...timeline]);
    const first = new Set([this.shown, job.first_failed_rank ?? this.shown]);
    fetched.push(...(await Promise.allSettled([...first].map((rank) => this.#keepLog(rank, LAST_BYTES_SHOWN)))));
    return fetched.every(({ status }) => status === "fulfilled");
  }

  async #keepLog(rank: number, most: number): Promise<void> {
    const end = this.state().logs.get(rank) ?? 0;
    const begin = Math.max(0, end - most);
    if ((this.lastLogs.get(rank)?.at ?? Infinity) <= begin) return;
    this.lastLogs.set(rank, await this.askLog(rank, begin, end));
  }
}

class PolledSource extends RoutesSource {
  #version = -1;

  /** Until it is ended. */
  follow(): () => void {
    let ended = false;
    let timer = 0;
    const look = async () => {
      let again = POLL_MS;
      if (document.visibilityState === "visible") {
        try {
          const now = await this.askNow();
          this.takeLogs(now.logs);
          this.change({ job: now.job, timeline: now.timeline, connection: now.over ? "over" : "live" });
          if (now.metrics !== this.#version) await this.takeMetrics((this.#version = now.metrics));
          if (now.over) again = POLL_OVER_MS;
        } catch (error) {
          this.change({ connection: lossOf(error) });
        }
      }
      if (!ended) timer = setTimeout(() => void look(), again);
    };
    void look();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }
}

export function liveSource(): Source {
  return new LiveSource("api");
}

/** `path`: of the job, in the server's interface. */
export function polledSource(path: string): PolledSource {
  return new PolledSource(`service${path}/run`);
}
