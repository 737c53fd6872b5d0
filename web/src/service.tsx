import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { useCharts, useSource } from "./charts";
import { type ChangeChoice, type Choice, useChoice, wordsOf } from "./choice";
import { Compare, NOT_SUBMITTED, placeOfJob, useOthers } from "./compare";
import { ComparedSource } from "./compared";
import { type Rank, shownBytes } from "./data";
import { EventTime, MOST_EVENTS_SHOWN } from "./events";
import { Failures } from "./failures";
import { newLink, polledSource } from "./live";
import { Log } from "./log";
import { NewLink } from "./new_link";
import { Processes } from "./processes";
import { Ranks, verdict } from "./ranks";
import { type Cluster, type List, type Node, type OutputFile, type ServiceJob, type Why, ask, readFile, useEvents, usePoll } from "./service_data";
import { Timeline } from "./timeline";
import { Use } from "./use";

const LIST_MS = 3_000;
const JOB_MS = 2_000;
/** What changes seldom while a job runs; a hundred viewers ask the server for it. */
const WHILE_IT_RUNS_MS = 5_000;
const LOG_MS = 1_000;
/** Of a job that is over: it may be tried again. */
const SELDOM_MS = 10_000;
const OVER = ["succeeded", "failed"];
/** Of a list, at once. */
const MOST_JOBS = 100;
/** Of a job's folder of logs, what is no log: its metrics and timelines. */
const MEASURED = /^gyre-\d+-(\d+\.metrics|timeline-\d+\.json)/;

type Place = { view: "jobs"; workspace: string } | { view: "job"; workspace: string; path: string; file: string | null } | { view: "nodes"; workspace: string };

/** "#/WORKSPACE", "#/WORKSPACE/nodes", "#/WORKSPACE/jobs/EXPERIMENT/JOB/FILE"; behind "?" what is chosen (choice.ts). */
function placeOf(hash: string): Place {
  const [path = ""] = hash.slice(2).split("?");
  const [workspace = "default", view, experiment, job, file] = path.split("/").filter((part) => part !== "").map(decodeURIComponent);
  if (view === "nodes") return { view: "nodes", workspace };
  if (view === "jobs" && experiment !== undefined && job !== undefined) {
    const path = `/workspaces/${encodeURIComponent(workspace)}/experiments/${encodeURIComponent(experiment)}/jobs/${encodeURIComponent(job)}`;
    return { view: "job", workspace, path, file: file ?? null };
  }
  return { view: "jobs", workspace };
}

