// What a person does with the page of a job server (`gyre page`), in Debian's Chromium:
//
//   node service_checks.mjs MODULES LINK JOB_FILE SERVER_PID RESTART TRAINING ROLES MPI TRACED
//
// JOB_FILE: writes "line N" each second and an output file, until it is stopped. TRAINING: a job file of two ranks that
// log "train/loss" until they are ended. ROLES: of a master, a worker, which fails, and a parameter
// server. MPI: of two processes of mpirun, of which the second is killed. TRACED: of two
// ranks that write timelines until they are ended. RESTART: a file whose appearance asks
// the test for a new server after this script has killed SERVER_PID. A line of JSON for each check, {"check", "problem"}.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { open_browser, run_checks, until } from "./checks.mjs";

const [modules, link, job_file, server, restart, training, roles, mpi, traced] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));

const MARKUP = "<img src=x onerror=document.title=1>";
const { browser, context, page } = await open_browser(modules, { viewport: { width: 1280, height: 900 }, acceptDownloads: true });
const faults = [];
page.on("pageerror", (error) => faults.push(String(error)));

const badge = page.locator(".badge").first();
const ranks = page.locator(".rank");
const last_line = async () => Number(/line (\d+)/.exec((await page.locator(".line").last().textContent()) ?? "")?.[1] ?? -1);

async function submit(name, file = job_file) {
  await page.getByLabel(/Submit a job file/).setInputFiles(file);
  await page.getByLabel("Name").fill(name);
  await page.getByRole("button", { name: "Submit", exact: true }).click();
  await page.getByRole("heading", { level: 1, name }).waitFor();
}

