// Other jobs of a workspace in a job's charts: which ones, and in what they differ from it.
import { useEffect, useId, useMemo, useState } from "preact/hooks";

import { useSource } from "./charts";
import { type ChangeChoice, type Choice, MOST_COMPARED } from "./choice";
import type { Run, Source } from "./data";
import { polledSource } from "./live";
import { type List, ServiceError, type ServiceJob, ask, usePoll } from "./service_data";

const JOB_MS = 5_000;
const LIST_MS = 30_000;
/** What the server keeps of a job beside what was submitted. */
export const NOT_SUBMITTED = ["creationTime", "executionInfo", "executionState", "executionStateTransitionTime", "jobOutputDirectoryPathSegment", "provisioningState", "provisioningStateTransitionTime"];
/** Facts of a run that its charts, or its page, say. */
const SAID_ELSEWHERE = ["started", "exit_code", "dropped"];

/** "EXPERIMENT/JOB", as the address names a job, and as nodes do. */
export function placeOfJob(job: ServiceJob): string {
  const [, , , , experiment = "default"] = job.id.split("/");
  return `${decodeURIComponent(experiment)}/${job.name}`;
}

function pathOf(workspace: string, place: string): string {
  const [experiment = "", job = ""] = place.split("/");
  return `/workspaces/${encodeURIComponent(workspace)}/experiments/${encodeURIComponent(experiment)}/jobs/${encodeURIComponent(job)}`;
}

/** A job that is compared: what its charts come from, and what the server says of it. */
export interface Other {
  place: string;
  name: string;
  path: string;
  source: ReturnType<typeof polledSource>;
}

