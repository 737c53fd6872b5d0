import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import type { ComponentChildren } from "preact";

import { shownBytes } from "./data";
import { FAILURES, LogWindow, type ReadLog, findInLog, withoutCase } from "./log_window";

const LINE_HEIGHT = 18;
const AROUND = 30;
/** A search that comes round ends behind the line from which it went on, which may be long. */
const MOST_LOOKED_AT_AGAIN = 1_048_576;

/** The text with what was searched marked. */
function Marked({ text, wanted }: { text: string; wanted: string }) {
  if (wanted === "") return <>{text}</>;
  const parts = [];
  const lower = withoutCase(text);
  let begin = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, begin)) {
    parts.push(text.slice(begin, at), <mark key={at}>{text.slice(at, at + wanted.length)}</mark>);
    begin = at + wanted.length;
  }
  return <>{[...parts, text.slice(begin)]}</>;
}

/** The part of a log that is in memory, its scrolling, and the searches through all of it. */
function useLog(read: ReadLog, size: number, at: number | null) {
  const window = useMemo(() => new LogWindow(read), [read]);
  const view = useRef<HTMLDivElement>(null);
  const [, drawAgain] = useState(0);
  const [follows, setFollows] = useState(at === null);
  const [top, setTop] = useState(0);
  const lastTop = useRef(0);
  const [current, setCurrent] = useState<number | null>(null);
  const draw = () => drawAgain((count) => count + 1);
  /** Where the page itself has scrolled to. */
  const ownTop = useRef<number | null>(null);
  const scrollTo = (line: number) => {
    const target = view.current;
    if (target === null) return;
    const before = target.scrollTop;
    target.scrollTop = line * LINE_HEIGHT;
    if (target.scrollTop !== before) ownTop.current = target.scrollTop;
  };
  const show = async (byte: number) => {
    setFollows(false);
    await window.goTo(byte, size);
    setCurrent(byte);
    draw();
    requestAnimationFrame(() => scrollTo(Math.max(0, window.lineAt(byte) - 4)));
  };
  useEffect(() => {
    setCurrent(null);
    setFollows(at === null);
    if (at !== null && size > 0) void show(at);
  }, [window, at, size > 0]);
  useEffect(() => {
    if (!follows) return;
    let ended = false;
    void window.follow(size).then((changed) => {
      if (ended || !changed) return;
      draw();
      requestAnimationFrame(() => scrollTo(window.lines.length));
    });
    return () => {
      ended = true;
    };
  }, [window, size, follows]);
  const scrolled = () => {
    const target = view.current;
    if (target === null) return;
    setTop(target.scrollTop);
    // What has come meanwhile moves the end away, and nobody has scrolled.
    const goesUp = target.scrollTop < lastTop.current;
    lastTop.current = target.scrollTop;
    const below = target.scrollHeight - target.scrollTop - target.clientHeight;
    const isOwn = ownTop.current === target.scrollTop;
    ownTop.current = null;
    if (below < 2 * LINE_HEIGHT) {
      // A line near the end is not the end, if that is what was asked for.
      if (window.end >= size && !isOwn) setFollows(true);
      else if (window.end < size) void window.later(size).then((changed) => changed && draw());
    } else if (goesUp && below > 4 * LINE_HEIGHT) {
      setFollows(false);
    }
    if (target.scrollTop < 10 * LINE_HEIGHT && window.begin > 0) {
      void window.earlier().then((added) => {
        draw();
        if (added > 0) requestAnimationFrame(() => (target.scrollTop += added * LINE_HEIGHT));
      });
    }
  };
  return { window, view, top, follows, setFollows, current, show, scrolled, scrollTo };
}