const checks = {
  async a_job_file_is_submitted_and_runs() {
    await page.goto(link);
    await page.getByText("This workspace has no jobs.").waitFor();
    await submit("first");
    await until("it runs", async () => (await badge.textContent()) === "running");
  },

  async the_newest_of_many_events_are_shown() {
    // A job of months: its server answers a thousand at once, the oldest first.
    const events = page.getByRole("list", { name: "Events, the newest first" }).locator("li");
    await page.route(/\/events\?/, async (route) => {
      const words = new URL(route.request().url()).searchParams;
      const begin = Number(words.get("after") ?? 0) + 1;
      const value = Array.from({ length: Math.max(0, Math.min(Number(words.get("maxresults") ?? 100), 2501 - begin)) }, (_, i) => (
        { sequence: begin + i, time: "2026-01-02T03:04:05Z", subject: "job", from: "", to: "", reason: "", message: `event ${begin + i}` }));
      await route.fulfill({ json: { value, nextLink: null } });
    });
    await page.reload();
    await until("the last event", async () => /event 2500$/.test((await events.first().textContent()) ?? ""));
    assert.match(await events.first().textContent(), /2026/, "the day of another day");
    await page.getByText("and 2300 earlier ones").waitFor();
    await page.unroute(/\/events\?/);
    await page.reload();
  },

  async its_log_is_read_live() {
    await page.getByRole("link", { name: /^stdout/ }).click();
    await page.getByRole("heading", { name: /^stdout/ }).waitFor();
    await until("a line", async () => (await page.locator(".line").count()) > 0 && (await last_line()) >= 0);
    const before = await last_line();
    await until("a later line", async () => (await last_line()) > before);
    assert.ok((await page.locator(".lines").textContent()).includes(MARKUP));
    assert.equal(await page.locator("img").count(), 0);
  },

  async an_output_is_downloaded() {
    await until("it is listed", async () => (await page.getByRole("link", { name: "result.txt" }).count()) === 1);
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "result.txt" }).click()]);
    assert.equal(readFileSync(await download.path(), "utf8"), "a result\n");
  },

  async a_further_link_lets_another_browser_in() {
    await page.getByRole("button", { name: "A link for another browser" }).click();
    const further = await page.locator("code.link").textContent();
    const other = await browser.newContext();
    const second = await other.newPage();
    await second.goto(further);
    await second.getByRole("heading", { level: 1, name: "Jobs" }).waitFor();
    assert.equal((await second.goto(further)).status(), 403, "once");
    await other.close();
  },

  async another_job_says_why_it_waits() {
    await page.getByRole("link", { name: "Jobs" }).click();
    await submit("second");
    await until("it says why", async () => /needs 1 node; none is idle/.test(await page.locator(".verdict").first().textContent()));
    await page.getByRole("link", { name: "Jobs" }).click();
    await page.getByRole("row", { name: /second queued .*needs 1 node/ }).waitFor();
  },

  async a_long_list_is_turned_over_and_has_one_state() {
    const names = async () => (await page.getByRole("row").locator('th[scope="row"]').allTextContents()).join();
    await page.route(/\/jobs\?/, (route) => route.continue({ url: route.request().url().replace("maxresults=100", "maxresults=1") }));
    await until("the newest alone", async () => (await names()) === "second");
    await page.getByRole("button", { name: "Older jobs" }).click();
    await until("the one before it", async () => (await names()) === "first");
    assert.equal(await page.getByRole("button", { name: "Older jobs" }).isDisabled(), true);
    await page.getByRole("button", { name: "Newer jobs" }).click();
    await until("the newest again", async () => (await names()) === "second");
    await page.unroute(/\/jobs\?/);
    await page.getByLabel("State").selectOption("running");
    await until("those that run", async () => (await names()) === "first");
    await page.getByLabel("State").selectOption("any");
    await until("all", async () => (await names()) === "second,first");
  },

  async a_narrow_screen_has_no_scrolling_aside() {
    await page.setViewportSize({ width: 360, height: 740 });
    await until("it fits", () => page.evaluate(() => document.documentElement.scrollWidth <= 360));
    await page.setViewportSize({ width: 1280, height: 900 });
  },

  async the_use_of_a_cluster_over_time_is_seen() {
    await page.getByRole("link", { name: "Nodes" }).click();
    const figure = page.getByRole("figure");
    const averages = figure.locator(".averages");
    await until("it has been in use, and a job waits", async () => /of its nodes' time, [\d<]+ ?\d* % in use.*; up to 1 job waited$/.test((await averages.textContent()) ?? ""));
    assert.equal(await figure.locator("svg").count(), 2);
    const path = await figure.locator("path.running").getAttribute("d");
    assert.match(path, /^M0 [\d.]+ L1 [\d.]+ L/);
    const picture = process.env.PICTURES;
    if (picture) await page.screenshot({ path: join(picture, "nodes.png") });
    await figure.getByLabel("Over the last").selectOption("24 hours");
    await until("another time", async () => (await figure.locator("path.running").getAttribute("d").catch(() => path)) !== path);
    await figure.getByLabel("Over the last").selectOption("6 hours");
  },

  async nodes_name_their_jobs() {
    await page.getByRole("link", { name: "Nodes" }).click();
    await page.getByRole("link", { name: "default/first" }).click();
    await page.getByRole("heading", { level: 1, name: "first" }).waitFor();
  },

  async axe_finds_no_barrier() {
    await page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    const found = await page.evaluate(() => axe.run({ resultTypes: ["violations"] }));
    const bad = found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
    assert.deepEqual(bad.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
    assert.deepEqual(faults, []);
  },

  async a_server_that_is_stopped_is_noticed() {
    process.kill(Number(server), "SIGSTOP");
    try {
      await page.getByText("The server does not answer").first().waitFor();
      assert.equal(await badge.textContent(), "running");
    } finally {
      process.kill(Number(server), "SIGCONT");
    }
    await until("it answers again", async () => (await page.locator(".connection.lost").count()) === 0);
    const before = await last_line();
    await until("a line that came after it", async () => (await last_line()) > before);
  },

  async a_server_that_goes_away_and_comes_back_is_followed() {
    const used_seconds = () => page.evaluate(async () => {
      const use = await (await fetch("service/workspaces/default/clusters/pool/use?hours=1")).json();
      return use.running.reduce((sum, nodes) => sum + nodes * use.partSeconds, 0);
    });
    const used = await used_seconds();
    assert.ok(used > 0);
    process.kill(Number(server), "SIGKILL");
    await page.locator(".connection.lost").first().waitFor();
    assert.equal(await badge.textContent(), "running");
    writeFileSync(restart, "");
    await until("nothing is lost any more", async () => (await page.locator(".connection.lost").count()) === 0);
    assert.ok((await used_seconds()) >= used, "the use of its cluster is known from before, too");
    const before = await last_line();
    await until("a line that came after it", async () => (await last_line()) > before);
  },

  async a_job_is_stopped() {
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("button", { name: "Yes, stop it" }).click();
    await until("it has ended", async () => /^failed/.test(await badge.textContent()));
  },

  async a_job_is_cloned_and_a_mistake_is_explained() {
    await page.getByRole("button", { name: "Clone" }).click();
    await page.getByLabel("Job file").fill('{"properties": {"nodeCout": 1}}');
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await page.getByRole("alert").getByText(/nodeCout/).waitFor();
    await page.getByLabel("Cluster").selectOption("pool");
    await page.getByLabel("Job file").fill('{"properties": {"nodeCount": 1,}}');
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await page.getByRole("alert").getByText(/not valid JSON at column/).waitFor();
    await page.getByLabel("Name").fill("yaml");
    await page.getByLabel("Job file").fill("# As a person writes it\nproperties: # of the job\n\n    nodeCount: 1\n    customToolkitSettings: {commandLine: sleep 600}\n    stdOutErrPathPrefix: $AZ_BATCHAI_JOB_TEMP_DIR\n");
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "yaml" }).waitFor();
    await page.getByRole("button", { name: "Clone" }).click();
    await page.getByLabel("Name").fill("third");
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "third" }).waitFor();
  },

  async the_ranks_of_a_job_are_seen() {
    for (const name of ["second", "third", "yaml"]) {  // The only node is wanted.
      await page.getByRole("link", { name: "Jobs" }).click();
      await page.getByRole("link", { name, exact: true }).click();
      await page.getByRole("heading", { level: 1, name }).waitFor();
      await page.getByRole("button", { name: "Stop" }).click();
      await page.getByRole("button", { name: "Yes, stop it" }).click();
    }
    await page.getByRole("link", { name: "Jobs" }).click();
    await submit("train", training);
    await until("both run", async () => (await ranks.count()) === 2 && (await page.locator(".rank.running").count()) === 2);
    await until("a step", async () => /step \d+/.test(await ranks.first().getAttribute("aria-label")));
    assert.equal(await page.getByRole("link", { name: /\.metrics/ }).count(), 0);
  },

  async its_charts_are_drawn_and_grow() {
    const plot = page.getByRole("region", { name: "train/loss" }).getByRole("img");
    await plot.scrollIntoViewIfNeeded();  // Charts out of view are not drawn.
    await until("it has both ranks", async () => /rank 0: ends at .*rank 1: ends at/.test(await plot.getAttribute("aria-label")));
    assert.ok((await page.getByRole("region", { name: "train/loss" }).locator("canvas").count()) > 0);
    const before = await plot.getAttribute("aria-label");
    await until("it has grown", async () => (await plot.getAttribute("aria-label")) !== before);
  },

  async axe_finds_no_barrier_among_ranks_and_charts() {
    const found = await page.evaluate(() => axe.run({ resultTypes: ["violations"] }));
    const bad = found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
    assert.deepEqual(bad.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
  },

  async a_killed_rank_of_a_job_is_named_first() {
    const label = await page.locator('[data-rank="1"]').getAttribute("aria-label");
    process.kill(Number(/process (\d+)/.exec(label)[1]), "SIGKILL");
    await page.locator(".verdict", { hasText: "rank 1 was killed by SIGKILL; it failed first" }).waitFor();
    assert.match(await ranks.first().getAttribute("aria-label"), /^rank 1, failed: was killed by SIGKILL/);
    await until("the job has failed", async () => (await badge.textContent()) === "failed, exit code 137");
    assert.deepEqual(faults, []);
  },

  async another_job_is_drawn_into_the_same_charts() {
    await page.getByRole("button", { name: "Clone" }).click();
    await page.getByLabel("Name").fill("slower");
    const file = page.getByLabel("Job file");
    await file.fill((await file.inputValue()).replace("sleep(0.02)", "sleep(0.03)"));
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "slower" }).waitFor();
    const panel = page.getByRole("region", { name: "Compare with other jobs" });
    const add = async (name) => {
      await panel.getByLabel("Compare with job").fill(name);
      await page.keyboard.press("Enter");
    };
    await add("train");
    const plot = page.getByRole("region", { name: "train/loss" }).getByRole("img");
    await plot.scrollIntoViewIfNeeded();
    const both = /slower rank 0: .*slower rank 1: .*; train rank 0: .*; train rank 1: /;
    await until("both jobs are in the chart", async () => both.test(await plot.getAttribute("aria-label")));
    const before = await plot.getAttribute("aria-label");
    await until("its own lines grow", async () => (await plot.getAttribute("aria-label")) !== before);
    const borders = await page.getByRole("region", { name: "train/loss" }).locator(".u-legend .u-marker").evaluateAll((all) => all.map((one) => getComputedStyle(one).borderTopStyle));
    assert.deepEqual(borders.slice(-4), ["solid", "solid", "dashed", "dashed"]);
    const difference = panel.getByRole("row", { name: /^customToolkitSettings.commandLine/ });
    assert.match(await difference.textContent(), /sleep\(0.03\).*sleep\(0.02\)/s);
    assert.equal(await panel.getByRole("row", { name: /^nodeCount/ }).count(), 0, "they do not differ in that");
  },

  async a_link_has_the_jobs_that_are_compared() {
    await page.reload();
    const plot = page.getByRole("region", { name: "train/loss" }).getByRole("img");
    await plot.scrollIntoViewIfNeeded();
    await until("both jobs are in the chart", async () => /slower rank 0: .*; train rank 0: /.test(await plot.getAttribute("aria-label")));
    if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, "compared.png"), fullPage: true });
    await page.evaluate(readFileSync(require.resolve("axe-core/axe.min.js"), "utf8"));
    const found = await page.evaluate(() => axe.run({ resultTypes: ["violations"] }));
    const bad = found.violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
    assert.deepEqual(bad.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
  },

  async of_jobs_that_cannot_be_drawn_it_says_why() {
    const panel = page.getByRole("region", { name: "Compare with other jobs" });
    const chosen = panel.getByRole("list", { name: "Jobs in the charts" }).getByRole("listitem");
    const add = async (name) => {
      await panel.getByLabel("Compare with job").fill(name);
      await panel.getByRole("button", { name: "Add to the charts" }).click();
    };
    await add("nothing-like-it");
    await panel.getByText("There is no job default/nothing-like-it in this workspace.").waitFor();
    await add("slower");
    await panel.getByText("slower is the job of this page.").waitFor();
    await add("first"); // Its program logs nothing.
    await chosen.filter({ hasText: "first" }).getByText("It has logged nothing, so none of its lines are here.").waitFor();
    await page.evaluate(() => (location.hash += "&with=default%2Fremoved"));
    await chosen.filter({ hasText: "removed" }).getByText("There is no job default/removed in this workspace; it may have been removed.").waitFor();
    await add("second");
    await panel.getByText("The charts have room for 3 other jobs: remove one first.").waitFor();
    for (const name of ["removed", "first", "train"]) await panel.getByRole("button", { name: `Remove ${name} from the charts` }).click();
    assert.equal(await chosen.count(), 0);
    const plot = page.getByRole("region", { name: "train/loss" }).getByRole("img");
    await until("its own lines alone", async () => /^train\/loss\. rank 0: [^;]*; rank 1: [^;]*$/.test(await plot.getAttribute("aria-label")));
    assert.ok(!page.url().includes("with="));
    assert.deepEqual(faults, []);
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("button", { name: "Yes, stop it" }).click();
  },

  async processes_with_roles_are_seen_and_lead_to_their_failures() {
    await page.getByRole("link", { name: "Jobs" }).click();
    await submit("roles", roles);
    await page.locator(".verdict", { hasText: "worker 1 ended with exit code 1; it failed first" }).waitFor();
    await until("the job has failed", async () => (await badge.textContent()) === "failed, exit code 1");
    assert.deepEqual((await ranks.allTextContents()).map((text) => /^\D+ \d/.exec(text)?.[0]).sort(), ["master 0", "ps 0", "worker 1"]);
    await page.getByRole("heading", { name: "stderr-wk-1.txt" }).waitFor(); // And not that of the first process.
    await page.getByRole("button", { name: "Next failure", exact: true }).click();
    await page.locator(".line.current", { hasText: "Traceback" }).waitFor();
    if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, "roles.png") });
    await page.getByRole("radio", { name: /^master 0/ }).click();
    await page.getByRole("heading", { name: "stdout-wk-0.txt" }).waitFor();
    await page.getByRole("button", { name: "Go to the first failure: worker 1" }).click();
    await page.getByRole("heading", { name: "stderr-wk-1.txt" }).waitFor();
  },

  async of_a_job_under_mpirun_the_page_says_what_is_known() {
    await page.getByRole("link", { name: "Jobs" }).click();
    await submit("mpi", mpi);
    const processes = page.getByRole("region", { name: "Processes" });
    await processes.getByText(/^mpirun with 2 processes on 1 node/).waitFor();
    await until("it has failed", async () => /^failed/.test(await badge.textContent()));
    await processes.getByText(/ended with exit code \d+/).waitFor();
    await page.getByRole("heading", { name: "stderr.txt" }).waitFor();
    await page.getByRole("button", { name: "Next failure", exact: true }).click();
    await page.locator(".line.current", { hasText: "process rank 1" }).waitFor();
    if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, "mpi.png") });
    assert.deepEqual(faults, []);
  },

  async a_clone_has_the_code_of_its_job() {
    const folder = mkdtempSync(join(tmpdir(), "code-"));
    writeFileSync(join(folder, "hello.txt"), "from the code\n");
    const archive = execFileSync("tar", ["c", "-C", folder, "hello.txt"]);
    rmSync(folder, { recursive: true });
    const put = (path, body) => page.evaluate(async ([path, body]) => {
      const answer = await fetch(`service/workspaces/default/${path}`, { method: "PUT", body: Uint8Array.from(body) });
      return `${answer.status} ${await answer.text()}`;
    }, [path, [...body]]);
    const sha256 = createHash("sha256").update(archive).digest("hex");
    assert.match(await put(`code/${sha256}`, archive), /^204/);
    const job = { properties: { nodeCount: 1, cluster: { id: "pool" }, stdOutErrPathPrefix: "$AZ_BATCHAI_JOB_TEMP_DIR", customToolkitSettings: { commandLine: "cat hello.txt" } } };
    assert.match(await put(`experiments/default/jobs/coded?code=${sha256}`, Buffer.from(JSON.stringify(job))), /^201/);
    await page.getByRole("link", { name: "Jobs" }).click();
    await page.getByRole("link", { name: "coded", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "coded" }).waitFor();
    await page.getByRole("button", { name: "Clone" }).click();
    await page.getByText("It starts in a copy of the code").waitFor();
    await page.getByRole("button", { name: "Submit", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "coded-again" }).waitFor();
    await until("it has found its file", async () => (await badge.textContent()) === "succeeded");
    await page.locator(".line", { hasText: "from the code" }).waitFor();
  },

  async the_timeline_of_a_job_grows_and_stays() {
    await page.getByRole("link", { name: "Jobs" }).click();
    await submit("traced", traced);
    const timeline = page.getByRole("region", { name: "Timeline" });
    const words = async () => (await timeline.getByRole("img").getAttribute("aria-label")) ?? "";
    await until("both ranks", async () => (await timeline.count()) === 1 && /^Timeline of 2 ranks, .*rank 0 computes .*; rank 1 computes /.test(await words()));
    const before = await words();
    await until("more of it", async () => (await words()) !== before);
    assert.equal(await badge.textContent(), "running", "while the job runs");
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("button", { name: "Yes, stop it" }).click();
    await until("it has ended", async () => /^failed/.test(await badge.textContent()));
    assert.equal(await page.getByRole("link", { name: /timeline/ }).count(), 0, "it is no log");
    const whole = await words();
    await timeline.getByRole("button", { name: "Zoom in" }).click();
    assert.match(page.url(), /[?&]time=\d+/);
    await until("a part of it", async () => (await words()) !== whole);
    const drawn = () => timeline.locator("canvas").evaluate((canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0));
    await until("something is drawn", drawn);
    if (process.env.PICTURES) await page.screenshot({ path: join(process.env.PICTURES, "traced.png"), fullPage: true });
    assert.deepEqual(faults, []);
  },
};

await run_checks(checks, page);
await browser.close();
