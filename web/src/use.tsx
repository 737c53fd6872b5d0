// What the nodes of a cluster did over the last hours, and how many jobs waited for them.
import { useState } from "preact/hooks";

import { type ClusterUse, usePoll } from "./service_data";

const USE_MS = 15_000;
const HOURS = [1, 6, 24, 168];
const NODES = [
  { name: "running", words: "in use" },
  { name: "idle", words: "idle" },
  { name: "other", words: "coming, going or unusable" },
] as const;

const HEIGHT = 80;
const WAITING_HEIGHT = 36;

/** The area between two rows of heights, stepped, in a picture as wide as there are parts. */
function areaOf(low: number[], high: number[], scale: number, height: number): string {
  const y = (value: number) => (height * (1 - value / scale)).toFixed(2);
  const above = high.map((value, i) => `${i} ${y(value)} L${i + 1} ${y(value)}`);
  const below = low.map((value, i) => `${i + 1} ${y(value)} L${i} ${y(value)}`).reverse();
  return `M${[...above, ...below].join(" L")}Z`;
}

function sum(values: number[]): number {
  return values.reduce((a, b) => a + b, 0);
}

function most(values: number[]): number {
  return values.reduce((a, b) => Math.max(a, b), 0);
}

function hoursWords(hours: number): string {
  return hours % 24 === 0 && hours > 24 ? `${hours / 24} days` : hours === 1 ? "hour" : `${hours} hours`;
}

/** "14:05", with its day where that is another one. */
function clock(time: number): string {
  const at = new Date(time);
  const words = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return at.toDateString() === new Date().toDateString() ? words : `${at.toLocaleDateString([], { month: "short", day: "numeric" })}, ${words}`;
}

function percent(share: number): string {
  return share > 0 && share < 0.005 ? "< 1 %" : `${Math.round(100 * share)} %`;
}

function count(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? "" : "s"}`;
}

/** What the picture shows. `known`: the first part that is. */
function wordsOf(use: ClusterUse, known: number): string {
  const totals = NODES.map(({ name, words }) => ({ words, total: sum(use[name].slice(known)) }));
  const all = sum(totals.map(({ total }) => total));
  const shares = totals.filter(({ total }) => total > 0).map(({ words, total }) => `${percent(total / all)} ${words}`);
  const jobs = Math.ceil(most(use.waiting.slice(known)));
  const nodes = all === 0 ? "it had no nodes" : `of its nodes' time, ${shares.join(", ")}`;
  return `${nodes}; ${jobs === 0 ? "no job waited" : `up to ${count(jobs, "job")} waited`}`;
}

function Areas({ use, known }: { use: ClusterUse; known: number }) {
  const from = (values: number[]) => values.map((value, i) => (i < known ? 0 : value));
  const running = from(use.running);
  const busyAndIdle = running.map((value, i) => value + (from(use.idle)[i] ?? 0));
  const all = busyAndIdle.map((value, i) => value + (from(use.other)[i] ?? 0));
  const zero = running.map(() => 0);
  const waiting = from(use.waiting);
  const nodes = Math.max(1, most(all));
  const jobs = most(waiting);
  return (
    <>
      <p class="scale quiet" aria-hidden="true">{count(Math.round(nodes), "node")}</p>
      <svg viewBox={`0 0 ${running.length} ${HEIGHT}`} preserveAspectRatio="none" height={HEIGHT} aria-hidden="true">
        <path class="other" d={areaOf(busyAndIdle, all, nodes, HEIGHT)} />
        <path class="idle" d={areaOf(running, busyAndIdle, nodes, HEIGHT)} />
        <path class="running" d={areaOf(zero, running, nodes, HEIGHT)} />
      </svg>
      {jobs > 0 && (
        <>
          <p class="scale quiet" aria-hidden="true">{count(Math.ceil(jobs), "waiting job")}</p>
          <svg viewBox={`0 0 ${running.length} ${WAITING_HEIGHT}`} preserveAspectRatio="none" height={WAITING_HEIGHT} aria-hidden="true">
            <path class="waiting" d={areaOf(zero, waiting, jobs, WAITING_HEIGHT)} />
          </svg>
        </>
      )}
    </>
  );
}

/** `path`: of the cluster. */
export function Use({ path }: { path: string }) {
  const [hours, setHours] = useState(6);
  const polled = usePoll<ClusterUse>(`${path}/use?hours=${hours}`, USE_MS);
  const use = polled.value;
  const begin = use === null ? 0 : Date.parse(use.begin);
  const knownFrom = use === null ? 0 : Date.parse(use.knownFrom);
  const known = use === null ? 0 : Math.ceil((knownFrom - begin) / 1000 / use.partSeconds);
  const words = use === null ? "" : wordsOf(use, known);
  return (
    <figure class="use">
      <figcaption>
        <label>
          Over the last
          <select value={hours} onChange={(event) => setHours(Number(event.currentTarget.value))}>
            {HOURS.map((one) => <option key={one} value={one}>{hoursWords(one)}</option>)}
          </select>
        </label>
        {use !== null && <span class="averages">{words}</span>}
        {known > 0 && <span class="quiet">{`known since ${clock(knownFrom)}`}</span>}
      </figcaption>
      {use !== null && <Areas use={use} known={known} />}
      {use !== null && <p class="ends quiet" aria-hidden="true"><span>{clock(begin)}</span><span>now</span></p>}
      <p class="legend" aria-hidden="true">
        {NODES.map(({ name, words }) => <span key={name}><i class={name} />{words}</span>)}
        <span><i class="waiting" />waiting jobs</span>
      </p>
    </figure>
  );
}
