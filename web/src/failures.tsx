// The way to where ranks say why they failed.
import type { Job, Rank } from "./data";

/** Ranks have numbers; processes of `tensorFlowSettings` are known by their roles. */
export function nameOf(rank: Rank): string {
  return /^(master|worker|ps) \d+$/.test(rank.role) ? rank.role : `rank ${rank.rank}`;
}

/** Those that failed, the first one first. */
function failuresOf(job: Job): Rank[] {
  return job.ranks.filter(({ phase }) => phase === "failed" || phase === "lost");
}

export function Failures({ job, selected, go }: { job: Job; selected: number; go: (rank: Rank) => void }) {
  const all = failuresOf(job);
  const first = all[0];
  const at = all.findIndex(({ rank }) => rank === selected);
  const next = all.length > 1 ? all[(at + 1) % all.length] : undefined;
  if (first === undefined) return null;
  return (
    <>
      <button type="button" class="bad" onClick={() => go(first)}>{`Go to the first failure: ${nameOf(first)}`}</button>
      {next !== undefined && <button type="button" class="bad" onClick={() => go(next)}>{`Next failure: ${nameOf(next)} (${all.indexOf(next) + 1} of ${all.length})`}</button>}
    </>
  );
}
