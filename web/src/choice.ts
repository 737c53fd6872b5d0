import { useEffect, useRef, useState } from "preact/hooks";

import type { Axis } from "./data";
import type { View } from "./timeline_data";

/** What a reader has chosen; it stands in the address, so that a link shows the same. */
export interface Choice {
  find: string;
  smoothing: number;
  axis: Axis;
  log: boolean;
  /** Whose log; null: the first failed one's, or rank 0's. */
  rank: number | null;
  /** A byte of that log; null: its end. */
  at: number | null;
  /** What all charts are zoomed to; null: everything. */
  zoom: CommonZoom | null;
  /** The part of the timeline that is shown; null: all of it. */
  view: View | null;
  /** Other jobs of the workspace in the same charts, as "EXPERIMENT/JOB". */
  compare: string[];
}

/** Each has its own dashes (chart.tsx). */
export const MOST_COMPARED = 3;

/** A range of places, which the chart in which it was chosen counts from `first`. */
export interface CommonZoom {
  from: number;
  to: number;
  first: number;
}

function wholeNumber(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

/** "FROM~TO" and, unless that is 0, "~FIRST". */
function rangeOf(text: string | null): CommonZoom | null {
  const [from = NaN, to = NaN, first = 0] = (text ?? "").split("~").map((part) => (part === "" ? NaN : Number(part)));
  return Number.isFinite(from) && Number.isFinite(to) && Number.isFinite(first) && from < to ? { from, to, first } : null;
}

/** What the words of an address say. */
export function choiceOf(text: string): Choice {
  const words = new URLSearchParams(text);
  const smoothing = Number(words.get("smooth") ?? 0);
  return {
    find: words.get("find") ?? "",
    smoothing: smoothing > 0 && smoothing < 1 ? smoothing : 0,
    axis: words.get("x") === "time" ? "time" : "step",
    log: words.get("y") === "log",
    rank: wholeNumber(words.get("rank")),
    at: wholeNumber(words.get("at")),
    zoom: rangeOf(words.get("zoom")),
    view: rangeOf(words.get("time")),
    compare: [...new Set(words.getAll("with").filter((place) => /^[\w-]+\/[\w-]+$/.test(place)))].slice(0, MOST_COMPARED),
  };
}

export function wordsOf(choice: Choice): string {
  const words = new URLSearchParams();
  if (choice.find !== "") words.set("find", choice.find);
  if (choice.smoothing > 0) words.set("smooth", String(choice.smoothing));
  if (choice.axis === "time") words.set("x", "time");
  if (choice.log) words.set("y", "log");
  if (choice.rank !== null) words.set("rank", String(choice.rank));
  if (choice.at !== null) words.set("at", String(choice.at));
  const { zoom, view } = choice;
  if (zoom !== null) words.set("zoom", [zoom.from, zoom.to, ...(zoom.first === 0 ? [] : [zoom.first])].join("~"));
  if (view !== null) words.set("time", `${view.from}~${view.to}`);
  for (const place of choice.compare) words.append("with", place);
  return words.toString();
}

export type ChangeChoice = (part: Partial<Choice>) => void;

/** `separator`: what its words stand behind. Where a link leads elsewhere without any, the choice stays. */
export function useChoice(separator: "#" | "?"): [Choice, ChangeChoice] {
  const wordsNow = () => {
    const at = location.hash.indexOf(separator);
    return at < 0 ? null : location.hash.slice(at + 1);
  };
  const [choice, setChoice] = useState(() => choiceOf(wordsNow() ?? ""));
  const latest = useRef(choice);
  const take = (next: Choice) => {
    latest.current = next;
    setChoice(next);
  };
  const write = () => {
    const before = separator === "#" ? "" : (location.hash || "#").split(separator)[0];
    const words = wordsOf(latest.current);
    history.replaceState(null, "", separator === "#" || words !== "" ? `${before}${separator}${words}` : before);
  };
  useEffect(() => {
    const follow = () => {
      const words = wordsNow();
      if (words === null) write();
      else take(choiceOf(words));
    };
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const change = (part: Partial<Choice>) => {
    take({ ...latest.current, ...part });
    write();
  };
  return [choice, change];
}
