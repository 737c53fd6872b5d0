import { render } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";

import { RunCard, useCharts, useSource } from "./charts";
import { type ChangeChoice, useChoice } from "./choice";
import { type Connection, type Job, type Rank, type Source, type State, isOver } from "./data";
import { embeddedSource } from "./embedded";
import { Events } from "./events";
import { Failures } from "./failures";
import { liveSource } from "./live";
import { Log } from "./log";
import { type ReadLog, findInLog } from "./log_window";
import { NewLink } from "./new_link";
import { Ranks, hostOf, verdict } from "./ranks";
import { Service } from "./service";
import { Timeline } from "./timeline";
import "./style.css";

function Report({ source }: { source: Source }) {
  const state = useSource(source);
  const [choice, change] = useChoice("#");
  const { runs } = state.index;
  const charts = useCharts(source, state, choice, change);
  return (
    <main>
      <header>
        <h1>{runs.length === 1 ? "Run" : `${runs.length} runs`}</h1>
        <div class="runs">{runs.map((run, i) => <RunCard key={i} run={run} />)}</div>
      </header>
      {state.timeline > 0 && <Timeline source={source} state={state} chosen={choice.view} change={change} />}
      {charts}
    </main>
  );
}

const CONNECTIONS: Record<Connection, string> = {
  embedded: "",
  live: "",
  connecting: "connecting …",
  lost: "The connection was lost, and this is the last that came; reconnecting …",
  silent: "The server of this page does not answer: it is stopped, or the network is gone. This is the last that came; asking again …",
  refused: "This browser is not let in any more: the job has ended, or its page is open by a new link. This is the last that came.",
  ending: "Fetching the last of its charts and logs …",
  over: "This page stays readable until you close it.",
  cut: "This page stays readable until you close it, but some of the last charts and logs did not come.",
};

const STATES: Record<Job["state"], string> = {
  preparing: "preparing",
  running: "running",
  stopping: "stopping",
  ended: "ended well",
  failed: "failed",
  stopped: "stopped",
};

/** How the run has ended, as `gyre run` says it with its exit code. */
function ending(job: Job): string {
  if (job.exit_code === null) return "";
  const how = job.state === "ended" ? "gyre run has ended well" : "gyre run has ended";
  return `${how}, with exit code ${job.exit_code}. `;
}

function duration(seconds: number): string {
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, Math.floor(seconds) % 60];
  const [hours, ...rest] = parts;
  return [...(hours ? [String(hours)] : []), ...rest.map((part) => String(part).padStart(2, "0"))].join(":");
}

