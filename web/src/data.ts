// What `gyre report` puts into the page, and what the charts make of it.

export type Value = number | "NaN" | "Infinity" | "-Infinity";
/** Step, seconds since 1970, value. */
export type Point = [number, number, Value];

export interface Series {
  name: string;
  rank: number;
  points: Point[];
}

export interface Run {
  name: string;
  notes: Record<string, string>;
  series: Series[];
}

export interface Report {
  runs: Run[];
}

export type Axis = "step" | "time";

/** One line of a chart. */
export interface Line {
  label: string;
  rank: number;
  run: number;
  x: number[];
  /** null: not a finite number. */
  y: (number | null)[];
  last: Value;
}

export interface Chart {
  name: string;
  lines: Line[];
}

export function readReport(): Report {
  const text = document.getElementById("data")?.textContent ?? "";
  return JSON.parse(text) as Report;
}

function finite(value: Value): number | null {
  return typeof value === "number" ? value : null;
}

/** Exponential moving average, with the weight of the first values put right; 0: none. */
export function smooth(values: (number | null)[], weight: number): (number | null)[] {
  if (weight === 0) return values;
  let sum = 0;
  let weights = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = sum * weight + value * (1 - weight);
    weights = weights * weight + (1 - weight);
    return sum / weights;
  });
}

function start(run: Run): number {
  return Math.min(...run.series.map((series) => series.points[0]?.[1] ?? Infinity));
}

function lineOf(report: Report, run: number, series: Series, axis: Axis, begun: number): Line {
  // A chart needs ascending places; a job that went on from a checkpoint repeats steps, of which the later counts.
  const points = new Map<number, Value>();
  for (const [step, time, value] of series.points) points.set(axis === "step" ? step : time - begun, value);
  const sorted = [...points].sort(([a], [b]) => a - b);
  const name = report.runs.length > 1 ? `${report.runs[run]?.name ?? ""} ` : "";
  return {
    label: `${name}rank ${series.rank}`,
    rank: series.rank,
    run,
    x: sorted.map(([x]) => x),
    y: sorted.map(([, value]) => finite(value)),
    last: series.points.at(-1)?.[2] ?? "NaN",
  };
}

/** A chart for each name, the program's own first. */
export function chartsOf(report: Report, axis: Axis): Chart[] {
  const charts = new Map<string, Chart>();
  report.runs.forEach((run, index) => {
    const begun = start(run);
    for (const series of run.series) {
      const chart = charts.get(series.name) ?? { name: series.name, lines: [] };
      chart.lines.push(lineOf(report, index, series, axis, begun));
      charts.set(series.name, chart);
    }
  });
  const isOwn = (chart: Chart) => Number(chart.name.startsWith("gyre/"));
  return [...charts.values()].sort((a, b) => isOwn(a) - isOwn(b) || a.name.localeCompare(b.name));
}

export function shown(value: Value | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) return Number(value.toPrecision(4)).toExponential();
  return String(Number(value.toPrecision(5)));
}
