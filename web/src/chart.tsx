import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import type { CommonZoom } from "./choice";
import { type Axis, type ChartData, type Line, type Run, type Source, begun, firstStep, linesOf, shown, shownBytes, withDetail } from "./data";
import { MOST_LEGENDS, describe, manyLines, tickLabels, whyEmpty } from "./chart_words";
import { Table } from "./table";

export interface Look {
  axis: Axis;
  smoothing: number;
  logarithmic: boolean;
  dark: boolean;
}

/** A range of a chart's places. */
interface Zoom {
  from: number;
  to: number;
}

const HEIGHT = 220;
/** Told apart with common colour blindness; after Okabe and Ito, the yellow darkened. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b", "#7f7f7f", "#9467bd"];
/** Told apart where two lines share a colour: the first run is solid. */
const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]];
/** In the legend, of the same runs. */
const BORDERS = ["solid", "dashed", "dotted", "double"];
/** A chart that grows is drawn again this often. */
const BETWEEN_FETCHES_MS = 2_000;
/** Zooming settles first, then the points between are fetched. */
const BEFORE_DETAIL_MS = 200;
/** A slider that has not moved for so long has come to rest. */
const AT_REST_MS = 200;

/** The same in all charts: by rank, and where runs are compared, by run first. */
function colourOf(line: Line): string {
  return COLOURS[(2 * line.run + line.rank) % COLOURS.length] ?? "#0072b2";
}

