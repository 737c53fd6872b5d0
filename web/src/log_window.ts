// A part of a rank's log, a few megabytes of what may be gigabytes: it grows at either end, and forgets at the other.
const PIECE = 262_144;
const MOST_BYTES = 4_194_304;
const SEARCHED_AT_ONCE = 8_388_608;
const LONGEST_LINE = 4_000;
/** Bytes of colours in a text that is searched. */
const MOST_COLOURS = 1_000;

/** Bytes `from` to `to` (exclusive) of a log, or as many as there are; `at`: where they begin. */
export type ReadLog = (from: number, to: number) => Promise<{ at: number; bytes: Uint8Array }>;

export interface LogLine {
  /** Where it begins, in bytes. */
  at: number;
  text: string;
}

const RETURN = 13;
const NEWLINE = 10;

const decoder = new TextDecoder();

function withoutColours(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.includes("\u001b") ? text.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "") : text;
}

/** What is searched: what is shown, but of a line that was drawn again and again, all of it. */
function searchedText(bytes: Uint8Array): string {
  return withoutCase(withoutColours(decoder.decode(bytes)));
}

/** In small letters, and as long as before: of all letters, only \u0130 becomes longer. */
export function withoutCase(text: string): string {
  return text.split("\u0130").map((part) => part.toLowerCase()).join("\u0130");
}

/** Where the line begins that a place in the text of `bytes` is in: both have the same lines, but not the same lengths. */
function beginOfLine(bytes: Uint8Array, text: string, place: number): number {
  let begin = 0;
  for (let end = text.indexOf("\n"); end >= 0 && end < place; end = text.indexOf("\n", end + 1)) {
    begin = bytes.indexOf(NEWLINE, begin) + 1;
  }
  return begin;
}

function withoutReturns(bytes: Uint8Array): Uint8Array {
  let end = bytes.length;
  while (end > 0 && bytes[end - 1] === RETURN) end--;
  return bytes.subarray(0, end);
}

/** What a terminal would show of a line that was drawn again and again, such as a progress bar: the last. */
function lastDrawn(bytes: Uint8Array): Uint8Array {
  const drawn = withoutReturns(bytes);
  return drawn.length === 0 ? drawn : drawn.subarray(drawn.lastIndexOf(RETURN) + 1);
}

/** As a terminal would show it, and without colours. */
function shownText(bytes: Uint8Array): string {
  const drawn = lastDrawn(bytes);
  const text = withoutColours(decoder.decode(drawn.subarray(0, LONGEST_LINE)));
  return drawn.length > LONGEST_LINE ? `${text} …` : text;
}

/** As much of a line as its text needs, whatever comes behind it. */
function shortened(line: Uint8Array): Uint8Array {
  const drawn = lastDrawn(line);
  return joined(drawn.subarray(0, LONGEST_LINE + 1), line.subarray(withoutReturns(line).length).subarray(0, 1));
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  if (a.length === 0) return b;
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

/** `at`: where the bytes begin; `isCut`: in the middle of a line. */
function linesOf(bytes: Uint8Array, at: number, isCut: boolean): LogLine[] {
  const lines: LogLine[] = [];
  let begin = 0;
  for (let end = bytes.indexOf(NEWLINE); end >= 0; end = bytes.indexOf(NEWLINE, begin)) {
    lines.push({ at: at + begin, text: shownText(bytes.subarray(begin, end)) });
    begin = end + 1;
  }
  if (begin < bytes.length) lines.push({ at: at + begin, text: shownText(bytes.subarray(begin)) });
  const [first, ...others] = lines;
  if (!isCut || first === undefined) return lines;
  // Its beginning comes with what is before, unless the line is longer than that.
  return others.length > 0 ? others : [{ ...first, text: `… ${first.text}` }];
}

export class LogWindow {
  lines: LogLine[] = [];
  /** Bytes of the log that are here. */
  begin = 0;
  end = 0;
  /** Of the last line, where it has no end yet. */
  #unfinished: Uint8Array | null = null;
  #busy = false;

  constructor(private readonly read: ReadLog) {}

  /** The end of a log of `size` bytes, or what has come since. False where there was nothing to do. */
  async follow(size: number): Promise<boolean> {
    if (size < this.end) this.#forget(0); // Another file.
    if (size === this.end) return false;
    return this.#once(async () => {
      if (size - this.end > MOST_BYTES / 2) this.#forget(Math.max(0, size - PIECE));
      await this.#append(size);
    });
  }

  async earlier(): Promise<number> {
    const before = this.lines.length;
    const first = this.lines[0]?.at;
    await this.#once(async () => {
      if (this.begin === 0) return;
      const { at, bytes } = await this.read(Math.max(0, this.begin - PIECE), this.begin);
      const lines = linesOf(bytes, at, at > 0);
      this.begin = lines[0]?.at ?? at;
      this.lines = [...lines, ...this.lines];
      while (this.end - this.begin > MOST_BYTES && this.lines.length > 1) {
        this.end = this.lines.pop()?.at ?? this.end;
        this.#unfinished = null;
      }
    });
    const moved = this.lines.findIndex((line) => line.at === first);
    return moved >= 0 ? moved : this.lines.length - before;
  }

  async later(size: number): Promise<boolean> {
    if (this.end >= size) return false;
    return this.#once(() => this.#append(Math.min(size, this.end + PIECE)));
  }

  /** What is around a byte. */
  async goTo(at: number, size: number): Promise<void> {
    await this.#once(async () => {
      if (at >= this.begin && at < this.end) return;
      this.#forget(Math.max(0, at - PIECE / 2));
      await this.#append(Math.min(size, at + PIECE / 2));
    });
  }

  lineAt(at: number): number {
    const behind = this.lines.findIndex((line) => line.at > at);
    return behind < 0 ? this.lines.length - 1 : Math.max(0, behind - 1);
  }

  #forget(at: number): void {
    this.lines = [];
    this.begin = at;
    this.end = at;
    this.#unfinished = null;
  }

  async #append(to: number): Promise<void> {
    const { at, bytes } = await this.read(this.end, to);
    if (at !== this.end) this.#forget(at); // What is before cannot be had.
    if (bytes.length === 0) return;
    const unfinished = this.#unfinished ?? new Uint8Array();
    const last = this.#unfinished === null ? undefined : this.lines.pop();
    const [first, ...others] = linesOf(joined(unfinished, bytes), at - unfinished.length, this.lines.length === 0 && last === undefined && at > 0);
    if (first !== undefined) this.lines = [...this.lines, { ...first, at: last?.at ?? first.at }, ...others];
    this.begin = this.lines[0]?.at ?? at;
    this.end = at + bytes.length;
    const beginning = bytes.lastIndexOf(NEWLINE) + 1;
    if (beginning === bytes.length) this.#unfinished = null;
    else this.#unfinished = shortened(beginning > 0 ? bytes.subarray(beginning) : joined(unfinished, bytes));
    const surplus = this.lines.findIndex((line, i) => this.end - line.at <= MOST_BYTES || i === this.lines.length - 1);
    if (surplus > 0) {
      this.lines = this.lines.slice(surplus);
      this.begin = this.lines[0]?.at ?? this.begin;
    }
  }

  async #once(act: () => Promise<void>): Promise<boolean> {
    if (this.#busy) return false;
    this.#busy = true;
    try {
      await act();
      return true;
    } catch {
      return false; // The page says that the job cannot be asked.
    } finally {
      this.#busy = false;
    }
  }
}

