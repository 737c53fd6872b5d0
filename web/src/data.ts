// The one interface of the page to its data. It has two sources: what `gyre report` has put into the file (embedded.ts),
// and the routes of a job that runs (live.ts).

import type { TimelineData, View } from "./timeline_data";

export type Value = number | "NaN" | "Infinity" | "-Infinity";

/** One line of a chart: the same number of places, times (seconds since 1970) and values. */
export interface LineData {
  run: number;
  rank: number;
  step: number[];
  time: number[];
  value: Value[];
  /**
   * Where these are a selection: for how many numbers each stands, itself and those before it that were left out, and
   * their mean. Smoothing needs them: a selection has the lowest and the highest values, which are not what is usual.
   */
  weight?: number[];
  mean?: (number | null)[];
  /** How many points there are, of which these are a selection. */
  count: number;
}

export interface ChartData {
  name: string;
  lines: LineData[];
}

export interface Run {
  name: string;
  notes: Record<string, string>;
  /** How it ended; none of a run that is followed here. */
  end?: string | undefined;
}

export interface Index {
  runs: Run[];
  charts: { name: string; lines: number }[];
}

export type Phase = "failed" | "lost" | "late" | "starting" | "running" | "stopped" | "ended";

export interface Rank {
  rank: number;
  phase: Phase;
  detail: string;
  role: string;
  /** Of a job over several; else empty. */
  host?: string;
  /** 0 where it is not known. */
  process: number;
  started: number;
  /** Bytes of the log: where this start begins, and where it had ended. */
  log_begin: number;
  log_end: number | null;
  step: number | null;
  steps_per_second: number | null;
  waiting: number | null;
  cpu_cores: number | null;
  memory_bytes: number | null;
}

export interface JobEvent {
  number: number;
  time: number;
  rank: number | null;
  kind: string;
  text: string;
}

export interface Job {
  name: string;
  state: "preparing" | "running" | "stopping" | "ended" | "failed" | "stopped";
  exit_code: number | null;
  first_failed_rank: number | null;
  report: string;
  restarts: number;
  /** What comes before its ranks: how far the staging of its data is. */
  preparing?: string;
  ranks: Rank[];
  events: JobEvent[];
}

export type Axis = "step" | "time";

export interface Range {
  axis: Axis;
  from: number;
  to: number;
}

/**
 * "lost" and "silent" (connected, but nothing comes): it is tried again; "refused": somebody else answers there now. When the job has ended: "ending": the last of it
 * is being fetched; "over": nothing changes any more; "cut": nor can the rest be fetched.
 */
export type Connection = "embedded" | "connecting" | "live" | "lost" | "silent" | "refused" | "ending" | "over" | "cut";

export function isOver(connection: Connection): boolean {
  return ["ending", "over", "cut"].includes(connection);
}

export interface State {
  index: Index;
  job: Job | null;
  /** Bytes of each rank's log. */
  logs: ReadonlyMap<number, number>;
  /** Another number when charts have changed. */
  metrics: number;
  /** The same of the timeline; 0: there is none. */
  timeline: number;
  connection: Connection;
}

export interface Source {
  readonly live: boolean;
  state(): State;
  /** Calls `change` after each change of state(); returns how to end that. */
  watch(change: () => void): () => void;
  /** What is known of a chart at once. */
  kept(name: string): ChartData | null;
  /** The newest, of all or of a range in detail. Fails where the job cannot be asked. */
  chart(name: string, range?: Range): Promise<ChartData>;
  /** What is known of the timeline at once. */
  keptTimeline(): TimelineData | null;
  /** The newest, of all (null) or of a view in detail. Fails where the job cannot be asked. */
  timeline(view: View | null): Promise<TimelineData>;
  /** Bytes `from` to `to` (exclusive) of a rank's log, or as many as there are; `at`: where they begin. */
  log(rank: number, from: number, to: number): Promise<{ at: number; bytes: Uint8Array }>;
  /** Where that part of a rank's log begins which stays when the job can no longer be asked. */
  keptLogFrom(rank: number): number;
  /** A link for another browser. */
  newLink(): Promise<string>;
}

/** One line as it is drawn. */
export interface Line {
  label: string;
  rank: number;
  run: number;
  x: number[];
  /** null: not a finite number. */
  y: (number | null)[];
  /** As LineData has them. */
  weight: number[];
  mean: (number | null)[];
  last: Value;
}

function finite(value: Value): number | null {
  return typeof value === "number" ? value : null;
}

