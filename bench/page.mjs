// Looks at a page as a person does, and prints what they would have waited for, as JSON: see page.py.
//
//   node page.mjs MODULES gyre|tensorboard|timeline LINK
import { open_browser } from "../tests/browser/checks.mjs";

const [modules, program, link] = process.argv.slice(2);
const OURS = program === "gyre";
const { browser, context, page } = await open_browser(modules, { viewport: { width: 1280, height: 1000 } });
context.setDefaultTimeout(15_000);
const network = await context.newCDPSession(page);
await network.send("Network.enable");
let bytes = 0;
let requests = 0;
network.on("Network.loadingFinished", ({ encodedDataLength }) => {
  bytes += encodedDataLength;
  ++requests;
});

/** The intervals between frames while `act` runs: the 95th percentile and the longest, in milliseconds. */
async function frames(act) {
  await page.waitForTimeout(1500);
  await page.evaluate(() => {
    window.frames_seen = [];
    const note = (at) => {
      window.frames_seen?.push(at);
      if (window.frames_seen) requestAnimationFrame(note);
    };
    requestAnimationFrame(note);
  });
  await act();
  const seen = await page.evaluate(() => {
    const all = window.frames_seen;
    window.frames_seen = undefined;
    return all;
  });
  const between = seen.slice(1).map((at, i) => at - seen[i]).sort((a, b) => a - b);
  const round = (value) => Math.round(value * 10) / 10;
  return { p95_ms: round(between[Math.floor(between.length * 0.95)]), longest_ms: round(between.at(-1)), frames: between.length };
}

/** Drags over the middle of an area, and goes back. */
async function drag_and_go_back(area) {
  const { x, y, width, height } = await area.boundingBox();
  const bottom = Math.min(height, 400);
  await page.mouse.move(x + width * 0.3, y + bottom * 0.3);
  await page.mouse.down();
  await page.mouse.move(x + width * 0.7, y + bottom * 0.7, { steps: 15 });
  await page.mouse.up();
  await page.waitForTimeout(400);
  await page.mouse.dblclick(x + width * 0.5, y + bottom * 0.5);
  await page.waitForTimeout(200);
}

/** The timeline of 64 ranks: dragging to zoom and going back, and then by its keys as fast as they repeat. */
async function measure_timeline() {
  await page.goto(link);
  const timeline = page.getByRole("region", { name: "Timeline" });
  const rows = timeline.locator(".rows");
  const description = () => timeline.getByRole("img").getAttribute("aria-label");
  await timeline.waitFor({ timeout: 30_000 });
  let before = "";
  for (let now = await description(); now !== before; now = await description()) {
    before = now;
    await page.waitForTimeout(4000); // All has been read when it does not grow any more.
  }
  await rows.scrollIntoViewIfNeeded();
  const dragging = await frames(async () => {
    for (let round = 0; round < 6; ++round) await drag_and_go_back(timeline.locator("canvas"));
  });
  await rows.focus();
  const keys = await frames(async () => {
    for (const [key, count] of [["+", 6], ["ArrowRight", 20], ["-", 3], ["ArrowLeft", 20], ["0", 1], ["+", 8], ["ArrowRight", 20]]) {
      for (let i = 0; i < count; ++i) {
        await page.keyboard.press(key);
        await page.waitForTimeout(33);
      }
    }
  });
  console.log(JSON.stringify({ seen: before.slice(0, 40), zoom: dragging, keys }));
}

if (program === "timeline") {
  await measure_timeline();
  if (process.argv[5]) await page.screenshot({ path: process.argv[5] });
  await browser.close();
  process.exit(0);
}

const begun = performance.now();
await page.goto(link);
const area = OURS ? page.locator(".chart .u-over").first() : page.locator("scalar-card line-chart .chart-view, scalar-card line-chart canvas").first();
if (!OURS) {
  // Of more than 40 runs it selects none by itself.
  const all = page.locator("runs-data-table input[type=checkbox], runs-table input[type=checkbox]").first();
  await all.waitFor({ state: "attached" });
  if (!(await all.isChecked())) await all.click({ force: true });
}
await area.waitFor();
const first_chart_ms = Math.round(performance.now() - begun);
const first_paint_ms = await page.evaluate(() => Math.round(performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1));
await page.waitForTimeout(3000);
const loaded = { bytes, requests };

await area.scrollIntoViewIfNeeded();
const zoom = await frames(async () => {
  for (let round = 0; round < 6; ++round) await drag_and_go_back(area);
});
// TensorBoard has others, of images and of the cards' width.
const slider = OURS ? page.getByLabel("Smoothing") : page.locator(".scalars-smoothing input[type=range], .slider-row:has(input[type=number]) input[type=range]").first();
const value_before = await slider.inputValue();
const smoothing = await frames(async () => {
  const { x, y, width, height } = await slider.boundingBox();
  await page.mouse.move(x + width * 0.1, y + height / 2);
  await page.mouse.down();
  for (const place of [0.9, 0.2, 0.8, 0.3]) await page.mouse.move(x + width * place, y + height / 2, { steps: 25 });
  await page.mouse.up();
});
console.log(JSON.stringify({ first_paint_ms, first_chart_ms, ...loaded, zoom, slider: smoothing }));
if (process.argv[5]) await page.screenshot({ path: process.argv[5] });
await browser.close();
