// What is known of a job whose ranks Gyre's launcher does not start: those of mpirun, say.
import { type List, type Node, type ServiceJob, usePoll } from "./service_data";

const NODES_MS = 3_000;
const UNDER_MPIRUN = ["customMpiSettings", "horovodSettings", "chainerSettings", "cntkSettings", "caffeSettings"];

interface Toolkit {
  processCount?: number | null;
  communicationBackend?: string | null;
}

/** The settings of a program that mpirun starts; null: of none. */
function mpiSettings(job: ServiceJob): Toolkit | null {
  for (const name of UNDER_MPIRUN) {
    const settings = job.properties[name] as Toolkit | null | undefined;
    if (settings !== undefined && settings !== null) return settings;
  }
  const torch = job.properties["pyTorchSettings"] as Toolkit | null | undefined;
  return torch?.communicationBackend?.toLowerCase() === "mpi" ? torch : null;
}

/** `place`: "EXPERIMENT/JOB", as nodes name it. */
export function Processes({ workspace, job, place }: { workspace: string; job: ServiceJob; place: string }) {
  const runs = ["running", "terminating"].includes(job.properties.executionState);
  const cluster = job.properties.cluster.id.split("/").at(-1) ?? "";
  const path = `/workspaces/${encodeURIComponent(workspace)}/clusters/${encodeURIComponent(cluster)}/nodes`;
  const nodes = usePoll<List<Node>>(runs ? path : null, NODES_MS);
  const own = (nodes.value?.value ?? []).filter(({ job: its }) => its === place);
  const mpi = mpiSettings(job);
  if (job.properties.executionState === "queued") return null;
  const count = mpi?.processCount ?? job.properties.nodeCount;
  const on = `${job.properties.nodeCount} ${job.properties.nodeCount === 1 ? "node" : "nodes"}`;
  const { exitCode } = job.properties.executionInfo;
  return (
    <section class="panel" aria-labelledby="processes">
      <h2 id="processes">Processes</h2>
      <p>
        {mpi === null ? `The job's command, on the first of ${on}` : `mpirun with ${count} ${count === 1 ? "process" : "processes"} on ${on}`}
        {exitCode !== null && `, ended with exit code ${exitCode}`}
        {own.length > 0 && `: ${own.map(({ nodeId }) => nodeId).join(", ")}`}
      </p>
      <p class="quiet">
        {mpi === null
          ? "Processes that it starts by itself are not seen one by one, unless it uses gyre run."
          : "Its ranks are not seen one by one: all of them write to the same logs. Next failure in a log leads to their tracebacks, and to what mpirun says of the rank that failed."}
      </p>
    </section>
  );
}
