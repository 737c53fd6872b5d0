// Looks at a page as a person does, and prints what they would have waited for, as JSON: see page.py.
//
//   node page.mjs MODULES gyre|tensorboard LINK
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
  for (let round = 0; round < 6; ++round) {
    const { x, y, width, height } = await area.boundingBox();
    await page.mouse.move(x + width * 0.3, y + height * 0.3);
    await page.mouse.down();
    await page.mouse.move(x + width * 0.7, y + height * 0.7, { steps: 15 });
    await page.mouse.up();
    await page.waitForTimeout(400);
    await page.mouse.dblclick(x + width * 0.5, y + height * 0.5);
    await page.waitForTimeout(200);
  }
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
