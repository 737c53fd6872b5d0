import { render } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

import { Chart, type Look } from "./chart";
import { type Axis, type Report, type Run, chartsOf, readReport } from "./data";
import "./style.css";

/** What a reader has chosen; it stands in the address, so that a link shows the same. */
interface Choice {
  find: string;
  smoothing: number;
  axis: Axis;
  log: boolean;
}

function choiceOfAddress(): Choice {
  const words = new URLSearchParams(location.hash.slice(1));
  const smoothing = Number(words.get("smooth") ?? 0);
  return {
    find: words.get("find") ?? "",
    smoothing: smoothing > 0 && smoothing < 1 ? smoothing : 0,
    axis: words.get("x") === "time" ? "time" : "step",
    log: words.get("y") === "log",
  };
}

function addressOf(choice: Choice): string {
  const words = new URLSearchParams();
  if (choice.find !== "") words.set("find", choice.find);
  if (choice.smoothing > 0) words.set("smooth", String(choice.smoothing));
  if (choice.axis === "time") words.set("x", "time");
  if (choice.log) words.set("y", "log");
  return `#${words.toString()}`;
}

function useDark(): boolean {
  const query = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const change = () => setDark(query.matches);
    query.addEventListener("change", change);
    return () => query.removeEventListener("change", change);
  }, [query]);
  return dark;
}

function state(run: Run): string {
  const code = run.notes["exit_code"];
  if (code === undefined) return "did not end, or goes on";
  return code === "0" ? "ended well" : `ended with exit code ${code}`;
}

function RunCard({ run }: { run: Run }) {
  const { command, started, git_diff, exit_code, ...facts } = run.notes;
  const when = started === undefined ? "" : new Date(started).toLocaleString();
  return (
    <article class="run">
      <h2>{run.name}</h2>
      <p class={exit_code === "0" ? "state good" : "state"}>{[state(run), when].filter((word) => word !== "").join(" · ")}</p>
      {command !== undefined && <pre>{command}</pre>}
      <dl>
        {Object.entries(facts).map(([key, value]) => (
          <div key={key}>
            <dt>{key.replaceAll("_", " ")}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      {git_diff !== undefined && (
        <details>
          <summary>What differs from the commit</summary>
          <pre>{git_diff}</pre>
        </details>
      )}
    </article>
  );
}

function Controls({ choice, change }: { choice: Choice; change: (part: Partial<Choice>) => void }) {
  return (
    <form class="controls" onSubmit={(event) => event.preventDefault()}>
      <label>
        Find
        <input type="search" value={choice.find} onInput={(event) => change({ find: event.currentTarget.value })} />
      </label>
      <label>
        Smoothing
        <input
          type="range"
          min="0"
          max="0.99"
          step="0.01"
          value={choice.smoothing}
          onInput={(event) => change({ smoothing: Number(event.currentTarget.value) })}
        />
        <output>{choice.smoothing.toFixed(2)}</output>
      </label>
      <label>
        <input
          type="checkbox"
          checked={choice.axis === "time"}
          onChange={(event) => change({ axis: event.currentTarget.checked ? "time" : "step" })}
        />
        over time
      </label>
      <label>
        <input type="checkbox" checked={choice.log} onChange={(event) => change({ log: event.currentTarget.checked })} />
        logarithmic
      </label>
      <span class="hint">drag to zoom, double click to go back</span>
    </form>
  );
}

function Page({ report }: { report: Report }) {
  const [choice, setChoice] = useState(choiceOfAddress);
  const dark = useDark();
  useEffect(() => {
    const follow = () => setChoice(choiceOfAddress());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const change = (part: Partial<Choice>) => {
    const next = { ...choice, ...part };
    setChoice(next);
    history.replaceState(null, "", addressOf(next));
  };
  const charts = useMemo(() => chartsOf(report, choice.axis), [report, choice.axis]);
  const look: Look = useMemo(
    () => ({ axis: choice.axis, smoothing: choice.smoothing, logarithmic: choice.log, dark }),
    [choice.axis, choice.smoothing, choice.log, dark],
  );
  const wanted = choice.find.toLowerCase();
  const found = charts.filter((chart) => chart.name.toLowerCase().includes(wanted));
  return (
    <main>
      <header>
        <h1>{report.runs.length === 1 ? "Run" : `${report.runs.length} runs`}</h1>
        <div class="runs">{report.runs.map((run) => <RunCard key={run.name} run={run} />)}</div>
      </header>
      <Controls choice={choice} change={change} />
      {found.length === 0 && <p role="status">{charts.length === 0 ? "Nothing was logged." : "No series has such a name."}</p>}
      <div class="charts">{found.map((chart) => <Chart key={chart.name} chart={chart} look={look} />)}</div>
    </main>
  );
}

const place = document.getElementById("page");
if (place !== null) render(<Page report={readReport()} />, place);
