// The runs that `gyre report` has put into the page: nothing changes, and nothing is asked.
import type { ChartData, Run, Source, State, Value } from "./data";
import type { TimelineData } from "./timeline_data";

interface EmbeddedRun extends Run {
  series: { name: string; rank: number; points: [step: number, time: number, value: Value, weight?: number, mean?: number | null][] }[];
}

export function embeddedSource(text: string): Source {
  const { runs, timeline = null } = JSON.parse(text) as { runs: EmbeddedRun[]; timeline?: TimelineData };
  const charts = new Map<string, ChartData>();
  runs.forEach((each, run) => {
    for (const { name, rank, points } of each.series) {
      const chart = charts.get(name) ?? { name, lines: [] };
      charts.set(name, chart);
      chart.lines.push({
        run,
        rank,
        step: points.map(([step]) => step),
        time: points.map(([, time]) => time),
        value: points.map(([, , value]) => value),
        ...(points[0]?.[3] === undefined ? {} : { weight: points.map(([, , , weight]) => weight ?? 1), mean: points.map(([, , , , mean]) => mean ?? null) }),
        count: points.length,
      });
    }
  });
  const state: State = {
    index: {
      runs: runs.map(({ name, notes, end }) => ({ name, notes, end })),
      charts: [...charts.values()].map(({ name, lines }) => ({ name, lines: lines.length })),
    },
    job: null,
    logs: new Map(),
    metrics: 0,
    timeline: timeline === null ? 0 : 1,
    connection: "embedded",
  };
  const none = () => Promise.reject(new Error("a report has charts only"));
  const kept = (name: string) => charts.get(name) ?? null;
  return {
    live: false,
    state: () => state,
    watch: () => () => {},
    kept,
    chart: (name) => Promise.resolve(kept(name) ?? { name, lines: [] }),
    keptTimeline: () => timeline,
    timeline: none,
    log: none,
    keptLogFrom: () => 0,
    newLink: none,
  };
}
