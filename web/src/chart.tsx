import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { type Axis, type Chart as ChartData, type Line, shown, smooth } from "./data";

export interface Look {
  axis: Axis;
  smoothing: number;
  logarithmic: boolean;
  dark: boolean;
}

const HEIGHT = 220;
/** Told apart with common colour blindness; after Okabe and Ito, the yellow darkened. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b", "#7f7f7f", "#9467bd"];
const MOST_LEGENDS = 8;

/** The same in all charts: by rank, and where runs are compared, by run first. */
function colourOf(line: Line): string {
  return COLOURS[(2 * line.run + line.rank) % COLOURS.length] ?? "#0072b2";
}

function optionsOf(chart: ChartData, look: Look, width: number): uPlot.Options {
  const text = look.dark ? "#c9d1d9" : "#3b4148";
  const grid = { stroke: look.dark ? "#30363d" : "#e3e6e9", width: 1 };
  const axis: uPlot.Axis = { stroke: text, grid, ticks: grid, font: "12px system-ui, sans-serif" };
  const values = (_: uPlot, ticks: number[]) => ticks.map((tick) => (tick === null ? "" : shown(tick)));
  return {
    width,
    height: HEIGHT,
    cursor: { sync: { key: "gyre" }, drag: { x: true, y: false } },
    legend: { show: chart.lines.length <= MOST_LEGENDS },
    scales: { x: { time: false }, y: { distr: look.logarithmic ? 3 : 1 } },
    axes: [axis, { ...axis, size: 64, values }],
    series: [
      { label: look.axis === "step" ? "step" : "seconds" },
      ...chart.lines.map((line) => ({
        label: line.label,
        stroke: colourOf(line),
        width: 1.5,
        points: { show: line.x.length === 1 },
        value: (_: uPlot, value: number | null) => shown(value),
      })),
    ],
  };
}

function tablesOf(chart: ChartData, look: Look): uPlot.AlignedData {
  const tables = chart.lines.map((line): uPlot.AlignedData => {
    const values = smooth(line.y, look.smoothing);
    // No logarithm of what is not positive.
    return [line.x, look.logarithmic ? values.map((value) => (value !== null && value > 0 ? value : null)) : values];
  });
  const modes: uPlot.JoinNullMode[][] = tables.map(() => [0, 2]); // What was not a number stays a gap.
  return uPlot.join(tables, modes);
}

export function Chart({ chart, look }: { chart: ChartData; look: Look }) {
  const place = useRef<HTMLDivElement>(null);
  const data = useMemo(() => tablesOf(chart, look), [chart, look]);
  useEffect(() => {
    const target = place.current;
    if (target === null) return;
    let plot: uPlot | null = null;
    // Drawn when it comes into view: a job may have hundreds.
    const seen = new IntersectionObserver(
      ([entry]) => {
        if (entry?.isIntersecting && plot === null) {
          plot = new uPlot(optionsOf(chart, look, target.clientWidth), data, target);
        }
      },
      { rootMargin: "300px" },
    );
    const resized = new ResizeObserver(() => plot?.setSize({ width: target.clientWidth, height: HEIGHT }));
    seen.observe(target);
    resized.observe(target);
    return () => {
      seen.disconnect();
      resized.disconnect();
      plot?.destroy();
    };
  }, [chart, look, data]);
  return (
    <section class="chart" aria-label={chart.name}>
      <h2>{chart.name}</h2>
      <div class="plot" ref={place} role="img" aria-label={describe(chart)} />
    </section>
  );
}

/** For those who do not see it. */
function describe(chart: ChartData): string {
  const lines = chart.lines.slice(0, MOST_LEGENDS).map((line) => {
    const values = line.y.filter((value) => value !== null);
    const range = values.length > 0 ? `, from ${shown(least(values))} to ${shown(-least(values.map((y) => -y)))}` : "";
    return `${line.label}: ends at ${shown(line.last)}${range}`;
  });
  const more = chart.lines.length - lines.length;
  return `${chart.name}. ${lines.join("; ")}${more > 0 ? `; and ${more} more` : ""}`;
}

function least(values: number[]): number {
  return values.reduce((a, b) => Math.min(a, b), Infinity);
}