/** Those that the address names, each with the same source for as long as it is named. */
export function useOthers(workspace: string, places: string[]): Other[] {
  const [known] = useState(() => new Map<string, Other>());
  return useMemo(() => {
    for (const place of known.keys()) if (!places.includes(place)) known.delete(place);
    return places.map((place) => {
      const path = pathOf(workspace, place);
      const other = known.get(place) ?? { place, name: place.replace(/^default\//, ""), path, source: polledSource(path) };
      known.set(place, other);
      return other;
    });
  }, [workspace, places.join(" ")]);
}

/** Every setting of a job by itself, as "a.b.c"; of a list by what its items are called. */
function flat(value: unknown, name: string, facts: Map<string, string>): void {
  if (value === null || value === undefined || value === "") return;
  if (typeof value !== "object") {
    facts.set(name, String(value));
    return;
  }
  for (const [key, part] of Object.entries(value as Record<string, unknown>)) {
    const item = Array.isArray(value) ? (part as { name?: string; id?: string; value?: unknown } | null) : null;
    const own = item?.name ?? item?.id ?? key;
    flat(item?.name === undefined ? part : item.value, name === "" ? own : `${name}.${own}`, facts);
  }
}

/** In what jobs can differ: what was submitted, and what their launchers noted of the run, such as Gyre's version. */
function factsOf(job: ServiceJob | null, run: Run | undefined): Map<string, string> {
  const facts = new Map<string, string>();
  const submitted = Object.entries(job?.properties ?? {}).filter(([key]) => !NOT_SUBMITTED.includes(key));
  flat(Object.fromEntries(submitted), "", facts);
  for (const [key, value] of Object.entries(run?.notes ?? {})) if (!SAID_ELSEWHERE.includes(key)) facts.set(key.replaceAll("_", " "), value);
  return facts;
}

interface Compared {
  name: string;
  job: ServiceJob | null;
  run: Run | undefined;
}

function Differences({ jobs }: { jobs: Compared[] }) {
  const facts = jobs.map(({ job, run }) => factsOf(job, run));
  const names = [...new Set(facts.flatMap((one) => [...one.keys()]))];
  const differing = names.filter((name) => new Set(facts.map((one) => one.get(name))).size > 1);
  if (differing.length === 0) return <p class="quiet">Nothing differs in what was submitted.</p>;
  return (
    <details open>
      <summary>What differs</summary>
      <div class="wide" tabIndex={0} role="region" aria-label="What differs between the jobs">
        <table class="differences">
          <thead>
            <tr><th scope="col">setting</th>{jobs.map(({ name }) => <th key={name} scope="col">{name}</th>)}</tr>
          </thead>
          <tbody>
            {differing.map((name) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                {facts.map((one, i) => <td key={i}>{one.get(name) ?? "–"}</td>)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

/** Follows a compared job while it is there, and says it in one sentence where nothing of it can be drawn. */
function Item({ other, run, link, noteJob, remove }: { other: Other; run: number; link: string; noteJob: (job: ServiceJob | null) => void; remove: () => void }) {
  const { value, error, isGone } = usePoll<ServiceJob>(other.path, JOB_MS);
  const state = useSource(other.source);
  const isThere = value !== null && !isGone;
  useEffect(() => (isThere ? other.source.follow() : undefined), [other, isThere]);
  useEffect(() => noteJob(value), [value]);
  const over = state.job !== null && state.connection === "over";
  let words = "";
  if (isGone) words = `There is no job ${other.place} in this workspace; it may have been removed.`;
  else if (error !== null) words = error;
  else if (isThere && state.job !== null && state.index.charts.length === 0) words = over ? "It has logged nothing, so none of its lines are here." : "It has logged nothing yet.";
  return (
    <li>
      <i class={`dash run-${run}`} aria-hidden="true" />
      {isGone ? <span>{other.name}</span> : <a href={link}>{other.name}</a>}
      <span class="quiet">{value === null || isGone ? "" : value.properties.executionState}</span>
      <span role="status" class={isGone ? "says" : "quiet"}>{words}</span>
      <button type="button" aria-label={`Remove ${other.name} from the charts`} onClick={remove}>Remove</button>
    </li>
  );
}

/** `own`: the job whose page it is. */
export function Compare({ workspace, own, ownSource, others, linkTo, change }: {
  workspace: string;
  own: ServiceJob;
  ownSource: Source;
  others: Other[];
  linkTo: (place: string) => string;
  change: ChangeChoice;
}) {
  const [entered, setEntered] = useState("");
  const [refusal, setRefusal] = useState("");
  const [jobs, setJobs] = useState<ReadonlyMap<string, ServiceJob | null>>(new Map());
  const id = useId();
  const listed = usePoll<List<ServiceJob>>(`/workspaces/${encodeURIComponent(workspace)}/jobs?order=newest&maxresults=100`, LIST_MS);
  const self = placeOfJob(own);
  const chosen = others.map(({ place }) => place);
  const offered = (listed.value?.value ?? []).map(placeOfJob).filter((place) => place !== self && !chosen.includes(place));
  const choose = (places: Choice["compare"]) => change({ compare: places });
  const add = async () => {
    const name = entered.trim();
    const place = name.includes("/") ? name : `default/${name}`;
    if (name === "") return;
    if (place === self) return setRefusal(`${name} is the job of this page.`);
    if (chosen.includes(place)) return setRefusal(`${name} is in the charts already.`);
    if (chosen.length === MOST_COMPARED) return setRefusal(`The charts have room for ${MOST_COMPARED} other jobs: remove one first.`);
    try {
      await ask<ServiceJob>(pathOf(workspace, place));
    } catch (error) {
      return setRefusal(error instanceof ServiceError && error.status === 404 ? `There is no job ${place} in this workspace.` : String(error));
    }
    setRefusal("");
    setEntered("");
    choose([...chosen, place]);
  };
  const all: Compared[] = [
    { name: own.name, job: own, run: ownSource.state().index.runs[0] },
    ...others.flatMap(({ place, name, source }) => (jobs.get(place) ? [{ name, job: jobs.get(place) ?? null, run: source.state().index.runs[0] }] : [])),
  ];
  return (
    <section class="panel compare" aria-label="Compare with other jobs">
      <form
        class="title"
        onSubmit={(event) => {
          event.preventDefault();
          void add();
        }}
      >
        <label for={id}>Compare with job</label>
        <input id={id} list={`${id}-jobs`} value={entered} autocomplete="off" spellcheck={false} placeholder="name, or experiment/name" onInput={(event) => setEntered(event.currentTarget.value)} />
        <datalist id={`${id}-jobs`}>{offered.map((place) => <option key={place} value={place.replace(/^default\//, "")} />)}</datalist>
        <button type="submit">Add to the charts</button>
        <span role="status" class="says">{refusal}</span>
      </form>
      {others.length > 0 && (
        <ul class="files" aria-label="Jobs in the charts">
          {others.map((other, i) => (
            <Item
              key={other.place}
              other={other}
              run={i + 1}
              link={linkTo(other.place)}
              noteJob={(job) => setJobs((before) => new Map([...before, [other.place, job]]))}
              remove={() => choose(chosen.filter((place) => place !== other.place))}
            />
          ))}
        </ul>
      )}
      {all.length > 1 && <Differences jobs={all} />}
    </section>
  );
}
