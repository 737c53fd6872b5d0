import { useRef } from "preact/hooks";

import { type Job, type Phase, type Rank, shown, shownBytes } from "./data";
import { nameOf } from "./failures";

/** With more ranks, cells have the number alone. */
const MOST_CARDS = 32;

const PHASES: Record<Phase, string> = {
  failed: "failed",
  lost: "lost",
  late: "late",
  starting: "starting",
  running: "running",
  stopped: "stopped",
  ended: "ended",
};

export function hostOf(rank: Rank): string {
  return rank.host ?? "";
}

function facts(rank: Rank): string[] {
  const named = rank.role === "default" || rank.role === nameOf(rank);
  const words = named ? [] : [rank.role];
  if (hostOf(rank) !== "") words.push(`on ${hostOf(rank)}`);
  // On another host it has a number that says nothing here.
  if (rank.process > 0) words.push(`process ${rank.process}`);
  if (rank.step !== null) words.push(`step ${rank.step}`);
  if (rank.steps_per_second !== null) words.push(`${shown(Number(rank.steps_per_second.toPrecision(3)))} steps/s`);
  if (rank.waiting !== null) words.push(`waits ${Math.round(100 * rank.waiting)} %`);
  if (rank.cpu_cores !== null) words.push(`${rank.cpu_cores.toFixed(2)} cores`);
  if (rank.memory_bytes !== null) words.push(shownBytes(rank.memory_bytes));
  return words;
}

function brief(rank: Rank): string {
  if (rank.step !== null) return `step ${rank.step}`;
  return rank.memory_bytes === null ? "" : shownBytes(rank.memory_bytes);
}

function describe(rank: Rank): string {
  const detail = rank.detail === "" ? "" : `: ${rank.detail}`;
  return [`${nameOf(rank)}, ${PHASES[rank.phase]}${detail}`, ...facts(rank)].join(", ");
}

/** How many ranks are in each phase, in their order. */
function counts(ranks: Rank[]): [Phase, number][] {
  const all = new Map<Phase, number>();
  for (const { phase } of ranks) all.set(phase, (all.get(phase) ?? 0) + 1);
  return [...all];
}

/** What a person should read first. */
export function verdict(job: Job): string {
  const first = job.ranks.find((rank) => rank.rank === job.first_failed_rank) ?? job.ranks.find((rank) => rank.phase === "failed");
  if (first !== undefined) return `${nameOf(first)} ${first.detail}`;
  const late = job.ranks.filter((rank) => rank.phase === "late");
  const one = late[0];
  if (one !== undefined) return late.length === 1 ? `${nameOf(one)} is late: ${one.detail}` : `${late.length} ranks are late, first ${nameOf(one)}: ${one.detail}`;
  const lost = job.ranks.filter((rank) => rank.phase === "lost");
  if (lost.length === 0) return "";
  const others = job.ranks.some((rank) => ["starting", "running"].includes(rank.phase)) ? "; the others go on" : "";
  return `${lost.length} of ${job.ranks.length} ranks ${lost.length === 1 ? "is" : "are"} lost${others}`;
}

export function Ranks({ job, selected, select }: { job: Job; selected: number; select: (rank: number) => void }) {
  const grid = useRef<HTMLDivElement>(null);
  const cards = job.ranks.length <= MOST_CARDS;
  const title = job.ranks.length > 0 && job.ranks.every((rank) => nameOf(rank) === rank.role) ? "Processes" : "Ranks";
  const chosen = job.ranks.find((rank) => rank.rank === selected);
  const move = (event: KeyboardEvent, at: number) => {
    const ways: Record<string, number> = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: job.ranks.length - 1 };
    const to = ways[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = job.ranks[Math.min(Math.max(to, 0), job.ranks.length - 1)];
    if (next === undefined) return;
    select(next.rank);
    grid.current?.querySelector<HTMLElement>(`[data-rank="${next.rank}"]`)?.focus();
  };
  return (
    <section class="panel" aria-labelledby="ranks">
      <div class="title">
        <h2 id="ranks">{title}</h2>
        <p class="counts">
          {counts(job.ranks).map(([phase, count]) => (
            <span key={phase} class={`key ${phase}`}>{`${count} ${PHASES[phase]}`}</span>
          ))}
        </p>
      </div>
      <div class={cards ? "grid cards" : "grid"} role="radiogroup" aria-label={`${title}, those that need attention first`} ref={grid}>
        {job.ranks.map((rank, at) => (
          <button
            key={rank.rank}
            type="button"
            role="radio"
            data-rank={rank.rank}
            class={`rank ${rank.phase}`}
            aria-checked={rank.rank === selected}
            aria-label={describe(rank)}
            title={describe(rank)}
            tabIndex={rank.rank === selected || (chosen === undefined && at === 0) ? 0 : -1}
            onClick={() => select(rank.rank)}
            onKeyDown={(event) => move(event, at)}
          >
            <b>{nameOf(rank) === rank.role && cards ? rank.role : rank.rank}</b>
            {cards && <span>{PHASES[rank.phase]}</span>}
            {cards && <span class="quiet">{brief(rank)}</span>}
            {cards && hostOf(rank) !== "" && <span class="quiet host">{hostOf(rank)}</span>}
          </button>
        ))}
      </div>
      {chosen !== undefined && (
        <p class="chosen">
          <b>{nameOf(chosen)}</b> {chosen.detail !== "" && <b class={`says ${chosen.phase}`}>{chosen.detail}</b>} {facts(chosen).join(" · ")}
        </p>
      )}
    </section>
  );
}
