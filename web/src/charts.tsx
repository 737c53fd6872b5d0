// All charts of a source, with what a reader chooses for them.
import { useEffect, useMemo, useState } from "preact/hooks";

import { Chart, type Look } from "./chart";
import type { ChangeChoice, Choice } from "./choice";
import { type Run, type Source, type State, inOrder, isOver } from "./data";
import { usePrinting } from "./printing";

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

export function useSource(source: Source): State {
  const [state, setState] = useState(source.state());
  useEffect(() => {
    const take = () => setState(source.state());
    take(); // Another source than before.
    return source.watch(take);
  }, [source]);
  return state;
}

function endOf(run: Run): string {
  const code = run.notes["exit_code"];
  if (code === undefined) return run.end ?? "has not ended";
  return code === "0" ? "ended well" : `ended with exit code ${code}`;
}

export function RunCard({ run }: { run: Run }) {
  const { command, started, git_diff, git_untracked, exit_code, ...facts } = run.notes;
  const when = started === undefined ? "" : new Date(started).toLocaleString();
  return (
    <article class="run">
      <h2>{run.name}</h2>
      <p class={exit_code === "0" ? "state good" : "state"}>{[endOf(run), when].filter((word) => word !== "").join(" · ")}</p>
      {command !== undefined && <pre tabIndex={0}>{command}</pre>}
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
          <pre tabIndex={0}>{git_diff}</pre>
        </details>
      )}
      {git_untracked !== undefined && (
        <details>
          <summary>Files that git does not track</summary>
          <pre tabIndex={0}>{git_untracked}</pre>
        </details>
      )}
    </article>
  );
}

function Controls({ choice, change }: { choice: Choice; change: ChangeChoice }) {
  return (
    <form class="controls" aria-label="Charts" onSubmit={(event) => event.preventDefault()}>
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
          onChange={(event) => change({ axis: event.currentTarget.checked ? "time" : "step", zoom: null })}
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

/** Drawn again only where something is another that they show: not while the timeline moves. */
export function useCharts(source: Source, state: State, choice: Choice, change: ChangeChoice) {
  return useMemo(
    () => <Charts source={source} state={state} choice={choice} change={change} />,
    [source, state, choice.find, choice.smoothing, choice.axis, choice.log, choice.zoom],
  );
}

function Charts({ source, state, choice, change }: { source: Source; state: State; choice: Choice; change: ChangeChoice }) {
  const printing = usePrinting();
  const dark = useDark() && !printing;
  const zoomAll = (zoom: Choice["zoom"]) => change({ zoom });
  const look: Look = useMemo(
    () => ({ axis: choice.axis, smoothing: choice.smoothing, logarithmic: choice.log, dark }),
    [choice.axis, choice.smoothing, choice.log, dark],
  );
  const names = useMemo(() => inOrder(state.index.charts.map(({ name }) => name)), [state.index]);
  const wanted = choice.find.toLowerCase();
  const found = names.filter((name) => name.toLowerCase().includes(wanted));
  const nothing = source.live && !isOver(state.connection) ? "Nothing has been logged yet." : "Nothing was logged.";
  return (
    <>
      <Controls choice={choice} change={change} />
      {found.length === 0 && <p role="status">{names.length === 0 ? nothing : "No series has such a name."}</p>}
      <div class="charts">
        {found.map((name) => (
          <Chart key={name} source={source} name={name} version={state.metrics} runs={state.index.runs} look={look} common={choice.zoom} zoomAll={zoomAll} printing={printing} />
        ))}
      </div>
    </>
  );
}
