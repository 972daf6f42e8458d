"use strict";
// A step over all ranks, on a canvas: where everything is, and its strips pixel by pixel.
// Of each pixel's column a state has the height of its share of that column's time, so that nothing is lost to drawing.

const AXIS = 26;
const THIN = 6; // a level of kernels that few overlap
const OVERLINE = 2; // how high the critical path is marked over a rank
const UNDERLINE = 3; // how high exposed communication is marked under its lanes
const canvas = document.getElementById("canvas");
const frame = document.getElementById("frame");

// --- places ---

const plotWidth = () => timeline.wide - timeline.label;
const scale = () => plotWidth() / (timeline.to - timeline.from);
const xOf = (ns) => timeline.label + (ns - timeline.from) * scale();
const nsAt = (x) => timeline.from + (x - timeline.label) / scale();

// How high strips are: a device's state, lane, kernel, layer, and the gap to the next device.
const LARGE = { state: 20, lane: 15, kernel: 15, layer: 15, host: 15, gap: 14 };
const SMALL = { state: 12, lane: 7, kernel: 9, layer: 8, host: 8, gap: 4 };
const MOST_GROWTH = 2.2;

// Where each device's strips are, from the top of all; many devices are drawn small, few use the height there is.
function layOut() {
  const devices = timeline.step.devices;
  const base = devices.length > 8 ? SMALL : LARGE;
  timeline.wide = canvas.clientWidth;
  timeline.label = timeline.wide < 560 ? 74 : 118;
  // On paper nothing scrolls; canvases end somewhere.
  const most = matchMedia("print").matches ? 8000 : Math.max(240, Math.round(innerHeight * 0.7));
  const strips = devices.reduce((sum, device) => sum + stripHeight(device, base), 0);
  const above = AXIS + 4 + (timeline.step.path ? base.lane + base.gap : 0);
  const growth = Math.min(Math.max((most - above - devices.length * (base.gap + 8)) / strips, 1), MOST_GROWTH);
  const size = Object.fromEntries(Object.entries(base).map(([name, high]) => [name, Math.floor(high * growth)]));
  size.gap = base.gap;
  timeline.path = timeline.step.path && { y: AXIS + 4, high: base.lane, bottom: AXIS + 4 + base.lane };
  let y = above;
  timeline.rows = devices.map((device) => {
    const row = rowOf(device, y, size);
    y = row.bottom + size.gap;
    return row;
  });
  const height = Math.min(y, most);
  canvas.style.height = `${height}px`;
  document.getElementById("rest").style.height = `${y - height}px`;
}

function stripHeight(device, size) {
  const lanes = device.lanes.length * size.lane + (timeline.kernels ? device.levels.filter((level) => !level.thin).length * size.kernel : 0);
  return size.state + lanes + (timeline.layers ? size.layer : 0) + (device.host ? size.host : 0);
}

// `top` is where it begins: with its host, where that is drawn, else with its device's state at `y`.
function rowOf(device, top, size) {
  const host = device.host && { level: device.host, y: top, high: size.host };
  const y = top + (host ? size.host + OVERLINE + 2 : 0);
  const comm = y + size.state + 1;
  const under = comm + device.lanes.length * size.lane;
  const kernels = under + (device.lanes.length ? UNDERLINE + 1 : 0);
  let layers = kernels;
  // Where each level of kernels is, and how high.
  const levels = (timeline.kernels ? device.levels : []).map((level) => {
    const high = level.thin ? THIN : size.kernel;
    layers += high;
    return { level, y: layers - high, high };
  });
  layers += levels.length ? 1 : 0;
  const layer = timeline.layers && device.layers.length ? size.layer : 0;
  return { device, top, host, y, state: size.state, lane: size.lane, layer, comm, under, levels, layers, bottom: layers + layer };
}

function fit() {
  show(0, timeline.step.span_ns);
}

// Move to an extent, which stays inside the step and is 50 ns long at least.
function show(from, to) {
  const span = timeline.step.span_ns;
  const length = Math.min(Math.max(to - from, 50), span);
  timeline.from = Math.min(Math.max(from, 0), span - length);
  timeline.to = timeline.from + length;
  const [[begin, end, whole], unit] = timesIn(length, plotWidth(), [timeline.from, timeline.to, span]);
  document.getElementById("extent").textContent = `${begin} to ${end} ${unit} of ${whole} ${unit}`;
  document.getElementById("tip").hidden = true;
  draw();
}

