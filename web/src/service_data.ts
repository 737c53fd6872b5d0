// A job server, through the door of `gyre page`: its own interface (gyre/jobs/http/interface.h) below "service", relative to the page's address. Nothing
// is pushed; whoever looks asks again.
import { useEffect, useRef, useState } from "preact/hooks";

import { SILENT_MS } from "./live";
import type { ReadLog } from "./log_window";

export interface ServiceJob {
  id: string;
  name: string;
  gyre: {
    attempts: number;
    submitter: string;
    /** These two of a job that was asked for by itself. */
    hasCode?: boolean;
    /** The checksum of its archive, for its submitter. */
    code?: string;
  };
  properties: {
    cluster: { id: string };
    creationTime: string;
    executionInfo: { startTime: string | null; endTime: string | null; exitCode: number | null; errors: { message?: string }[] };
    executionState: "queued" | "running" | "terminating" | "succeeded" | "failed";
    nodeCount: number;
    outputDirectories?: { id: string }[];
    [other: string]: unknown;
  };
}

export interface Why {
  message: string;
  expectedStart: string | null;
  remedies: string[];
}

export interface ServiceEvent {
  sequence: number;
  time: string;
  subject: string;
  from: string;
  to: string;
  reason: string;
  message: string;
}

export interface OutputFile {
  name: string;
  fileType: "file" | "directory";
  downloadUrl: string | null;
  properties: { contentLength?: number; lastModified: string };
}

export interface Cluster {
  name: string;
  properties: { allocationState: string; currentNodeCount: number; errors: { message?: string }[] };
}

export interface Node {
  nodeId: string;
  state: string;
  job: string | null;
  gpus: number;
  problem: string | null;
}

/** Averages of parts of equal length, the oldest first; those before `knownFrom` mean nothing. */
export interface ClusterUse {
  begin: string;
  knownFrom: string;
  partSeconds: number;
  running: number[];
  idle: number[];
  other: number[];
  waiting: number[];
}

export interface List<Item> {
  value: Item[];
  nextLink: string | null;
  complete?: boolean;
}

/** What the server has answered, in its own words. */
export class ServiceError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export async function ask<Answer>(path: string, options: RequestInit = {}): Promise<Answer> {
  const answer = await fetch(`service${path}`, options);
  const text = await answer.text();
  if (answer.ok) return (text === "" ? {} : JSON.parse(text)) as Answer;
  let words = `${answer.status} ${answer.statusText}`;
  try {
    const { error } = JSON.parse(text) as { error: { message: string; details: { message: string; target: string }[] } };
    const others = error.details.filter(({ message }) => message !== error.message);
    words = [error.message, ...others.map(({ message, target }) => `${target}: ${message}`)].join("\n");
  } catch {
    // Not one of the server's; the status says what there is.
  }
  throw new ServiceError(answer.status, words);
}

const LOST = "The connection was lost, and this is the last that came; reconnecting …";
const SILENT = "The server does not answer: it is stopped or very slow, or the network is gone. This is the last that came; asking again …";
/** Behind SILENT_MS, for an answer that is slow. */
const LONGEST_ANSWER_MS = 60_000;

export interface Polled<Answer> {
  value: Answer | null;
  error: string | null;
  /** The server knows nothing of that name. */
  isGone: boolean;
  again: () => void;
}

/** What a path answers, asked again every `everyMs` while somebody looks; the last answer stays when one fails. */
export function usePoll<Answer>(path: string | null, everyMs: number): Polled<Answer> {
  const [state, setState] = useState<{ path: string | null; value: Answer | null; error: string | null; isGone: boolean }>({ path: null, value: null, error: null, isGone: false });
  const askNow = useRef(() => {});
  useEffect(() => {
    if (path === null) return;
    let ended = false;
    let timer = 0;
    const look = async () => {
      clearTimeout(timer);
      if (document.visibilityState === "visible") {
        const say = (error: string, isGone = false) => {
          if (!ended) setState((before) => ({ path, value: before.path === path ? before.value : null, error, isGone }));
        };
        const silent = setTimeout(() => say(SILENT), SILENT_MS);
        try {
          const value = await ask<Answer>(path, { signal: AbortSignal.timeout(LONGEST_ANSWER_MS) });
          if (!ended) setState({ path, value, error: null, isGone: false });
        } catch (error) {
          if (error instanceof ServiceError) say(error.message, error.status === 404);
          else say(error instanceof DOMException ? SILENT : LOST);
        } finally {
          clearTimeout(silent);
        }
      }
      if (!ended) timer = setTimeout(() => void look(), everyMs);
    };
    askNow.current = () => void look();
    void look();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [path, everyMs]);
  const isCurrent = state.path === path;
  return { value: isCurrent ? state.value : null, error: isCurrent ? state.error : null, isGone: isCurrent && state.isGone, again: () => askNow.current() };
}

/** As many are asked for at once, and the newest of them are kept. */
const MOST_EVENTS = 1_000;

/** All events of a job so far but for the oldest of very many, the newest last: only what is new is asked for. */
export function useEvents(path: string, everyMs: number): { events: ServiceEvent[]; dropped: number } {
  const [kept, setKept] = useState<{ events: ServiceEvent[]; dropped: number }>({ events: [], dropped: 0 });
  const last = kept.events.at(-1)?.sequence ?? 0;
  const asked = usePoll<List<ServiceEvent>>(`${path}/events?after=${last}&maxresults=${MOST_EVENTS}`, everyMs);
  useEffect(() => {
    const news = (asked.value?.value ?? []).filter(({ sequence }) => sequence > last);
    if (news.length === 0) return;
    setKept(({ events, dropped }) => {
      const all = [...events, ...news];
      const surplus = Math.max(0, all.length - MOST_EVENTS);
      return { events: all.slice(surplus), dropped: dropped + surplus };
    });
  }, [asked.value, last]);
  return kept;
}

export function readFile(url: string): ReadLog {
  return async (from, to) => {
    if (to <= from) return { at: from, bytes: new Uint8Array() };
    const answer = await fetch(`service${url}`, { headers: { Range: `bytes=${from}-${to - 1}` } });
    if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
    return { at: from, bytes: new Uint8Array(await answer.arrayBuffer()) };
  };
}
