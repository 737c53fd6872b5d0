// The timeline of all ranks: a row for each, above what its program does, below what its engine does.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { ChangeChoice } from "./choice";
import type { Source, State } from "./data";
import { usePrinting } from "./printing";
import {
  ENGINE,
  PROGRAM,
  type Shown,
  type TimelineData,
  type View,
  WORDS,
  columnsOf,
  emptyColumns,
  sharesOf,
  shownTime,
  spansAt,
  ticksOf,
} from "./timeline_data";

const LANE = 13;
const ROW = 34;
const MOST_ROWS = 256;
/** In words for those who do not see it; the table has all. */
const MOST_TOLD = 16;
const BETWEEN_FETCHES_MS = 2_000;
const BEFORE_DETAIL_MS = 150;
/** Nobody reads a description of what moves. */
const BEFORE_WORDS_MS = 250;
/** Pixels; closer to an edge, a tick's label stands within it. */
const HALF_LABEL = 34;
/** The closest view. */
const FEWEST_US = 10;
/** Told apart with common colour blindness; those of the charts. */
const COLOURS: Record<Shown, [red: number, green: number, blue: number]> = {
  compute: [0, 158, 115],
  wait_for_data: [184, 134, 11],
  wait_for_exchange: [213, 94, 0],
  send: [148, 103, 189],
  reduce: [0, 114, 178],
  copy: [86, 180, 233],
  wait_for_ranks: [204, 121, 167],
  other: [160, 160, 160],
  negotiate: [110, 110, 110],
};

/** Data of a view, the newest. */
function useTimeline(source: Source, version: number, view: View | null): TimelineData | null {
  const [whole, setWhole] = useState(() => source.keptTimeline());
  const [detail, setDetail] = useState<{ view: View; data: TimelineData } | null>(null);
  const fetchedAt = useRef(-Infinity);
  useEffect(() => {
    if (!source.live) return;
    const timer = setTimeout(() => {
      fetchedAt.current = performance.now();
      source.timeline(null).then(setWhole, () => setWhole(source.keptTimeline()));
    }, Math.max(0, fetchedAt.current + BETWEEN_FETCHES_MS - performance.now()));
    return () => clearTimeout(timer);
  }, [source, version]);
  useEffect(() => {
    if (!source.live || view === null) return;
    const timer = setTimeout(() => {
      source.timeline(view).then((data) => setDetail({ view, data }), () => {});
    }, BEFORE_DETAIL_MS);
    return () => clearTimeout(timer);
  }, [source, view]);
  if (whole === null) return null;
  return detail !== null && detail.view === view ? { ...detail.data, from: whole.from, to: whole.to } : whole;
}

/** The lanes of one rank, column by column: what shares a column lies over each other. */
function fillRow(pixels: ImageData, top: number, lane: number, shown: Shown[], columns: Record<Shown, Float32Array>): void {
  const words = new Uint32Array(pixels.data.buffer); // A pixel at once; machines with browsers have their low bytes first.
  const { width } = pixels;
  const layers = shown.map((name) => {
    const [red, green, blue] = COLOURS[name];
    return { shares: columns[name], colour: (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0 };
  });
  for (let x = 0; x < width; x++) {
    let filled = 0;
    for (const { shares, colour } of layers) {
      const height = (shares[x] ?? 0) * lane;
      // What is there at all is seen.
      const end = Math.min(lane, height > 0.02 ? Math.max(filled + height, Math.floor(filled) + 1) : filled);
      for (let y = Math.floor(filled); y < Math.round(end); y++) {
        words[(top + lane - 1 - y) * width + x] = colour;
      }
      filled = end;
    }
  }
}

function draw(canvas: HTMLCanvasElement, data: TimelineData, view: View): void {
  const scale = devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * scale));
  const height = Math.max(1, Math.round(canvas.clientHeight * scale));
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d");
  if (context === null) return;
  const row = Math.round(ROW * scale);
  const lane = Math.round(LANE * scale);
  const pixels = context.createImageData(width, row);
  const columns = emptyColumns(width);
  data.ranks.slice(0, MOST_ROWS).forEach((rank, i) => {
    pixels.data.fill(0);
    columnsOf(rank, view, width, columns);
    fillRow(pixels, 2, lane, PROGRAM, columns);
    fillRow(pixels, 4 + lane, lane, ENGINE, columns);
    context.putImageData(pixels, 0, Math.round(i * ROW * scale));
  });
}