function zoom(factor, at = (timeline.from + timeline.to) / 2) {
  show(at - (at - timeline.from) * factor, at + (timeline.to - at) * factor);
}

function pan(shareOfView) {
  const length = timeline.to - timeline.from;
  const from = Math.min(Math.max(timeline.from + length * shareOfView, 0), timeline.step.span_ns - length);
  show(from, from + length);
}

// --- colors ---

let colors = {};
function takeColors() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  colors = { ground: of("ground"), ink: of("ink"), faint: of("faint"), line: of("line"), focus: of("focus") };
  colors.comm = of("exposed_transfer_ns");
  colors.compute = of("compute_ns");
  colors.copy = of("exposed_copy_ns");
  colors.states = STATES.map((state) => rgba(of(state.look) || state.color, state.shade));
  const [inPyTorch, outside] = [of("host_ns") || colors.compute, of("host_outside_ns") || colors.copy];
  const ofHost = { L: rgba(inPyTorch, 1), O: rgba(inPyTorch, SHADES.operators[0]) };
  colors.host = STATES.map((state) => ofHost[state.letter] ?? rgba(outside, state.shade));
  colors.layers = [...SHADES.layers.map((alpha) => rgba(colors.compute, alpha)), rgba(colors.faint, SHADES.apart[0])];
  colors.kernels = [...SHADES.kernels.map((alpha) => rgba(colors.compute, alpha)), rgba(colors.copy, 1)];
  colors.groundPixel = rgba(colors.ground, 1);
  colors.inkPixel = rgba(colors.ink, 1);
  colors.waiting = tiled(rgba(of("exposed_wait_ns"), 1), rgba(colors.comm, 1), "hatched");
  colors.unresolved = tiled(rgba(of("exposed_unresolved_ns"), 1), colors.groundPixel, "crossed");
}

// A color as a pixel of an image, laid over the ground.
function rgba(color, alpha) {
  const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const over = parts(colors.ground ?? "#ffffff");
  const [r, g, b] = parts(color).map((value, at) => Math.round(value * alpha + over[at] * (1 - alpha)));
  return (255 << 24) | (b << 16) | (g << 8) | r;
}

// Whether a pixel is the pattern's pen and not its paper; what has no pattern has no pen.
const PATTERNS = {
  hatched: (x, y) => (x + y) % 6 < 2, crossed: (x, y) => (x + 5 * y) % 6 < 2, striped: (x, y) => (x + 4 * y) % 5 === 0,
  dotted: (x, y) => x % 3 === 0 || y % 3 === 0, level: (x, y) => y % 4 === 0, upright: (x) => x % 5 !== 0,
};

// The patterns of strips, state by state. A host's launches have a color of their own, and need none.
const PLAIN = STATES.map(() => null);
const PATTERNED = STATES.map((state) => PATTERNS[state.pattern] ?? null);
const ON_HOST = PATTERNED.map((pattern, code) => (STATES[code].letter === "L" ? null : pattern));

// What is for no layer is gray, as idle time is.
const ON_LAYERS = PLAIN.map((_, code) => (code === SHADES.layers.length ? PATTERNS.striped : null));

// The same patterns to fill rectangles with.
function tiled(paper, pen, pattern) {
  const side = 6;
  const tile = new OffscreenCanvas(side, side);
  const image = new ImageData(side, side);
  const pixels = new Uint32Array(image.data.buffer);
  pixels.forEach((_, at) => (pixels[at] = PATTERNS[pattern](at % side, Math.floor(at / side)) ? pen : paper));
  tile.getContext("2d").putImageData(image, 0, 0);
  return tile;
}

// --- drawing ---

let asked = false;
function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    paint();
  });
}

function paint() {
  if (!timeline.step) return;
  const ratio = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const brush = canvas.getContext("2d");
  brush.fillStyle = colors.ground;
  brush.fillRect(0, 0, canvas.width, canvas.height);
  const seen = timeline.rows.filter((row) => row.bottom > frame.scrollTop && row.top < frame.scrollTop + height);
  const depth = seen.length ? depthOf(seen[0].device) : 1;
  paintStrips(brush, ratio, seen, depth);
  brush.setTransform(ratio, 0, 0, ratio, 0, 0);
  brush.font = "11px system-ui, sans-serif";
  brush.textBaseline = "middle";
  brush.save();
  brush.beginPath();
  brush.rect(timeline.label, AXIS, width - timeline.label, height - AXIS);
  brush.clip();
  for (const row of seen) paintRow(brush, row, depth);
  brush.restore();
  for (const row of seen) paintLabel(brush, row);
  if (timeline.path) paintPathLabel(brush);
  paintAxis(brush, width, height);
}