function Elapsed({ job }: { job: Job }) {
  const [, tick] = useState(0);
  const last = job.events.at(-1)?.time ?? 0;
  const over = job.exit_code !== null;
  useEffect(() => {
    if (over) return;
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, [over]);
  const first = Math.min(...job.ranks.map((rank) => rank.started));
  if (!Number.isFinite(first)) return null;
  return <span>{`since ${new Date(first * 1000).toLocaleString()}, ${duration(Math.max(0, (over ? last : Date.now() / 1000) - first))}`}</span>;
}

function Head({ source, state, job }: { source: Source; state: State; job: Job }) {
  const words = verdict(job);
  return (
    <header>
      <div class="title">
        <h1 title={job.name}>{job.name}</h1>
        <span class={`badge ${job.state}`}>{STATES[job.state]}</span>
        {job.restarts > 0 && <span class="badge late">{`restart ${job.restarts}`}</span>}
        <Elapsed job={job} />
        {state.connection === "live" && <NewLink make={() => source.newLink()} />}
      </div>
      <p class={words === "" ? "verdict" : `verdict says ${job.ranks[0]?.phase ?? ""}`} role="status">{words}</p>
      <p class={`connection ${state.connection}`} role="status">
        {`${ending(job)}${CONNECTIONS[state.connection]}`}
      </p>
      <p class="connection" role="status">{job.preparing ?? ""}</p>
      {job.report !== "" && <pre class="report" tabIndex={0} aria-label="The launcher's report">{job.report}</pre>}
    </header>
  );
}

const TRACEBACK = "Traceback (most recent call last)";
const MOST_SEARCHED_FOR_TRACEBACK = 1_048_576;

function RankLog({ source, state, rank, job, at, change }: {
  source: Source;
  state: State;
  rank: number;
  job: Job;
  /** From the address. */
  at: number | null;
  change: ChangeChoice;
}) {
  const read = useCallback((from: number, to: number) => source.log(rank, from, to), [source, rank]);
  const goToFailure = async (one: Rank) => {
    const end = one.log_end ?? state.logs.get(one.rank) ?? 0;
    const begin = Math.max(one.log_begin, end - MOST_SEARCHED_FOR_TRACEBACK);
    const readIts: ReadLog = (from, to) => source.log(one.rank, from, to);
    const found = await findInLog(readIts, TRACEBACK, end, true, begin, () => false).catch(() => null);
    change({ rank: one.rank, at: found ?? Math.max(begin, end - 1) });
  };
  return (
    <Log
      title={`Log of rank ${rank}`}
      read={read}
      size={state.logs.get(rank) ?? 0}
      at={at}
      over={isOver(state.connection)}
      cut={isOver(state.connection) && state.connection !== "ending"}
      keptFrom={() => source.keptLogFrom(rank)}
      goTo={(to) => change({ rank, at: to })}
      href={`api/ranks/${rank}/log`}
    >
      <Failures job={job} selected={rank} go={(one) => void goToFailure(one)} />
    </Log>
  );
}

/** What the page cannot show of a job over several hosts. */
function OtherHosts({ job }: { job: Job }) {
  if (new Set(job.ranks.map(hostOf)).size < 2) return null;
  return (
    <p class="quiet hosts">
      The timeline has the ranks whose traces lie on the host of gyre run: all of them with --timeline and a name with
      {" {rank} "}in it, in a folder that the hosts share.
    </p>
  );
}

function Live({ source }: { source: Source }) {
  const state = useSource(source);
  const [choice, change] = useChoice("#");
  const { job } = state;
  const charts = useCharts(source, state, choice, change);
  useEffect(() => {
    if (job !== null) document.title = `${STATES[job.state]}: ${job.name}`;
  }, [job?.state, job?.name]);
  if (job === null) return <main><h1>Gyre</h1><p role="status">{CONNECTIONS[state.connection]}</p></main>;
  const failed: Rank | null = job.ranks.find((rank) => rank.phase === "failed") ?? null;
  const selected = choice.rank ?? failed?.rank ?? 0;
  return (
    <main>
      <Head source={source} state={state} job={job} />
      <div class="live">
        <div class="side">
          <Ranks job={job} selected={selected} select={(rank) => change({ rank, at: null })} />
          <Events events={job.events} select={(rank) => change({ rank, at: null })} />
        </div>
        <RankLog key={selected} source={source} state={state} rank={selected} job={job} at={choice.at} change={change} />
      </div>
      {state.timeline > 0 && <Timeline source={source} state={state} chosen={choice.view} change={change} />}
      <OtherHosts job={job} />
      {charts}
      <details class="facts">
        <summary>{state.index.runs.length > 1 ? "The runs" : "The run"}</summary>
        <div class="runs">{state.index.runs.map((run, i) => <RunCard key={i} run={run} />)}</div>
      </details>
    </main>
  );
}

/** For who asks for this host and port alone: the server shows this script's origin the way back. */
function notePlace(): void {
  try {
    localStorage.setItem("gyre-page", location.pathname);
  } catch {
    // This browser keeps nothing; the whole address works as well.
  }
}

function content() {
  const data = document.getElementById("data");
  if (data !== null) return <Report source={embeddedSource(data.textContent ?? "")} />;
  notePlace();
  const kind = document.querySelector<HTMLMetaElement>('meta[name="gyre"]')?.content;
  return kind === "service" ? <Service /> : <Live source={liveSource()} />;
}

const place = document.getElementById("page");
if (place !== null) render(content(), place);