function percent(share: number): string {
  return share > 0 && share < 0.005 ? "< 1 %" : `${Math.round(100 * share)} %`;
}

function describe(data: TimelineData, view: View): string {
  const ranks = data.ranks.slice(0, MOST_TOLD).map((rank) => {
    const shares = sharesOf(rank, view);
    const words = [...PROGRAM, ...ENGINE].filter((name) => shares[name] > 0).map((name) => `${WORDS[name]} ${percent(shares[name])}`);
    return `rank ${rank.rank} ${words.join(", ")}`;
  });
  const more = data.ranks.length - ranks.length;
  return `Timeline of ${data.ranks.length} ranks, ${shownTime(view.to - view.from)}. ${ranks.join("; ")}${more > 0 ? `; and ${more} more` : ""}`;
}

/** Round times since the job's begin, below the rows. */
function Ticks({ view, origin, left, width }: { view: View; origin: number; left: number; width: number }) {
  const side = (place: number) => (place * width < HALF_LABEL ? " first" : (1 - place) * width < HALF_LABEL ? " last" : "");
  return (
    <div class="ticks" aria-hidden="true">
      <div style={{ marginLeft: `${left}px`, width: `${width}px` }}>
        {ticksOf(view, origin, width).map(({ place, label }) => (
          <span key={label} class={`tick${side(place)}`} style={{ left: `${100 * place}%` }}><b>{label}</b></span>
        ))}
      </div>
    </div>
  );
}

