// The lines of a chart as the one table that uPlot draws: a column for each line, over the places of all.
import type { Line } from "./data";

export type Cell = number | null | undefined;

/** With more cells, lines share places that are less than a pixel from their own: ranks log at different steps. */
const MOST_CELLS = 400_000;
const SHARED_PLACES = 4_096;
/** While a slider moves, of charts with more than FEW_POINTS. */
const COARSE_PLACES = 192;
const FEW_POINTS = 10_000;

export interface Extent {
  from: number;
  to: number;
}

export class Table {
  readonly places: number[];
  /** By line: where the table has each of its points; below zero: nowhere. */
  readonly #rows: Int32Array[];
  /** By line: its values; NaN for what is not a finite number. */
  readonly #values: Float64Array[];
  /** By line: what smoothing takes for each of its points. */
  readonly #means: Float64Array[];
  readonly #weights: Float64Array[];
  readonly #columns: Cell[][];
  /** By line, of the last fill(): points without a neighbour, which no line would show. */
  readonly alone: number[][] = [];

  private constructor(lines: Line[], places: number[], rows: Int32Array[]) {
    this.places = places;
    this.#values = lines.map(({ y }) => Float64Array.from(y, (value) => value ?? NaN));
    this.#means = lines.map(({ mean }) => Float64Array.from(mean, (value) => value ?? NaN));
    this.#weights = lines.map(({ weight }) => Float64Array.from(weight));
    this.#rows = rows;
    this.#columns = lines.map(() => new Array<Cell>(places.length));
  }

  static of(lines: Line[]): Table {
    const all = new Set<number>();
    for (const { x } of lines) for (const place of x) all.add(place);
    if (all.size * lines.length > MOST_CELLS) return Table.#shared(lines, null, SHARED_PLACES, true);
    const places = [...all].sort((a, b) => a - b);
    const rowOf = new Map(places.map((place, row) => [place, row]));
    const rows = lines.map(({ x }) => Int32Array.from(x, (place) => rowOf.get(place) ?? -1));
    return new Table(lines, places, rows);
  }

  /** What is enough while a slider moves; null: all of it can be drawn as fast. `range`: what is seen, null: all. */
  static coarse(lines: Line[], range: Extent | null): Table | null {
    const points = lines.reduce((sum, { x }) => sum + x.length, 0);
    return points <= FEW_POINTS ? null : Table.#shared(lines, range, COARSE_PLACES, false);
  }

  /** `all`: two points of a line are never in one row where there is another one behind it. */
  static #shared(lines: Line[], range: Extent | null, count: number, all: boolean): Table {
    let from = range?.from ?? Infinity;
    let to = range?.to ?? -Infinity;
    if (range === null) {
      for (const { x } of lines) {
        from = Math.min(from, x[0] ?? Infinity);
        to = Math.max(to, x.at(-1) ?? -Infinity);
      }
    }
    const step = (to - from) / (count - 1) || 1;
    const places = Array.from({ length: count }, (_, row) => from + row * step);
    const rows = lines.map(({ x }) => {
      let before = -1;
      return Int32Array.from(x, (place) => {
        if (range !== null && (place < from || place > to)) return -1;
        const row = Math.min(Math.max(Math.round((place - from) / step), all ? before + 1 : 0), count - 1);
        before = row;
        return row;
      });
    });
    return new Table(lines, places, rows);
  }

  /** The columns, of which there is one set: the next call changes them. */
  fill(weight: number, logarithmic: boolean): Cell[][] {
    for (let line = 0; line < this.#columns.length; line++) this.#fillLine(line, weight, logarithmic);
    return this.#columns;
  }

  /**
   * Smoothing is an exponential moving average, with the weight of the first values put right. Of points in one row
   * the last is drawn. Before a point that stands for others, these count as often as they are, each with their mean.
   */
  #fillLine(line: number, weight: number, logarithmic: boolean): void {
    const values = this.#values[line] ?? new Float64Array();
    const means = this.#means[line] ?? values;
    const counts = this.#weights[line] ?? new Float64Array();
    const rows = this.#rows[line] ?? new Int32Array();
    const column = this.#columns[line] ?? [];
    const alone: number[] = [];
    let sum = 0;
    let weights = 0;
    const take = (mean: number, times: number) => {
      const left = weight ** times;
      sum = sum * left + mean * (1 - left);
      weights = weights * left + (1 - left);
    };
    let before = -1;
    let drawnBefore: number | null = null;
    let neighbours = 0; // Numbers in a row, up to the one before.
    for (let i = 0; i < values.length; i++) {
      let value = values[i] ?? NaN;
      if (weight > 0) {
        const own = Number.isNaN(value) ? 0 : 1;
        const others = Math.max(0, (counts[i] ?? own) - own);
        const mean = means[i] ?? NaN;
        if (others > 0 && !Number.isNaN(mean)) {
          take(own === 0 ? mean : mean + (mean - value) / others, others); // Without its own value, which comes last.
        }
        if (own === 1) {
          take(value, 1);
          value = sum / weights;
        }
      }
      const row = rows[i] ?? -1;
      if (row < 0 || rows[i + 1] === row) continue;
      // No logarithm of what is not positive.
      const drawn = Number.isNaN(value) || (logarithmic && value <= 0) ? null : value;
      // What was not a number stays a gap, up to the line's points around it.
      const empty = drawn === null || (before >= 0 && drawnBefore === null) ? null : undefined;
      for (let between = before + 1; between < row; between++) column[between] = empty;
      if (drawn === null && neighbours === 1) alone.push(before);
      neighbours = drawn === null ? 0 : neighbours + 1;
      column[row] = drawn;
      before = row;
      drawnBefore = drawn;
    }
    if (neighbours === 1) alone.push(before);
    for (let behind = before + 1; behind < column.length; behind++) column[behind] = undefined;
    this.alone[line] = alone;
  }
}