function lastOf(values: ArrayLike<number | null | undefined>): number | null {
  for (let i = values.length - 1; i >= 0; --i) {
    const value = values[i];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}

/** In place of a legend, below the chart. */
function sayLines(plot: uPlot, words: HTMLElement): void {
  const { left = -1, top = -1, idx, idxs } = plot.cursor;
  const points = left >= 0;
  const all = plot.series.slice(1).flatMap(({ label }, i) => {
    const values = plot.data[i + 1] ?? [];
    const value = points ? values[idxs?.[i + 1] ?? idx ?? -1] : lastOf(values);
    return value === null || value === undefined ? [] : [{ label: String(label), value }];
  });
  const text = manyLines(all, plot.series.length - 1, points ? (value) => Math.abs(plot.valToPos(value, "y") - top) : null);
  if (text !== words.textContent) words.textContent = text;
}

/** Where nobody points at a place, the legend has the last value of each line. */
function showTheLast(plot: uPlot): void {
  if ((plot.cursor.left ?? -1) >= 0) return;
  const last = plot.data.map((values) => {
    for (let i = values.length - 1; i >= 0; --i) if (values[i] !== null && values[i] !== undefined) return i;
    return null;
  });
  plot.setLegend({ idxs: last }, false);
}

function optionsOf(
  name: string,
  lines: Line[],
  look: Look,
  width: number,
  zoomTo: (zoom: Zoom | null) => void,
  alone: (line: number) => number[],
  first: number,
  words: HTMLElement,
): uPlot.Options {
  const written = (value: number, digits = 5) => (name.endsWith("_bytes") ? shownBytes(value, digits - 1) : shown(value, digits));
  const text = look.dark ? "#c9d1d9" : "#3b4148";
  const grid = { stroke: look.dark ? "#30363d" : "#e3e6e9", width: 1 };
  const axis: uPlot.Axis = { stroke: text, grid, ticks: grid, font: "12px system-ui, sans-serif" };
  const values = (_: uPlot, ticks: (number | null)[]) => tickLabels(ticks, written);
  const room = (_: uPlot, labels: string[] | null) => 20 + 7.5 * Math.max(4, ...(labels ?? []).map((label) => label.length));
  const hasLegend = lines.length <= MOST_LEGENDS;
  const say = (plot: uPlot) => sayLines(plot, words);
  return {
    width,
    height: HEIGHT,
    cursor: {
      // A selection goes to the other charts as the common zoom.
      sync: { key: "gyre", filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => (zoomTo(null), null) },
    },
    hooks: {
      draw: [showTheLast, ...hasLegend ? [] : [say]],
      setLegend: [showTheLast],
      setCursor: hasLegend ? [] : [say],
      setSelect: [
        (plot) => {
          const { left, width: selected } = plot.select;
          if (selected < 2 || plot.posToVal(left + selected, "x") - plot.posToVal(left, "x") < 2 ** -40 * Math.abs(plot.posToVal(left, "x"))) return;
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          zoomTo({ from: plot.posToVal(left, "x"), to: plot.posToVal(left + selected, "x") });
        },
      ],
    },
    legend: { show: hasLegend, markers: { dash: (_, series) => BORDERS[(lines[series - 1]?.run ?? 0) % BORDERS.length] ?? "solid" } },
    scales: { x: { time: false }, y: { distr: look.logarithmic ? 3 : 1 } },
    axes: [axis, { ...axis, size: room, values }],
    series: [
      { label: look.axis === "time" ? "seconds" : first === 0 ? "step" : `step − ${first}` },
      ...lines.map((line) => ({
        label: line.label,
        stroke: colourOf(line),
        // Of many lines, thin ones: without a GPU most of the time goes into their edges.
        width: hasLegend ? 1.5 : 1,
        dash: DASHES[line.run % DASHES.length] ?? [],
        points: { show: false, filter: (_: uPlot, series: number) => alone(series - 1) },
        value: (_: uPlot, value: number | null) => (value === null ? "–" : written(value)),
      })),
    ],
  };
}

/** What is zoomed to, of all that there is. */
function extent(data: uPlot.AlignedData): Zoom {
  const places = data[0];
  return { from: places[0] ?? 0, to: places.at(-1) ?? 1 };
}

/** One chart on its canvas, from when it comes into view. */
class Drawing {
  #plot: uPlot | null = null;
  #names = "";
  #lines: Line[] = [];
  #table: Table = Table.of([]);
  #drawn: Table = this.#table;
  #coarse: { zoom: Zoom | null; table: Table | null } | null = null;
  #smoothing = 0;
  #first = 0;
  #frame = 0;
  #rest = 0;

  constructor(
    private readonly name: string,
    private readonly target: HTMLElement,
    private readonly words: HTMLElement,
    public zoom: Zoom | null,
    private readonly zoomTo: (zoom: Zoom | null) => void,
  ) {}

  show(lines: Line[], look: Look, first: number): void {
    this.#first = first;
    const moves = lines === this.#lines && look.smoothing !== this.#smoothing;
    this.#smoothing = look.smoothing;
    if (lines !== this.#lines) {
      this.#lines = lines;
      this.#table = Table.of(lines);
      this.#coarse = null;
    }
    clearTimeout(this.#rest);
    if (!moves) return this.#draw(this.#table, look);
    // Once a frame, however often the slider says that it has moved.
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      if (this.#coarse?.zoom !== this.zoom || this.#coarse === null) {
        this.#coarse = { zoom: this.zoom, table: Table.coarse(lines, this.zoom) };
      }
      const coarse = this.#coarse.table;
      if (coarse !== null) this.#rest = setTimeout(() => this.#draw(this.#table, look), AT_REST_MS);
      this.#draw(coarse ?? this.#table, look);
    });
  }

  #draw(table: Table, look: Look): void {
    this.#drawn = table;
    const data = [table.places, ...table.fill(look.smoothing, look.logarithmic)] as uPlot.AlignedData;
    const names = JSON.stringify([this.#first, ...this.#lines.map((line) => line.label)]);
    if (this.#plot === null || names !== this.#names) {
      this.#plot?.destroy();
      this.#names = names;
      const alone = (line: number) => this.#drawn.alone[line] ?? [];
      this.#plot = new uPlot(optionsOf(this.name, this.#lines, look, this.target.clientWidth, this.zoomTo, alone, this.#first, this.words), data, this.target);
    } else {
      this.#plot.setData(data, this.zoom === null);
    }
    this.#scale();
  }

  apply(zoom: Zoom | null): void {
    this.zoom = zoom;
    if (zoom === null && this.#plot !== null) this.#plot.setData(this.#plot.data, true);
    this.#scale();
  }

  /** In parts of what is seen: closer, farther, to the left, to the right. */
  move(factor: number, shift: number): void {
    if (this.#plot === null) return;
    const now = this.zoom ?? extent(this.#plot.data);
    const width = now.to - now.from;
    const middle = now.from + width * (0.5 + shift);
    // Closer, neighbouring places would be one number.
    if (width * factor < 2 ** -40 * Math.max(Math.abs(now.from), Math.abs(now.to))) return;
    this.zoomTo({ from: middle - (width * factor) / 2, to: middle + (width * factor) / 2 });
  }

  resize(): void {
    this.#plot?.setSize({ width: this.target.clientWidth, height: HEIGHT });
  }

  destroy(): void {
    clearTimeout(this.#rest);
    cancelAnimationFrame(this.#frame);
    this.#plot?.destroy();
  }

  #scale(): void {
    if (this.zoom !== null) this.#plot?.setScale("x", { min: this.zoom.from, max: this.zoom.to });
  }
}

/** The newest data of a chart, while it is in view. */
function useChartData(source: Source, name: string, version: number, inView: boolean): ChartData | null {
  const [data, setData] = useState(() => source.kept(name));
  const fetched = useRef({ source, version: -1, at: -Infinity });
  useEffect(() => {
    if (!source.live) return;
    if (fetched.current.source !== source) fetched.current = { source, version: -1, at: -Infinity };
    if (!inView || fetched.current.version === version) {
      setData(source.kept(name) ?? null);
      return;
    }
    const wait = Math.max(0, fetched.current.at + BETWEEN_FETCHES_MS - performance.now());
    const timer = setTimeout(() => {
      fetched.current = { source, version, at: performance.now() };
      source.chart(name).then(setData, () => setData(source.kept(name)));
    }, wait);
    return () => clearTimeout(timer);
  }, [source, name, version, inView]);
  return source.live ? data : source.kept(name);
}

/** The points that a selection has left out, of what is zoomed to. */
function useDetail(source: Source, data: ChartData | null, runs: Run[], axis: Axis, first: number, zoom: Zoom | null): ChartData | null {
  const [detail, setDetail] = useState<{ zoom: Zoom; data: ChartData } | null>(null);
  useEffect(() => {
    const isSelection = data?.lines.some((line) => line.count > line.step.length) ?? false;
    // Runs that began at different times have no range of time in common.
    if (zoom === null || data === null || !source.live || !isSelection || (axis === "time" && runs.length > 1)) return;
    const origin = axis === "time" ? begun(runs, data, 0) : first;
    const timer = setTimeout(() => {
      const range = { axis, from: zoom.from + origin, to: zoom.to + origin };
      source.chart(data.name, range).then((fine) => setDetail({ zoom, data: fine }), () => {});
    }, BEFORE_DETAIL_MS);
    return () => clearTimeout(timer);
  }, [source, data, runs, axis, first, zoom]);
  return detail !== null && detail.zoom === zoom ? detail.data : null;
}

export function Chart({ source, name, version, runs, look, common, zoomAll, printing }: {
  source: Source;
  name: string;
  version: number;
  runs: Run[];
  look: Look;
  common: CommonZoom | null;
  zoomAll: (zoom: CommonZoom | null) => void;
  printing: boolean;
}) {
  const place = useRef<HTMLDivElement>(null);
  const below = useRef<HTMLParagraphElement>(null);
  const drawing = useRef<Drawing | null>(null);
  const [isNear, setNear] = useState(false);
  const inView = isNear || printing;
  const data = useChartData(source, name, version, inView);
  const first = useMemo(() => (data === null ? 0 : firstStep(data)), [data]);
  const zoom = useMemo(() => common && { from: common.from + (common.first - first), to: common.to + (common.first - first) }, [common, first]);
  const detail = useDetail(source, inView ? data : null, runs, look.axis, first, zoom);
  const lines = useMemo(() => (data === null ? [] : linesOf(detail === null ? data : withDetail(data, detail, look.axis), runs, look.axis, first)), [data, detail, runs, look.axis, first]);
  const whole = useMemo(() => (data === null ? [] : linesOf(data, runs, look.axis, first)), [data, runs, look.axis, first]);

  useEffect(() => {
    const target = place.current;
    if (target === null) return;
    // Drawn when it comes into view: a job may have hundreds.
    const seen = new IntersectionObserver(([entry]) => setNear(entry?.isIntersecting ?? false), { rootMargin: "300px" });
    const resized = new ResizeObserver(() => drawing.current?.resize());
    seen.observe(target);
    resized.observe(target);
    return () => {
      seen.disconnect();
      resized.disconnect();
    };
  }, []);
  const words = useMemo(() => describe(name, whole), [name, whole]);
  const empty = useMemo(() => whyEmpty(whole, look.logarithmic), [whole, look.logarithmic]);
  const firstNow = useRef(first);
  firstNow.current = first;
  const setZoom = (zoom: Zoom | null) => zoomAll(zoom && { ...zoom, first: firstNow.current });
  // Smoothing changes with every movement of its slider: the chart stays, and has other values.
  const { axis, logarithmic, dark } = look;
  // Before anything is shown, and before it is printed.
  useLayoutEffect(() => {
    return () => {
      drawing.current?.destroy();
      drawing.current = null;
    };
  }, [axis, logarithmic, dark]);
  useLayoutEffect(() => {
    if (place.current === null || below.current === null || lines.length === 0 || !inView) return;
    drawing.current ??= new Drawing(name, place.current, below.current, zoom, setZoom);
    drawing.current.show(lines, look, first);
  }, [lines, look, first, inView]);
  useLayoutEffect(() => drawing.current?.apply(zoom), [zoom, axis, logarithmic, dark]);

  const button = (sign: string, words: string, act: () => void, disabled = false) => (
    <button type="button" title={words} aria-label={`${words}: ${name}`} onClick={act} disabled={disabled}>
      {sign}
    </button>
  );
  return (
    <section class="chart" aria-label={name}>
      <div class="title">
        <h2>{name}</h2>
        <div class="tools">
          {button("+", "Zoom in", () => drawing.current?.move(0.5, 0))}
          {button("−", "Zoom out", () => drawing.current?.move(2, 0), zoom === null)}
          {button("‹", "Earlier", () => drawing.current?.move(1, -0.25), zoom === null)}
          {button("›", "Later", () => drawing.current?.move(1, 0.25), zoom === null)}
          {button("↺", "Show all", () => setZoom(null), zoom === null)}
        </div>
      </div>
      <div class="plot" ref={place} role="img" aria-label={words} />
      {empty !== "" && <p class="quiet">{empty}</p>}
      <p class="quiet words" aria-hidden="true" ref={below} />
    </section>
  );
}
