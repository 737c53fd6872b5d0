// What a chart says in words: the labels of its ticks, the lines of which it has too many for a legend, and all of it for
// those who do not see it.
import { type Line, least, shown } from "./data";

export const MOST_LEGENDS = 8;
/** A double has no more. */
const MOST_DIGITS = 17;

/** No two ticks are labelled alike; as short as that can be. null: a logarithmic axis has no room for this label. */
export function tickLabels(ticks: (number | null)[], written: (value: number, digits: number) => string): string[] {
  const count = new Set(ticks.filter((tick) => tick !== null)).size;
  for (let digits = 5; ; digits++) {
    const labels = ticks.map((tick) => (tick === null ? "" : written(tick, digits)));
    if (digits === MOST_DIGITS || new Set(labels.filter((label) => label !== "")).size === count) return labels;
  }
}

export interface LabelledValue {
  label: string;
  value: number;
}

/** Of more lines than a legend has: the one that somebody points at (null: nobody does), and those at the edges. */
export function manyLines(all: LabelledValue[], count: number, distance: ((value: number) => number) | null): string {
  const leastBy = (order: (one: LabelledValue) => number) => all.reduce((best, one) => (order(one) < order(best) ? one : best));
  if (all.length === 0) return `${count} lines`;
  const words = ({ label, value }: LabelledValue) => `${label}: ${shown(value)}`;
  const edges = `lowest ${words(leastBy(({ value }) => value))}, highest ${words(leastBy(({ value }) => -value))}`;
  return distance === null ? `${count} lines end: ${edges}` : `${words(leastBy(({ value }) => distance(value)))}; ${edges}`;
}

/** Why nothing is drawn; empty where something is. */
export function whyEmpty(all: Line[], logarithmic: boolean): string {
  if (all.length === 0 || all.some(({ y }) => y.some((value) => value !== null && (!logarithmic || value > 0)))) return "";
  const isNumber = all.some(({ y }) => y.some((value) => value !== null));
  return isNumber ? "No value is above zero, so nothing can be drawn over a logarithmic axis." : `Nothing can be drawn: the values are no finite numbers (the last is ${all[0]?.last ?? ""}).`;
}

/** For those who do not see it. */
export function describe(name: string, all: Line[]): string {
  const lines = all.slice(0, MOST_LEGENDS).map((line) => {
    const values = line.y.filter((value) => value !== null);
    const range = values.length > 0 ? `, from ${shown(least(values))} to ${shown(-least(values.map((y) => -y)))}` : "";
    return `${line.label}: ends at ${shown(line.last)}${range}`;
  });
  const more = all.length - lines.length;
  return `${name}. ${lines.join("; ")}${more > 0 ? `; and ${more} more` : ""}`;
}