/** When a run began, by its own note or else by the first that a chart has of it. */
export function begun(runs: Run[], chart: ChartData, run: number): number {
  const noted = Date.parse(runs[run]?.notes["started"] ?? "") / 1000;
  if (!Number.isNaN(noted)) return noted;
  return Math.min(...chart.lines.filter((line) => line.run === run).map((line) => line.time[0] ?? Infinity));
}

/** With larger steps, such as clocks, neighbouring places of a chart would be one number. */
const LARGEST_STEP = 2 ** 52;

/** What steps are counted from. */
export function firstStep(chart: ChartData): number {
  const edges = chart.lines.flatMap(({ step }) => [least(step), -least(step.map((one) => -one))]).filter(Number.isFinite);
  return edges.some((edge) => Math.abs(edge) > LARGEST_STEP) ? least(edges) : 0;
}

export function least(values: number[]): number {
  return values.reduce((a, b) => Math.min(a, b), Infinity);
}

/**
 * Positions of what is drawn of a line, in ascending places. A job that goes on from a checkpoint does steps again: over
 * steps, a point counts until a later one has its step or an earlier one; over time, all do.
 */
function positionsOf(line: LineData, axis: Axis): number[] {
  if (axis === "step") {
    const drawn: number[] = [];
    line.step.forEach((step, i) => {
      while (drawn.length > 0 && (line.step[drawn.at(-1) ?? 0] ?? 0) >= step) drawn.pop();
      drawn.push(i);
    });
    return drawn;
  }
  const points = new Map<number, number>(); // A chart needs ascending places.
  line.time.forEach((time, i) => points.set(time, i));
  return [...points].sort(([a], [b]) => a - b).map(([, i]) => i);
}

/** `first`: of the whole chart, of which `chart` may be a part. */
export function linesOf(chart: ChartData, runs: Run[], axis: Axis, first: number): Line[] {
  return chart.lines.map((line) => {
    const origin = axis === "time" ? begun(runs, chart, line.run) : first;
    const places = axis === "time" ? line.time : line.step;
    const drawn = positionsOf(line, axis);
    const y = drawn.map((i) => finite(line.value[i] ?? "NaN"));
    const name = runs.length > 1 ? `${runs[line.run]?.name ?? ""} ` : "";
    return {
      label: `${name}rank ${line.rank}`,
      rank: line.rank,
      run: line.run,
      x: drawn.map((i) => (places[i] ?? 0) - origin),
      y,
      weight: drawn.map((i) => line.weight?.[i] ?? 1),
      mean: line.mean === undefined ? y : drawn.map((i) => line.mean?.[i] ?? null),
      last: line.value.at(-1) ?? "NaN",
    };
  });
}

/** Of a chart and a part of it in detail: all points, those of the detail where it has any. */
export function withDetail(chart: ChartData, detail: ChartData, axis: Axis): ChartData {
  const lines = chart.lines.map((line) => {
    const fine = detail.lines.find(({ run, rank }) => run === line.run && rank === line.rank);
    if (fine === undefined || fine.step.length === 0) return line;
    const places = (one: LineData) => (axis === "time" ? one.time : one.step);
    const from = least(places(fine));
    const to = -least(places(fine).map((place) => -place));
    const indices = (axis === "time" ? line.time.map((_, i) => i) : positionsOf(line, axis)).map((i) => ({ place: places(line)[i] ?? 0, i }));
    const before = indices.filter(({ place }) => place < from).map(({ i }) => i);
    const behind = indices.filter(({ place }) => place > to).map(({ i }) => i);
    const both = <Item>(all: Item[], part: Item[]): Item[] => [...before.map((i) => all[i] as Item), ...part, ...behind.map((i) => all[i] as Item)];
    return {
      ...line,
      step: both(line.step, fine.step),
      time: both(line.time, fine.time),
      value: both(line.value, fine.value),
      weight: both(line.weight ?? line.step.map(() => 1), fine.weight ?? fine.step.map(() => 1)),
      mean: both(line.mean ?? line.value.map(finite), fine.mean ?? fine.value.map(finite)),
    };
  });
  return { ...chart, lines };
}

/** The program's own charts first. */
export function inOrder(names: string[]): string[] {
  const isOwn = (name: string) => Number(name.startsWith("gyre/"));
  return [...names].sort((a, b) => isOwn(a) - isOwn(b) || a.localeCompare(b));
}

export function shown(value: Value | null | undefined, digits = 5): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) return Number(value.toPrecision(digits - 1)).toExponential();
  return String(Number(value.toPrecision(digits)));
}

export function shownBytes(bytes: number, digits = 4): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(bytes) >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${Number(bytes.toPrecision(digits))} ${units[unit]}`;
}
