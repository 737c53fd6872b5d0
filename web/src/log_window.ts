// A part of a rank's log, a few megabytes of what may be gigabytes: it grows at either end, and forgets at the other.
const PIECE = 262_144;
const MOST_BYTES = 4_194_304;
const SEARCHED_AT_ONCE = 8_388_608;
const LONGEST_LINE = 4_000;

/** Bytes `from` to `to` (exclusive) of a log, or as many as there are; `at`: where they begin. */
export type ReadLog = (from: number, to: number) => Promise<{ at: number; bytes: Uint8Array }>;

export interface LogLine {
  /** Where it begins, in bytes. */
  at: number;
  text: string;
}

const decoder = new TextDecoder();
/** One character for each byte, so that places in the text are places in the file. */
const byteDecoder = new TextDecoder("latin1");

/** As a terminal would show it: without colours, and of a line that was drawn again and again, the last. */
function shownText(bytes: Uint8Array): string {
  let text = decoder.decode(bytes.length > LONGEST_LINE ? bytes.subarray(0, LONGEST_LINE) : bytes);
  if (text.includes("\r")) text = text.replace(/\r+$/, "").replace(/^.*\r/, "");
  // eslint-disable-next-line no-control-regex
  if (text.includes("\u001b")) text = text.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "");
  return bytes.length > LONGEST_LINE ? `${text} …` : text;
}

function linesOf(bytes: Uint8Array, at: number): LogLine[] {
  const lines: LogLine[] = [];
  let begin = 0;
  for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, begin)) {
    lines.push({ at: at + begin, text: shownText(bytes.subarray(begin, end)) });
    begin = end + 1;
  }
  if (begin < bytes.length) lines.push({ at: at + begin, text: shownText(bytes.subarray(begin)) });
  return lines;
}

export class LogWindow {
  lines: LogLine[] = [];
  /** Bytes of the log that are here. */
  begin = 0;
  end = 0;
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
      const from = Math.max(0, this.begin - PIECE);
      const { at, bytes } = await this.read(from, this.begin);
      const lines = linesOf(bytes, at);
      // A piece begins in the middle of a line, which comes with the piece before.
      const cut = at > 0 ? lines.shift() : undefined;
      this.begin = cut === undefined ? at : (lines[0]?.at ?? this.begin);
      this.lines = [...lines, ...this.lines];
      while (this.end - this.begin > MOST_BYTES && this.lines.length > 1) {
        this.end = this.lines.pop()?.at ?? this.end;
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
      if (this.begin === 0) return;
      this.lines.shift();
      this.begin = this.lines[0]?.at ?? this.begin;
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
  }

  async #append(to: number): Promise<void> {
    // The last line may not have been whole.
    const last = this.lines.at(-1);
    const from = last?.at ?? this.end;
    const { at, bytes } = await this.read(from, to);
    const kept = at === from ? this.lines.slice(0, -1) : [];
    if (at !== from || kept.length === 0) this.begin = at;
    this.lines = [...kept, ...linesOf(bytes, at)];
    this.end = at + bytes.length;
    const surplus = this.lines.findIndex((line) => this.end - line.at <= MOST_BYTES);
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

/** Where the next line with `text` begins, from `at` on or before it; null: nowhere. Letters compare without case. */
export async function findInLog(
  read: ReadLog,
  text: string,
  at: number,
  backwards: boolean,
  limit: number,
  stop: () => boolean,
): Promise<number | null> {
  const wanted = byteDecoder.decode(new TextEncoder().encode(text)).toLowerCase();
  const overlap = wanted.length + 65_536; // And the line's beginning.
  const pieceAt = (edge: number) => {
    const from = backwards ? Math.max(limit, edge - SEARCHED_AT_ONCE) : Math.max(0, edge - overlap);
    return read(from, backwards ? edge : Math.min(limit, edge + SEARCHED_AT_ONCE));
  };
  const goesOn = (edge: number) => (backwards ? edge > limit : edge < limit);
  let edge = at;
  let cut = 0;
  let coming = goesOn(edge) ? pieceAt(edge) : null;
  while (coming !== null) {
    const piece = await coming;
    const end = piece.at + piece.bytes.length;
    if (stop() || piece.bytes.length === 0) return null;
    const next = backwards ? (piece.at > limit ? piece.at + wanted.length : limit) : end;
    const moves = backwards ? next < edge : next > edge;
    coming = moves && goesOn(next) ? pieceAt(next) : null; // While this one is searched.
    coming?.catch(() => {}); // Reported when its turn comes.
    const letters = byteDecoder.decode(piece.bytes).toLowerCase();
    const found = backwards ? letters.lastIndexOf(wanted) : letters.indexOf(wanted, Math.max(0, edge - piece.at - cut));
    if (found >= 0) return piece.at + letters.lastIndexOf("\n", found) + 1;
    edge = next;
    cut = wanted.length - 1; // What two pieces share may begin in the first of them.
  }
  return null;
}