function addressOf(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

function addressOfJob(workspace: string, job: ServiceJob, ...more: string[]): string {
  return addressOf(workspace, "jobs", experimentOf(job), job.name, ...more);
}

function experimentOf(job: ServiceJob): string {
  return placeOfJob(job).split("/")[0] ?? "default";
}

function usePlace(): Place {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const follow = () => setHash(location.hash);
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return useMemo(() => placeOf(hash), [hash]);
}

function time(text: string | null): string {
  return text === null ? "" : new Date(text).toLocaleString();
}

function lasted(job: ServiceJob): string {
  const { startTime, endTime } = job.properties.executionInfo;
  if (startTime === null) return "";
  const seconds = Math.max(0, Math.round(((endTime === null ? Date.now() : Date.parse(endTime)) - Date.parse(startTime)) / 1000));
  const minutes = Math.floor(seconds / 60);
  return minutes >= 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : minutes > 0 ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

function stateOf(job: ServiceJob): string {
  const { executionState, executionInfo } = job.properties;
  return executionState === "failed" && executionInfo.exitCode !== null ? `failed, exit code ${executionInfo.exitCode}` : executionState;
}

const BADGES: Record<ServiceJob["properties"]["executionState"], string> = { queued: "stopped", running: "running", terminating: "late", succeeded: "ended", failed: "failed" };

function Badge({ job }: { job: ServiceJob }) {
  return <span class={`badge ${BADGES[job.properties.executionState]}`}>{stateOf(job)}</span>;
}

function Problem({ error }: { error: string | null }) {
  return <p class={error === null ? "connection" : "connection lost"} role="status">{error ?? ""}</p>;
}

/** Why it waits: asked for each queued job by itself. */
function Reason({ job }: { job: ServiceJob }) {
  const why = usePoll<Why>(job.properties.executionState === "queued" ? `${job.id}/why` : null, LIST_MS);
  const failure = job.properties.executionInfo.errors[0]?.message ?? "";
  return <>{job.properties.executionState === "queued" ? (why.value?.message ?? "") : failure}</>;
}

const NAMES_CLUSTER = /["']?\bcluster["']?\s*:/;

/** A job.json, from a file or another job, on its way to the server. */
interface Draft {
  name: string;
  experiment: string;
  text: string;
  /** The checksum of an archive that has been uploaded before. */
  code?: string | undefined;
  /** What a reader must know of it. */
  words?: string;
}

/** What becomes of the folder that was uploaded with a job. */
function wordsOfCode(job: ServiceJob): string {
  if (job.gyre.code !== undefined) return "It starts in a copy of the code that was submitted with that job.";
  return job.gyre.hasCode === true ? `It starts without the code of that job, which is for ${job.gyre.submitter} alone.` : "";
}

function draftOf(job: ServiceJob): Draft {
  const properties = Object.fromEntries(Object.entries(job.properties).filter(([key]) => !NOT_SUBMITTED.includes(key)));
  return { name: `${job.name.slice(0, 56)}-again`, experiment: experimentOf(job), text: JSON.stringify({ properties }, null, 2), code: job.gyre.code, words: wordsOfCode(job) };
}

/** A file that is not valid JSON or YAML stays as it is: the server explains the mistake. */
function withCluster(text: string, cluster: string): string {
  try {
    const file = JSON.parse(text) as { properties?: Record<string, unknown> };
    return JSON.stringify({ ...file, properties: { ...file.properties, cluster: { id: cluster } } });
  } catch {
    if (NAMES_CLUSTER.test(text)) throw new Error("The file names a cluster, and is not JSON: change the name in it, and choose \u201cas the file says\u201d.");
    const id = JSON.stringify(cluster);
    return text.replace(/^(properties:[ \t]*(?:#.*)?\r?\n(?:[ \t]*(?:#.*)?\r?\n)*)([ \t]+)/m, (_, before: string, indent: string) => `${before}${indent}cluster: {id: ${id}}\n${indent}`);
  }
}

function Submit({ workspace, draft, close }: { workspace: string; draft: Draft; close: () => void }) {
  const [name, setName] = useState(draft.name);
  const [text, setText] = useState(draft.text);
  const [error, setError] = useState("");
  const clusters = usePoll<List<Cluster>>(`/workspaces/${encodeURIComponent(workspace)}/clusters`, 30_000);
  const names = (clusters.value?.value ?? []).map((one) => one.name);
  const [chosen, setChosen] = useState<string | null>(null);
  // A file that names none gets the workspace's only one, as from `gyre job submit`.
  const cluster = chosen ?? (names.length === 1 && !NAMES_CLUSTER.test(draft.text) ? (names[0] ?? "") : "");
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const submit = async () => {
    const parent = `/workspaces/${encodeURIComponent(workspace)}/experiments/${encodeURIComponent(draft.experiment)}`;
    try {
      const body = cluster === "" ? text : withCluster(text, cluster);
      await ask(parent, { method: "PUT" });
      const job = await ask<ServiceJob>(`${parent}/jobs/${encodeURIComponent(name)}${draft.code === undefined ? "" : `?code=${draft.code}`}`, { method: "PUT", body });
      close();
      location.hash = addressOfJob(workspace, job);
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  return (
    <dialog ref={dialog} onClose={close} aria-label="Submit a job">
      <form
        class="submit"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <h2>Submit a job</h2>
        <label>
          Name
          <input value={name} required pattern="[A-Za-z0-9_\-]{1,64}" onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <label>
          Cluster
          <select value={cluster} onChange={(event) => setChosen(event.currentTarget.value)}>
            <option value="">as the file says</option>
            {names.map((one) => <option key={one} value={one}>{one}</option>)}
          </select>
        </label>
        <label>
          Job file
          <textarea rows={16} value={text} spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        {draft.words !== undefined && draft.words !== "" && <p class="quiet">{draft.words}</p>}
        <p class="connection says" role="alert">{error}</p>
        <div class="title">
          <button type="submit">Submit</button>
          <button type="button" onClick={close}>Cancel</button>
        </div>
      </form>
    </dialog>
  );
}

function Jobs({ workspace, open }: { workspace: string; open: (draft: Draft) => void }) {
  const [state, setState] = useState("");
  /** Behind which job of the list each page begins that was turned to. */
  const [pages, setPages] = useState<string[]>([]);
  const after = pages.at(-1);
  const query = new URLSearchParams({ order: "newest", maxresults: String(MOST_JOBS), ...(state === "" ? {} : { state }), ...(after === undefined ? {} : { after }) });
  const jobs = usePoll<List<ServiceJob>>(`/workspaces/${encodeURIComponent(workspace)}/jobs?${query.toString()}`, LIST_MS);
  const older = new URLSearchParams(jobs.value?.nextLink?.split("?")[1] ?? "").get("after");
  const take = async (file: File | undefined) => {
    if (file === undefined) return;
    const name = file.name.replace(/\.[^.]*$/, "").replace(/[^A-Za-z0-9_-]/g, "-").slice(0, 40);
    open({ name: `${name}-${Date.now().toString(36)}`, experiment: "default", text: await file.text() });
  };
  return (
    <section
      class="panel"
      aria-labelledby="jobs"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        void take(event.dataTransfer?.files[0]);
      }}
    >
      <div class="title">
        <h1 id="jobs">Jobs</h1>
        <label class="file">
          Submit a job file, or drop it here
          <input
            type="file"
            accept=".json,.yaml,.yml"
            onChange={(event) => {
              void take(event.currentTarget.files?.[0]);
              event.currentTarget.value = "";
            }}
          />
        </label>
        <label class="file">
          State
          <select
            value={state}
            onChange={(event) => {
              setState(event.currentTarget.value);
              setPages([]);
            }}
          >
            <option value="">any</option>
            {Object.keys(BADGES).map((one) => <option key={one} value={one}>{one}</option>)}
          </select>
        </label>
      </div>
      <Problem error={jobs.error} />
      {jobs.value !== null && jobs.value.value.length === 0 && <p class="quiet">{state === "" && pages.length === 0 ? "This workspace has no jobs." : "There are none."}</p>}
      <div class="wide" tabIndex={0} role="region" aria-label="Table of jobs">
        <table>
          <thead>
            <tr>{["Job", "State", "Nodes", "Cluster", "By", "Submitted", "Runs for", "Why"].map((head) => <th key={head} scope="col">{head}</th>)}</tr>
          </thead>
          <tbody>
            {(jobs.value?.value ?? []).map((job) => (
              <tr key={job.id}>
                <th scope="row"><a href={addressOfJob(workspace, job)}>{job.name}</a></th>
                <td><Badge job={job} /></td>
                <td>{job.properties.nodeCount}</td>
                <td>{job.properties.cluster.id}</td>
                <td>{job.gyre.submitter}</td>
                <td>{time(job.properties.creationTime)}</td>
                <td>{lasted(job)}</td>
                <td><Reason job={job} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {(older !== null || pages.length > 0) && (
        <p class="title">
          <button type="button" disabled={pages.length === 0} onClick={() => setPages(pages.slice(0, -1))}>Newer jobs</button>
          <button type="button" disabled={older === null} onClick={() => older !== null && setPages([...pages, older])}>Older jobs</button>
        </p>
      )}
    </section>
  );
}

function isOver(job: ServiceJob): boolean {
  return OVER.includes(job.properties.executionState);
}

function JobEvents({ job }: { job: ServiceJob }) {
  const { events, dropped } = useEvents(job.id, isOver(job) ? SELDOM_MS : JOB_MS);
  const newest = events.slice(-MOST_EVENTS_SHOWN).reverse();
  const earlier = dropped + events.length - newest.length;
  return (
    <section class="panel" aria-labelledby="events">
      <h2 id="events">Events</h2>
      <ol class="events" tabIndex={0} aria-label="Events, the newest first">
        {newest.map((event) => (
          <li key={event.sequence} class={event.to === "failed" ? "failed" : ""}>
            <EventTime at={new Date(event.time)} />
            <span>{[`${event.subject} ${event.to}`.trim(), event.message].filter((word) => word !== "").join(": ")}</span>
          </li>
        ))}
      </ol>
      {earlier > 0 && <p class="quiet">{`and ${earlier} earlier ones`}</p>}
    </section>
  );
}

function Outputs({ job }: { job: ServiceJob }) {
  const ids = (job.properties.outputDirectories ?? []).map(({ id }) => id);
  return <>{ids.map((id) => <Output key={id} job={job} id={id} />)}</>;
}

function Output({ job, id }: { job: ServiceJob; id: string }) {
  const [below, setBelow] = useState("");
  const query = new URLSearchParams({ outputdirectoryid: id, ...(below === "" ? {} : { directory: below }) });
  const files = usePoll<List<OutputFile>>(`${job.id}/files?${query.toString()}`, isOver(job) ? SELDOM_MS : WHILE_IT_RUNS_MS);
  return (
    <section class="panel" aria-label={`Output ${id}`}>
      <h2>{`Output ${id}${below === "" ? "" : `/${below}`}`}</h2>
      <ul class="files">
        {below !== "" && <li><button type="button" class="plain" onClick={() => setBelow(below.split("/").slice(0, -1).join("/"))}>..</button></li>}
        {(files.value?.value ?? []).map((file) => (
          <li key={file.name}>
            {file.downloadUrl === null ? (
              <button type="button" class="plain" onClick={() => setBelow(below === "" ? file.name : `${below}/${file.name}`)}>{`${file.name}/`}</button>
            ) : (
              <a href={`service${file.downloadUrl}`} download={file.name}>{file.name}</a>
            )}
            <span class="quiet">{file.properties.contentLength === undefined ? "" : shownBytes(file.properties.contentLength)}</span>
          </li>
        ))}
      </ul>
      {files.error !== null && <p class="quiet">{files.error}</p>}
    </section>
  );
}

function Logs({ workspace, job, failed, chosen, choice, change }: { workspace: string; job: ServiceJob; failed: Rank | null; chosen: string | null; choice: Choice; change: ChangeChoice }) {
  const [complete, setComplete] = useState(false);
  const files = usePoll<List<OutputFile>>(`${job.id}/files`, complete && isOver(job) ? SELDOM_MS : LOG_MS);
  useEffect(() => setComplete(files.value?.complete === true), [files.value?.complete]);
  const listed = (files.value?.value ?? []).filter((file) => file.downloadUrl !== null && !MEASURED.test(file.name));
  const largest = [...listed].sort((a, b) => (b.properties.contentLength ?? 0) - (a.properties.contentLength ?? 0));
  const begins = (word: string) => listed.find(({ name, properties }) => name.startsWith(word) && (properties.contentLength ?? 0) > 0);
  // Why a job has failed stands there: of several ranks, in the log of the one that failed first.
  const telling = job.properties.executionState === "failed" ? (begins(failed === null ? "stderr" : `stderr-${logOf(failed)}.txt`) ?? begins("stderr")) : undefined;
  const file = listed.find(({ name }) => name === chosen) ?? telling ?? listed.find(({ name }) => name.startsWith("stdout")) ?? largest[0];
  const url = file?.downloadUrl ?? null;
  const read = useMemo(() => readFile(url ?? ""), [url]);
  if (file === undefined || url === null) {
    return <section class="panel"><h2>Logs</h2><p class="quiet">{job.properties.executionState === "queued" ? "The job has not started." : "There are no logs."}</p></section>;
  }
  return (
    <div class="logs">
      <nav class="tabs" aria-label="Log files">
        {listed.map(({ name, properties }) => (
          <a key={name} href={`${addressOfJob(workspace, job, name)}?${wordsOf({ ...choice, at: null })}`} aria-current={name === file.name ? "true" : undefined}>
            {name} <span class="quiet">{shownBytes(properties.contentLength ?? 0)}</span>
          </a>
        ))}
      </nav>
      <Log key={url} title={file.name} read={read} size={file.properties.contentLength ?? 0} at={choice.at} over={files.value?.complete === true} failures goTo={(at) => change({ at })} href={`service${url}`} />
    </div>
  );
}

/** What nodes name the logs of a rank by: "3", and of processes of `tensorFlowSettings` "wk-0" or "ps-0". */
function logOf(rank: Rank): string {
  const [role = "", index] = rank.role.split(" ");
  return index === undefined ? String(rank.rank) : `${role === "ps" ? "ps" : "wk"}-${index}`;
}

/** The ranks and the charts of a job of which metrics have come, and between them what every job has. */
function Run({ workspace, job, choice, change, children }: { workspace: string; job: ServiceJob; choice: Choice; change: ChangeChoice; children: (failed: Rank | null) => ComponentChildren }) {
  const source = useMemo(() => polledSource(job.id), [job.id]);
  useEffect(() => source.follow(), [source]);
  const others = useOthers(workspace, choice.compare.filter((place) => place !== placeOfJob(job)));
  const compared = useMemo(() => (others.length === 0 ? source : new ComparedSource(source, others)), [source, others]);
  const state = useSource(compared);
  const charts = useCharts(compared, state, choice, change);
  const run = state.job !== null && state.job.ranks.length > 0 ? state.job : null;
  const failed = run?.ranks.find((rank) => rank.phase === "failed") ?? null;
  const selected = choice.rank ?? failed?.rank ?? run?.ranks[0]?.rank ?? 0;
  // Of ranks of `gyre run` there is one log for all.
  const hasOwnLogs = ["pyTorchSettings", "caffe2Settings", "tensorFlowSettings"].some((name) => (job.properties[name] ?? null) !== null);
  const showLog = (rank: Rank, stream: string) => {
    if (hasOwnLogs) location.hash = `${addressOfJob(workspace, job, `${stream}-${logOf(rank)}.txt`)}?${wordsOf({ ...choice, rank: rank.rank, at: null })}`;
    else change({ rank: rank.rank });
  };
  const select = (rank: number) => {
    const one = run?.ranks.find((each) => each.rank === rank);
    if (one !== undefined) showLog(one, "stdout");
  };
  const words = run === null ? "" : verdict(run);
  return (
    <>
      <p class={words === "" ? "verdict" : `verdict says ${run?.ranks[0]?.phase ?? ""}`} role="status">{words}</p>
      {run !== null && <Ranks job={run} selected={selected} select={select} />}
      {run !== null && <p class="title"><Failures job={run} selected={selected} go={(rank) => showLog(rank, "stderr")} /></p>}
      {run === null && state.connection !== "connecting" && <Processes workspace={workspace} job={job} place={placeOfJob(job)} />}
      {children(failed)}
      {state.timeline > 0 && <Timeline source={source} state={state} chosen={choice.view} change={change} />}
      {(state.index.charts.length > 0 || others.length > 0) && (
        <Compare
          workspace={workspace}
          own={job}
          ownSource={source}
          others={others}
          linkTo={(place) => addressOf(workspace, "jobs", ...place.split("/"))}
          change={change}
        />
      )}
      {state.index.charts.length > 0 && charts}
    </>
  );
}

function JobPage({ workspace, path, file, open }: { workspace: string; path: string; file: string | null; open: (draft: Draft) => void }) {
  const [state, setState] = useState("");
  const job = usePoll<ServiceJob>(path, OVER.includes(state) ? SELDOM_MS : JOB_MS);
  const why = usePoll<Why>(`${path}/why`, OVER.includes(state) ? SELDOM_MS : state === "running" ? WHILE_IT_RUNS_MS : JOB_MS);
  const [choice, change] = useChoice("?");
  const [stopping, setStopping] = useState<string | null>(null);
  const one = job.value;
  useEffect(() => {
    if (one === null) return;
    document.title = `${stateOf(one)}: ${one.name}`;
    setState(one.properties.executionState);
  }, [one]);
  if (one === null) return <Problem error={job.error ?? ""} />;
  const runs = ["queued", "running"].includes(one.properties.executionState);
  const stop = async () => {
    try {
      await ask(`${path}/terminate`, { method: "POST" });
      setStopping(null);
      job.again();
    } catch (error) {
      setStopping(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <>
      <div class="title">
        <h1 title={one.name}>{one.name}</h1>
        <Badge job={one} />
        <span>{[time(one.properties.executionInfo.startTime), lasted(one)].filter((word) => word !== "").join(", ")}</span>
        {runs && stopping === null && <button type="button" onClick={() => setStopping("")}>Stop</button>}
        {runs && stopping !== null && <button type="button" class="bad" onClick={() => void stop()}>Yes, stop it</button>}
        {stopping !== null && runs && <button type="button" onClick={() => setStopping(null)}>No</button>}
        <button type="button" onClick={() => open(draftOf(one))}>Clone</button>
      </div>
      <Problem error={job.error ?? (stopping === "" ? null : stopping)} />
      <p class="verdict" role="status">{why.value?.message ?? ""}</p>
      {one.properties.executionInfo.errors.filter(({ message }) => message !== why.value?.message).map((error, i) => <p key={i} class="verdict says">{error.message ?? ""}</p>)}
      <Run key={one.id} workspace={workspace} job={one} choice={choice} change={change}>
        {(failed) => (
          <div class="live">
            <div class="side">
              <JobEvents job={one} />
              <Outputs job={one} />
            </div>
            <Logs workspace={workspace} job={one} failed={failed} chosen={file} choice={choice} change={change} />
          </div>
        )}
      </Run>
      <details class="facts">
        <summary>The job's properties</summary>
        <pre tabIndex={0}>{JSON.stringify(one.properties, null, 2)}</pre>
      </details>
    </>
  );
}

function ClusterNodes({ workspace, cluster }: { workspace: string; cluster: Cluster }) {
  const path = `/workspaces/${encodeURIComponent(workspace)}/clusters/${encodeURIComponent(cluster.name)}`;
  const nodes = usePoll<List<Node>>(`${path}/nodes`, LIST_MS);
  return (
    <section class="panel" aria-label={`Cluster ${cluster.name}`}>
      <h2>{cluster.name}</h2>
      <p class="quiet">{`${cluster.properties.allocationState}, ${cluster.properties.currentNodeCount} ${cluster.properties.currentNodeCount === 1 ? "node" : "nodes"}`}</p>
      {cluster.properties.errors.map((error, i) => <p key={i} class="verdict says">{error.message ?? ""}</p>)}
      <Use path={path} />
      <ul class="files">
        {(nodes.value?.value ?? []).map((node) => (
          <li key={node.nodeId}>
            <b>{node.nodeId}</b>
            <span>{node.state}</span>
            {node.job !== null && <a href={addressOf(workspace, "jobs", ...node.job.split("/"))}>{node.job}</a>}
            {node.gpus > 0 && <span class="quiet">{`${node.gpus} GPUs`}</span>}
            {node.problem !== null && <span class="says">{node.problem}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Nodes({ workspace }: { workspace: string }) {
  const clusters = usePoll<List<Cluster>>(`/workspaces/${encodeURIComponent(workspace)}/clusters`, LIST_MS);
  return (
    <>
      <h1>Nodes</h1>
      <Problem error={clusters.error} />
      {clusters.value?.value.length === 0 && <p class="quiet">This workspace has no cluster.</p>}
      <div class="runs">{(clusters.value?.value ?? []).map((cluster) => <ClusterNodes key={cluster.name} workspace={workspace} cluster={cluster} />)}</div>
    </>
  );
}

export function Service() {
  const place = usePlace();
  const workspaces = usePoll<List<{ name: string }>>("/workspaces", 30_000);
  const [draft, setDraft] = useState<Draft | null>(null);
  const names = (workspaces.value?.value ?? []).map(({ name }) => name);
  const { workspace } = place;
  useEffect(() => {
    if (place.view !== "job") document.title = `Gyre: ${place.view}`;
  }, [place.view]);
  const current = (view: Place["view"]) => (place.view === view ? "page" : undefined);
  return (
    <main>
      <header class="title">
        <nav class="tabs" aria-label="Views">
          <a href={addressOf(workspace)} aria-current={current("jobs")}>Jobs</a>
          <a href={addressOf(workspace, "nodes")} aria-current={current("nodes")}>Nodes</a>
        </nav>
        <label class="file">
          Workspace
          <select value={workspace} onChange={(event) => (location.hash = addressOf(event.currentTarget.value))}>
            {[...new Set([workspace, ...names])].map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        <NewLink make={() => newLink("links")} />
      </header>
      {place.view === "jobs" && <Jobs key={workspace} workspace={workspace} open={setDraft} />}
      {place.view === "job" && <JobPage key={place.path} workspace={workspace} path={place.path} file={place.file} open={setDraft} />}
      {place.view === "nodes" && <Nodes key={workspace} workspace={workspace} />}
      {draft !== null && <Submit workspace={workspace} draft={draft} close={() => setDraft(null)} />}
    </main>
  );
}
