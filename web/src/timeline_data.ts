// What the ranks' time went into: GET /timeline of gyre/page/routes.h, or `gyre report --timeline`.

export interface TimelineRank {
  rank: number;
  host: string;
  /** Microseconds since 1970, by rank 0's clock. */
  begin: number;
  end: number;
  /** By activity, five numbers for each span: begin, length, how much of it is covered, label, how many lie in it. */
  spans: Partial<Record<Activity, number[]>>;
}

export interface TimelineData {
  from: number;
  to: number;
  /** From 1 on. */
  labels: string[];
  ranks: TimelineRank[];
}

export interface View {
  from: number;
  to: number;
}

export const NUMBERS = 5;

export type Activity =
  | "wait_for_exchange"
  | "wait_for_data"
  | "negotiate"
  | "exchange"
  | "wait_for_ranks"
  | "copy"
  | "reduce"
  | "send";

/** What is drawn: "compute" is what the program does not wait, "other" what of an exchange has no name. */
export type Shown = Exclude<Activity, "exchange"> | "compute" | "other";

/** Of a rank, in two lanes: what its program does above, what its engine does below. */
export const PROGRAM: Shown[] = ["compute", "wait_for_data", "wait_for_exchange"];
export const ENGINE: Shown[] = ["send", "reduce", "copy", "wait_for_ranks", "other", "negotiate"];

export const WORDS: Record<Shown, string> = {
  compute: "computes",
  wait_for_data: "waits for data",
  wait_for_exchange: "waits for the exchange",
  send: "sends",
  reduce: "reduces",
  copy: "copies",
  wait_for_ranks: "waits for ranks in a collective",
  other: "other parts of collectives",
  negotiate: "waits until all ranks have called",
};

/** Adds to each of `columns` of a view how much of it (0 to 1) an activity covers. */
function cover(spans: number[] | undefined, view: View, columns: Float32Array): void {
  if (spans === undefined) return;
  const perColumn = (view.to - view.from) / columns.length;
  for (let i = 0; i < spans.length; i += NUMBERS) {
    const begin = spans[i] ?? 0;
    if (begin >= view.to) continue;
    const length = Math.max(1, spans[i + 1] ?? 0);
    if (begin + length <= view.from) continue;
    const density = Math.min(1, (spans[i + 2] ?? 0) / length);
    const first = (begin - view.from) / perColumn;
    const last = (begin + length - view.from) / perColumn;
    for (let column = Math.max(0, Math.floor(first)); column < Math.min(columns.length, last); column++) {
      const part = Math.min(last, column + 1) - Math.max(first, column);
      columns[column] = Math.min(1, (columns[column] ?? 0) + part * density);
    }
  }
}

export type Columns = Record<Shown, Float32Array>;

export function emptyColumns(count: number): Columns {
  const names: Shown[] = [...PROGRAM, ...ENGINE];
  return Object.fromEntries(names.map((name) => [name, new Float32Array(count)])) as Columns;
}

/** How much of each column of a view goes into what; `all` gets it, for whoever asks again and again. */
export function columnsOf(rank: TimelineRank, view: View, count: number, all = emptyColumns(count)): Columns {
  for (const [name, columns] of Object.entries(all)) {
    columns.fill(0);
    if (name !== "compute") cover(rank.spans[name === "other" ? "exchange" : (name as Activity)], view, columns);
  }
  cover([rank.begin, rank.end - rank.begin, rank.end - rank.begin, 0, 1], view, all.compute);
  const at = (columns: Float32Array, i: number) => columns[i] ?? 0;
  for (let i = 0; i < count; i++) {
    all.compute[i] = Math.max(0, at(all.compute, i) - at(all.wait_for_data, i) - at(all.wait_for_exchange, i));
    const named = at(all.send, i) + at(all.reduce, i) + at(all.copy, i) + at(all.wait_for_ranks, i);
    all.other[i] = Math.max(0, at(all.other, i) - named);
  }
  return all;
}

/** Of a view, the share (0 to 1) that a rank spends with each. */
export function sharesOf(rank: TimelineRank, view: View): Record<Shown, number> {
  const columns = columnsOf(rank, view, 1);
  return Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[0] ?? 0])) as Record<Shown, number>;
}

export function shownTime(microseconds: number): string {
  if (Math.abs(microseconds) >= 1e6) return `${Number((microseconds / 1e6).toPrecision(6))} s`;
  if (Math.abs(microseconds) >= 1e3) return `${Number((microseconds / 1e3).toPrecision(4))} ms`;
  return `${Math.round(microseconds)} µs`;
}

/** Pixels from one tick to the next, at least: its label has room. */
const BETWEEN_TICKS = 90;

export interface Tick {
  /** Of the view, 0 to 1. */
  place: number;
  label: string;
}

/** The smallest of 1, 2 and 5 times a power of ten that is `least` or more, a whole number of microseconds. */
export function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return ([1, 2, 5, 10].find((factor) => factor * power >= least) ?? 10) * power;
}

/** Round times since `origin`, all in the unit of the largest, so that they can be compared at a glance. */
export function ticksOf(view: View, origin: number, width: number): Tick[] {
  const step = roundStep(((view.to - view.from) * BETWEEN_TICKS) / Math.max(width, 1));
  const [begin, end] = [view.from - origin, view.to - origin];
  const [unit, of] = end >= 1e6 ? ["s", 1e6] : end >= 1e3 ? ["ms", 1e3] : ["µs", 1];
  const digits = Math.max(0, Math.ceil(Math.log10(of / step)));
  const ticks: Tick[] = [];
  for (let time = Math.ceil(begin / step) * step; time <= end; time += step) {
    ticks.push({ place: (time - begin) / (end - begin), label: `${(time / of).toFixed(digits)} ${unit}` });
  }
  return ticks;
}

/** What a rank does at one time, for who points at it. */
export function spansAt(data: TimelineData, rank: TimelineRank, time: number): string[] {
  const words: string[] = [];
  for (const activity of ["wait_for_data", "wait_for_exchange", "exchange", "negotiate"] as const) {
    const spans = rank.spans[activity] ?? [];
    for (let i = 0; i < spans.length; i += NUMBERS) {
      const [begin = 0, length = 0, covered = 0, label = 0, count = 1] = spans.slice(i, i + NUMBERS);
      if (time < begin || time > begin + length) continue;
      const what = activity === "exchange" ? "collective" : WORDS[activity];
      const name = data.labels[label - 1];
      const of = count > 1 ? `, ${count} of them, ${shownTime(covered)} in all` : `, ${shownTime(length)}`;
      words.push(`${what}${name === undefined ? "" : ` (${name})`}${of}`);
      break;
    }
  }
  return words;
}
