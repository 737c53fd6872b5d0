import { useEffect, useState } from "preact/hooks";

import type { Axis } from "./data";

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
}

function wholeNumber(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

function choiceOfAddress(): Choice {
  const words = new URLSearchParams(location.hash.slice(1));
  const smoothing = Number(words.get("smooth") ?? 0);
  return {
    find: words.get("find") ?? "",
    smoothing: smoothing > 0 && smoothing < 1 ? smoothing : 0,
    axis: words.get("x") === "time" ? "time" : "step",
    log: words.get("y") === "log",
    rank: wholeNumber(words.get("rank")),
    at: wholeNumber(words.get("at")),
  };
}

function addressOf(choice: Choice): string {
  const words = new URLSearchParams();
  if (choice.find !== "") words.set("find", choice.find);
  if (choice.smoothing > 0) words.set("smooth", String(choice.smoothing));
  if (choice.axis === "time") words.set("x", "time");
  if (choice.log) words.set("y", "log");
  if (choice.rank !== null) words.set("rank", String(choice.rank));
  if (choice.at !== null) words.set("at", String(choice.at));
  return `#${words.toString()}`;
}

export type ChangeChoice = (part: Partial<Choice>) => void;

export function useChoice(): [Choice, ChangeChoice] {
  const [choice, setChoice] = useState(choiceOfAddress);
  useEffect(() => {
    const follow = () => setChoice(choiceOfAddress());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const change = (part: Partial<Choice>) =>
    setChoice((before) => {
      const next = { ...before, ...part };
      history.replaceState(null, "", addressOf(next));
      return next;
    });
  return [choice, change];
}