// How deep layers' names are told apart: as deep as blocks have room for words.
function depthOf(device) {
  for (let depth = device.deepest; depth > 1; depth--) {
    const { starts } = blocksOf(device, depth);
    const blocks = placeOf(starts, timeline.to) - Math.max(placeOf(starts, timeline.from), 0) + 1;
    if (plotWidth() / blocks >= 56) return depth;
  }
  return 1;
}

// All strips at once, pixel by pixel.
function paintStrips(brush, ratio, seen, depth) {
  const left = Math.round(timeline.label * ratio);
  const [width, height] = [canvas.width - left, canvas.height];
  if (width <= 0) return;
  const image = brush.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  pixels.fill(colors.groundPixel);
  const shares = new Float32Array(width * STATES.length);
  const paintOne = (strip_, y, high, shades, patterns) => {
    shares.fill(0);
    gather(strip_, width, shares);
    const top = Math.round((y - frame.scrollTop) * ratio);
    paintStrip(pixels, [width, height], [top, Math.round(high * ratio)], shares, shades, patterns);
  };
  if (timeline.path) paintOne(timeline.step.path, timeline.path.y, timeline.path.high, colors.states, PATTERNED);
  for (const row of seen) {
    if (row.host) paintOne(row.host.level, row.host.y, row.host.high - 1, colors.host, ON_HOST);
    paintOne(row.device.course, row.y, row.state, colors.states, PATTERNED);
    if (row.device.lanes.length) {
      underline(pixels, [width, height], [Math.round((row.under - frame.scrollTop) * ratio), Math.round(UNDERLINE * ratio)], shares);
    }
    for (const { level, y, high } of row.levels) paintOne(level, y, high - 1, colors.kernels, PLAIN);
    if (row.layer) paintOne(blocksOf(row.device, depth).strip, row.layers, row.layer - 1, colors.layers, ON_LAYERS);
  }
  brush.putImageData(image, left, 0);
}

// The share of each pixel's time that each code of a strip has.
function gather(strip_, width, shares) {
  const perNs = width / (timeline.to - timeline.from);
  for (let k = Math.max(placeOf(strip_.starts, timeline.from), 0); k < strip_.length; k++) {
    if (strip_.starts[k] >= timeline.to) break;
    const code = strip_.codes[k];
    // Outside of the device's steps: findIndex's -1 as a byte.
    if (code === 255) continue;
    const begin = Math.max((strip_.starts[k] - timeline.from) * perNs, 0);
    const end = Math.min((strip_.ends[k] - timeline.from) * perNs, width);
    for (let x = Math.floor(begin); x < end; x++) {
      shares[code * width + x] += Math.min(end, x + 1) - Math.max(begin, x);
    }
  }
}

// A column's codes from the bottom up, each as high as its share, in its pattern.
function paintStrip(pixels, [width, height], [top, high], shares, shades, patterns) {
  const pens = STATES.map((state) => (state.letter === "w" ? rgba(colors.comm, 1) : colors.groundPixel));
  for (let x = 0; x < width; x++) {
    let covered = 0;
    let below = top + high;
    for (let code = 0; code < shades.length; code++) {
      const part = shares[code * width + x];
      if (!part) continue;
      covered += part;
      const above = top + high - Math.round(Math.min(covered, 1) * high);
      for (let y = Math.max(above, 0); y < Math.min(below, height); y++) {
        pixels[y * width + x] = patterns[code]?.(x, y) ? pens[code] : shades[code];
      }
      below = above;
    }
  }
}

// A line where communication is exposed: at its full height where that is all of a pixel's time.
const EXPOSED = STATES.flatMap((state, code) => ("twu".includes(state.letter) ? [code] : []));
function underline(pixels, [width, height], [top, high], shares) {
  for (let x = 0; x < width; x++) {
    const exposed = EXPOSED.reduce((sum, code) => sum + shares[code * width + x], 0);
    const lines = Math.ceil(Math.min(exposed, 1) * high - 0.01);
    for (let y = Math.max(top, 0); y < Math.min(top + lines, height); y++) pixels[y * width + x] = colors.inkPixel;
  }
}