/** What stands where programs, and mpirun for its ranks, say why they failed. */
export const FAILURES = [
  "Traceback (most recent call last)",
  "mpirun noticed that process rank",
  "mpirun detected that one or more processes exited with non-zero status",
  "= BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
  "Segmentation fault",
  "terminate called after throwing",
];

/** Where the line with the byte `at` begins, which may be long before it. */
async function beginOfLongLine(read: ReadLog, at: number): Promise<number> {
  for (let end = at; end > 0;) {
    const piece = await read(Math.max(0, end - SEARCHED_AT_ONCE), end).catch(() => null);
    if (piece === null) return end; // What is before cannot be had.
    const newline = piece.bytes.lastIndexOf(NEWLINE);
    if (newline >= 0 || piece.at >= end) return piece.at + newline + 1;
    end = piece.at;
  }
  return 0;
}

/**
 * Where the next line with `text`, or one of several texts, begins, from `at` on or before it; null: nowhere. Letters compare without case.
 * `skipsLine`: on from `at`, but not in its line.
 */
export async function findInLog(
  read: ReadLog,
  text: string | string[],
  at: number,
  backwards: boolean,
  limit: number,
  stop: () => boolean,
  skipsLine = false,
): Promise<number | null> {
  const wanted = (typeof text === "string" ? [text] : text).map(withoutCase);
  // In bytes: those of letters, in either case, and of colours between them.
  const longest = wanted.reduce((most, one) => Math.max(most, 4 * one.length), 0) + MOST_COLOURS;
  const overlap = longest + 65_536; // And the line's beginning.
  const pieceAt = (edge: number) => {
    const from = backwards ? Math.max(limit, edge - SEARCHED_AT_ONCE) : Math.max(0, edge - overlap);
    return read(from, backwards ? edge : Math.min(limit, edge + SEARCHED_AT_ONCE));
  };
  const goesOn = (edge: number) => (backwards ? edge > limit : edge < limit);
  let edge = at;
  let cut = 0;
  let skips = skipsLine;
  let coming = goesOn(edge) ? pieceAt(edge) : null;
  while (coming !== null) {
    const piece = await coming;
    const end = piece.at + piece.bytes.length;
    if (stop() || piece.bytes.length === 0) return null;
    const next = backwards ? (piece.at > limit ? piece.at + longest : limit) : end;
    const moves = backwards ? next < edge : next > edge;
    coming = moves && goesOn(next) ? pieceAt(next) : null; // While this one is searched.
    coming?.catch(() => {}); // Reported when its turn comes.
    const letters = searchedText(piece.bytes);
    let begin = backwards ? 0 : searchedText(piece.bytes.subarray(0, Math.max(0, edge - piece.at - cut))).length;
    if (skips) {
      const lineEnd = letters.indexOf("\n", begin);
      skips = lineEnd < 0;
      begin = skips ? letters.length : lineEnd;
    }
    const places = wanted.map((one) => (backwards ? letters.lastIndexOf(one) : letters.indexOf(one, begin))).filter((place) => place >= 0);
    const found = places.length === 0 ? -1 : backwards ? Math.max(...places) : Math.min(...places);
    if (found >= 0) {
      const line = beginOfLine(piece.bytes, letters, found);
      return line > 0 ? piece.at + line : beginOfLongLine(read, piece.at);
    }
    edge = next;
    cut = longest; // What two pieces share may begin in the first of them.
  }
  return null;
}