/** `read` must stay the same function while it is the same log. */
export function Log({ title, read, size, at, over, cut = false, keptFrom = () => 0, failures = false, goTo, href, children }: {
  title: string;
  read: ReadLog;
  size: number;
  /** A byte that is to be seen; null: the end. */
  at: number | null;
  /** Nothing comes any more. */
  over: boolean;
  /** Nor can more of it be asked for. */
  cut?: boolean;
  /** Where that begins of it which was fetched. */
  keptFrom?: () => number;
  /** It may be the log of several processes. */
  failures?: boolean;
  goTo: (at: number | null) => void;
  /** Of all of it. */
  href: string;
  children?: ComponentChildren;
}) {
  const log = useLog(read, size, at);
  const [text, setText] = useState("");
  const [answer, setAnswer] = useState("");
  const search = useRef(0);
  const lines = log.window.lines;
  const height = log.view.current?.clientHeight ?? 400;
  const first = Math.max(0, Math.floor(log.top / LINE_HEIGHT) - AROUND);
  const seen = lines.slice(first, first + Math.ceil(height / LINE_HEIGHT) + 2 * AROUND);

  const find = async (backwards: boolean, text: string | string[]) => {
    if (text === "") return;
    const number = ++search.current;
    const stop = () => number !== search.current;
    const begin = cut ? keptFrom() : 0;
    const here = log.current === null ? (backwards ? size : begin) : Math.max(log.current, begin);
    setAnswer("searching …");
    try {
      let found = await findInLog(read, text, here, backwards, backwards ? begin : size, stop, !backwards && log.current !== null);
      let words = found !== null ? "" : typeof text === "string" ? "not found" : "no further failure in this log";
      if (found === null && log.current !== null && typeof text === "string" && !stop()) {
        // As far as the line from which it went on, and that line.
        const rest = backwards ? here : Math.min(size, here + MOST_LOOKED_AT_AGAIN);
        found = await findInLog(read, text, backwards ? size : begin, backwards, rest, stop);
        if (found !== null) words = backwards ? "found from the end again" : "found from the beginning again";
      }
      if (stop()) return;
      setAnswer(words === "not found" && begin > 0 ? "not found in what was fetched of it" : words);
      if (found !== null && found !== here) goTo(found);
      else if (found !== null) await log.show(found);
    } catch {
      setAnswer("the log cannot be read now");
    }
  };
  const isCurrent = (line: number) => log.current !== null && log.window.lineAt(log.current) === line;
  return (
    <section class="panel log" aria-labelledby="log">
      <div class="title">
        <h2 id="log">{title}</h2>
        <span class="quiet">{shownBytes(size)}</span>
        {!cut && <a href={href} target="_blank" rel="noreferrer">all as text</a>}
        {cut && log.window.begin > 0 && <span class="quiet">{`from ${shownBytes(log.window.begin)} on; what is before was not fetched`}</span>}
        {children}
      </div>
      <form
        class="find"
        onSubmit={(event) => {
          event.preventDefault();
          void find(false, text);
        }}
      >
        <label>
          Find in the log
          <input
            type="search"
            value={text}
            onInput={(event) => {
              setText(event.currentTarget.value);
              setAnswer("");
              search.current += 1;
            }}
          />
        </label>
        <button type="button" onClick={() => void find(true, text)}>Previous</button>
        <button type="submit">Next</button>
        {failures && <button type="button" title="The next traceback, or what mpirun says of a failed rank" onClick={() => void find(false, FAILURES)}>Next failure</button>}
        <button
          type="button"
          aria-pressed={log.follows}
          onClick={() => {
            goTo(null);
            log.setFollows(true);
            log.scrollTo(lines.length);
          }}
        >
          Follow
        </button>
        <span role="status">{answer}</span>
      </form>
      <div class="lines" ref={log.view} onScroll={log.scrolled} tabIndex={0} role="log" aria-live="off" aria-label={title}>
        {lines.length === 0 && <p class="quiet">{size > 0 ? "" : over ? "It wrote nothing." : "It has written nothing yet."}</p>}
        <div class="all" style={{ height: `${lines.length * LINE_HEIGHT}px` }}>
          <pre style={{ transform: `translateY(${first * LINE_HEIGHT}px)` }}>
            {seen.map((line, i) => (
              <div key={line.at} class={isCurrent(first + i) ? "line current" : "line"}>
                <Marked text={line.text} wanted={withoutCase(text)} />
              </div>
            ))}
          </pre>
        </div>
      </div>
    </section>
  );
}
