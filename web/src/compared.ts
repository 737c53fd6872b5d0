// Several jobs of a server as one source: all of it is the first one's, and into its charts come those of the others.
import type { ChartData, Index, Range, Source, State } from "./data";
import type { TimelineData, View } from "./timeline_data";

export interface OtherJob {
  name: string;
  source: Source;
}

export class ComparedSource implements Source {
  readonly live = true;
  readonly #all: Source[];
  #seen: State[] = [];
  #state: State;
  #version = 0;

  constructor(
    private readonly first: Source,
    private readonly others: OtherJob[],
  ) {
    this.#all = [first, ...others.map(({ source }) => source)];
    this.#state = first.state();
  }

  /** The same object until something is another. */
  state(): State {
    const now = this.#all.map((source) => source.state());
    if (now.length === this.#seen.length && now.every((state, i) => state === this.#seen[i])) return this.#state;
    if (now.some((state, i) => state.metrics !== this.#seen[i]?.metrics)) this.#version += 1;
    this.#seen = now;
    this.#state = { ...this.first.state(), index: this.#index(now), metrics: this.#version };
    return this.#state;
  }

  #index(states: State[]): Index {
    const lines = new Map<string, number>();
    for (const { index } of states) for (const chart of index.charts) lines.set(chart.name, (lines.get(chart.name) ?? 0) + chart.lines);
    const names = ["", ...this.others.map(({ name }) => name)];
    return {
      runs: states.map(({ index }, i) => ({ notes: {}, ...index.runs[0], name: i === 0 ? (index.runs[0]?.name ?? "") : (names[i] ?? "") })),
      charts: [...lines].map(([name, count]) => ({ name, lines: count })),
    };
  }

  watch(change: () => void): () => void {
    const ends = this.#all.map((source) => source.watch(change));
    return () => ends.forEach((end) => end());
  }

  kept(name: string): ChartData | null {
    return this.#joined(name, this.#all.map((source) => source.kept(name)));
  }

  /** Of a job that cannot be asked, what is known of it. */
  async chart(name: string, range?: Range): Promise<ChartData> {
    const answers = await Promise.allSettled(this.#all.map((source) => (has(source.state(), name) ? source.chart(name, range) : null)));
    const one = (answer: PromiseSettledResult<ChartData | null>, i: number) => (answer.status === "fulfilled" ? answer.value : (this.#all[i]?.kept(name) ?? null));
    const joined = this.#joined(name, answers.map(one));
    if (joined === null) throw new Error(`no job has sent ${name}`);
    return joined;
  }

  #joined(name: string, charts: (ChartData | null)[]): ChartData | null {
    if (charts.every((chart) => chart === null)) return null;
    return { name, lines: charts.flatMap((chart, run) => (chart?.lines ?? []).map((line) => ({ ...line, run }))) };
  }

  keptTimeline(): TimelineData | null {
    return this.first.keptTimeline();
  }

  timeline(view: View | null): Promise<TimelineData> {
    return this.first.timeline(view);
  }

  log(rank: number, from: number, to: number): Promise<{ at: number; bytes: Uint8Array }> {
    return this.first.log(rank, from, to);
  }

  keptLogFrom(rank: number): number {
    return this.first.keptLogFrom(rank);
  }

  newLink(): Promise<string> {
    return this.first.newLink();
  }
}

function has(state: State, name: string): boolean {
  return state.index.charts.some((chart) => chart.name === name);
}