/** Made only while it is open: with many ranks it is work. */
function SharesTable({ data, view }: { data: TimelineData; view: View }) {
  const [opened, setOpen] = useState(false);
  const printing = usePrinting();
  const open = opened || printing;
  const table = useMemo(() => (open ? <Shares data={data} view={view} /> : null), [open, data, view]);
  return (
    <details open={open} onToggle={(event) => !printing && setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      {table}
    </details>
  );
}

function Shares({ data, view }: { data: TimelineData; view: View }) {
  const shown = [...PROGRAM, ...ENGINE];
  return (
    <div class="scrolls" tabIndex={0} role="region" aria-label="Shares of the time that is shown">
      <table>
        <thead>
          <tr>
            <th scope="col">rank</th>
            {shown.map((name) => <th key={name} scope="col">{WORDS[name]}</th>)}
          </tr>
        </thead>
        <tbody>
          {data.ranks.map((rank) => {
            const shares = sharesOf(rank, view);
            return (
              <tr key={rank.rank}>
                <th scope="row" title={rank.host}>{rank.rank}</th>
                {shown.map((name) => <td key={name}>{percent(shares[name])}</td>)}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

export function Timeline({ source, state, chosen, change }: { source: Source; state: State; chosen: View | null; change: ChangeChoice }) {
  const setChosen = (view: View | null) => change({ view });
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const [pointed, setPointed] = useState("");
  /** Of the rows, without the ranks' names. */
  const [{ left, width }, setPlace] = useState({ left: 0, width: 0 });
  const canvas = useRef<HTMLCanvasElement>(null);
  const data = useTimeline(source, state.timeline, chosen);
  const view = useMemo(() => chosen ?? { from: data?.from ?? 0, to: Math.max(data?.to ?? 1, (data?.from ?? 0) + 1) }, [chosen, data]);
  useEffect(() => {
    // Once a frame, however many keys and movements come meanwhile.
    const frame = requestAnimationFrame(() => canvas.current !== null && data !== null && draw(canvas.current, data, view));
    return () => cancelAnimationFrame(frame);
  }, [data, view, width]);
  const hasData = data !== null;
  useEffect(() => {
    const target = canvas.current;
    if (target === null) return;
    const resized = new ResizeObserver(() => {
      const { left } = target.getBoundingClientRect();
      setPlace({ left: left - (target.closest(".rows")?.getBoundingClientRect().left ?? left), width: target.clientWidth });
    });
    resized.observe(target);
    return () => resized.disconnect();
  }, [hasData]);
  const [latest, setWords] = useState("");
  const initial = useMemo(() => (data === null ? "" : describe(data, view)), [data === null]);
  const words = latest === "" ? initial : latest;
  useEffect(() => {
    const timer = setTimeout(() => setWords(data === null ? "" : describe(data, view)), BEFORE_WORDS_MS);
    return () => clearTimeout(timer);
  }, [data, view]);
  if (data === null || data.ranks.length === 0) return null;

  const move = (factor: number, shift: number) => {
    const length = Math.max(FEWEST_US, (view.to - view.from) * factor);
    const middle = (view.from + view.to) / 2 + shift * (view.to - view.from);
    const from = Math.max(data.from, Math.min(middle - length / 2, data.to - length));
    const next = { from: Math.round(from), to: Math.round(Math.min(from + length, data.to)) };
    setChosen(next.from <= data.from && next.to >= data.to ? null : next);
  };
  const keys: Record<string, () => void> = {
    "+": () => move(0.5, 0),
    "-": () => move(2, 0),
    ArrowLeft: () => move(1, -0.25),
    ArrowRight: () => move(1, 0.25),
    "0": () => setChosen(null),
  };
  const placeOf = (event: MouseEvent) => {
    const box = canvas.current?.getBoundingClientRect();
    return box === undefined ? 0 : Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const timeAt = (place: number) => view.from + place * (view.to - view.from);
  const point = (event: MouseEvent) => {
    const place = placeOf(event);
    if (drag !== null) setDrag({ ...drag, to: place });
    const row = Math.floor((event.clientY - (canvas.current?.getBoundingClientRect().top ?? 0)) / ROW);
    const rank = data.ranks[row];
    const time = timeAt(place);
    setPointed(rank === undefined ? "" : [`rank ${rank.rank} at ${shownTime(time - data.from)}`, ...spansAt(data, rank, time)].join("; "));
  };
  const release = () => {
    if (drag === null) return;
    const [from, to] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
    if (to - from > 0.005 && timeAt(to) - timeAt(from) >= FEWEST_US) setChosen({ from: Math.round(timeAt(from)), to: Math.round(timeAt(to)) });
    setDrag(null);
  };
  const button = (sign: string, name: string, act: () => void, disabled: boolean) => (
    <button type="button" title={name} aria-label={`${name}: timeline`} onClick={act} disabled={disabled}>{sign}</button>
  );
  const rows = Math.min(data.ranks.length, MOST_ROWS);
  return (
    <section class="panel timeline" aria-labelledby="timeline">
      <div class="title">
        <h2 id="timeline">Timeline</h2>
        <div class="tools">
          {button("+", "Zoom in", () => move(0.5, 0), view.to - view.from <= FEWEST_US)}
          {button("−", "Zoom out", () => move(2, 0), chosen === null)}
          {button("‹", "Earlier", () => move(1, -0.25), chosen === null)}
          {button("›", "Later", () => move(1, 0.25), chosen === null)}
          {button("↺", "Show all", () => setChosen(null), chosen === null)}
        </div>
      </div>
      <p class="legend">
        {[...PROGRAM, ...ENGINE].map((name) => (
          <span key={name}><i style={{ background: `rgb(${COLOURS[name].join(" ")})` }} />{WORDS[name]}</span>
        ))}
      </p>
      <div
        class="rows"
        role="group"
        tabIndex={0}
        aria-label="Rows of the ranks; plus and minus zoom, arrows move, 0 shows all"
        onKeyDown={(event) => {
          const act = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
          if (act === undefined) return;
          event.preventDefault();
          act();
        }}
      >
        <div class="names" aria-hidden="true">
          {data.ranks.slice(0, rows).map((rank) => <div key={rank.rank} style={{ height: `${ROW}px` }} title={rank.host}>{rank.rank}</div>)}
        </div>
        <div
          class="area"
          onMouseDown={(event) => setDrag({ from: placeOf(event), to: placeOf(event) })}
          onMouseMove={point}
          onMouseUp={release}
          onMouseLeave={() => (setDrag(null), setPointed(""))}
          onDblClick={() => setChosen(null)}
        >
          <canvas ref={canvas} role="img" aria-label={words} style={{ height: `${rows * ROW}px` }} />
          {drag !== null && (
            <div class="selection" style={{ left: `${100 * Math.min(drag.from, drag.to)}%`, width: `${100 * Math.abs(drag.to - drag.from)}%` }} />
          )}
        </div>
      </div>
      <Ticks view={view} origin={data.from} left={left} width={width} />
      <p class="quiet pointed">{pointed === "" ? "drag to zoom, double click to go back; above the program, below the exchange" : pointed}</p>
      {data.ranks.length > rows && <p class="quiet">{`and ${data.ranks.length - rows} more ranks, in the table`}</p>}
      <SharesTable data={data} view={view} />
    </section>
  );
}
