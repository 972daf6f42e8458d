"use strict";
// A step over all ranks, on a canvas. Each step has a document; times are ns from the step's beginning.
// Of each pixel's column a state has the height of its share of that column's time, so that nothing is lost to drawing.

const LABEL = 118; // width of the ranks' names
const AXIS = 24;
const COMMUNICATION = "communication"; // what is of no group that is known, and where there is but one
const STATES = JSON.parse(document.getElementById("states").textContent);
const timeline = { step: null, from: 0, to: 1, selected: -1, hover: null, rows: [], layers: true, armed: false };
const canvas = document.getElementById("canvas");
const frame = document.getElementById("frame");
const tip = document.getElementById("tip");
const loaded = new Map();

// --- the document ---

// What is drawn of a device: its stretches with their starts, its layers, its communication in lanes.
function prepared(device) {
  const starts = new Float64Array(device.lengths.length + 1);
  device.lengths.forEach((length, at) => (starts[at + 1] = starts[at] + length));
  const layers = [];
  let at = 0;
  for (let k = 0; k < device.layers.length; k += 3) {
    const start = at + device.layers[k];
    at = start + device.layers[k + 1];
    layers.push({ start, end: at, name: device.layers[k + 2] >> 1, backward: device.layers[k + 2] & 1 });
  }
  const marks = device.marks.map(([start, length, wait, exposed, index, bucket, kind, group]) => (
    { start, end: start + length, length, wait, exposed, index, bucket, kind, group, lane: 0 }));
  // Only idle stretches, whose letters are capitals, say where the host was.
  let place = 0;
  const within = Int32Array.from(device.states, (letter) => (/[A-Z]/.test(letter) ? device.within[place++] : -1));
  const codes = Uint8Array.from(device.states, (letter) => STATES.findIndex((state) => state.letter === letter));
  const strips = {
    states: { starts, ends: starts.subarray(1), codes, length: codes.length },
    // Neighbors among a step's layers differ in shade.
    layers: {
      starts: Float64Array.from(layers, (layer) => layer.start), ends: Float64Array.from(layers, (layer) => layer.end),
      codes: Uint8Array.from(layers, (layer) => layer.name % 2), length: layers.length,
    },
  };
  return { ...device, starts, within, layers, marks, strips, lanes: inLanes(marks, device.groups) };
}

// A lane for each process group; its kernels that overlap stand below one another, in three lanes at most. The lanes' names.
function inLanes(marks, groups) {
  const names = [];
  groups.forEach((group, code) => {
    const ends = [];
    for (const mark of marks.filter((each) => each.group === code)) {
      let lane = ends.findIndex((end) => end <= mark.start);
      if (lane < 0) lane = Math.min(ends.length, 2);
      ends[lane] = Math.max(mark.end, ends[lane] ?? 0);
      mark.lane = names.length + lane;
    }
    ends.forEach((_, lane) => names.push(lane ? "" : group || COMMUNICATION));
  });
  const several = names.filter((name) => name).length > 1;
  return several ? names : [COMMUNICATION, ...names.slice(1)];
}

async function load(step) {
  if (!loaded.has(step)) {
    const document_ = JSON.parse(new TextDecoder().decode(await unpacked(`step-${step}`)));
    loaded.set(step, { ...document_, devices: document_.devices.map(prepared) });
  }
  return loaded.get(step);
}

// The last place of a sorted list whose value is not above the one that is asked for; -1 where all are.
function placeOf(values, wanted, key = (value) => value) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(values[middle]) <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

// --- words ---

const grouped = new Intl.NumberFormat("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 });
// Microseconds to the nanosecond: exact.
const us = (ns) => (ns === null || ns < 0 ? "-" : `${grouped.format(ns / 1000)} us`);
const share = (value) => (value === null ? "-" : `${(100 * value).toFixed(1)} %`);
const rate = (value) => (value === null ? "-" : `${value.toPrecision(4)} GB/s`);
const bytes = (value) => (value === null ? "-" : `${new Intl.NumberFormat("en").format(value)} B`);

function nameOf(mark) {
  return mark.bucket >= 0 ? `bucket ${mark.bucket}` : plain(mark.kind);
}

function layerName(layer) {
  return `${plain(timeline.step.names[layer.name])}${layer.backward ? " (backward)" : ""}`;
}

// --- places ---

const plotWidth = () => canvas.clientWidth - LABEL;
const scale = () => plotWidth() / (timeline.to - timeline.from);
const xOf = (ns) => LABEL + (ns - timeline.from) * scale();
const nsAt = (x) => timeline.from + (x - LABEL) / scale();

// Where each device's strips are, from the top of all; many devices are drawn small.
function layOut() {
  const devices = timeline.step.devices;
  const small = devices.length > 8;
  const [state, lane, gap] = small ? [12, 7, 4] : [20, 15, 12];
  const layer = timeline.layers ? (small ? 8 : 15) : 0;
  let y = AXIS + 4;
  timeline.rows = devices.map((device) => {
    const row = { device, y, state, lane, layer, comm: y + state + 1, layers: y + state + 1 + lane * device.lanes.length + 1 };
    y = row.layers + layer + gap;
    return row;
  });
  // On paper nothing scrolls; canvases end somewhere.
  const most = matchMedia("print").matches ? 8000 : Math.max(240, Math.round(innerHeight * 0.7));
  const height = Math.min(y, most);
  canvas.style.height = `${height}px`;
  document.getElementById("rest").style.height = `${y - height}px`;
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
  const words = `${us(Math.round(timeline.from))} to ${us(Math.round(timeline.to))} of ${us(span)}`;
  document.getElementById("extent").textContent = words;
  tip.hidden = true;
  draw();
}

function zoom(factor, at = (timeline.from + timeline.to) / 2) {
  show(at - (at - timeline.from) * factor, at + (timeline.to - at) * factor);
}

function pan(shareOfView) {
  const by = (timeline.to - timeline.from) * shareOfView;
  const length = timeline.to - timeline.from;
  const from = Math.min(Math.max(timeline.from + by, 0), timeline.step.span_ns - length);
  show(from, from + length);
}

// --- drawing ---

let colors = {};
function takeColors() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  colors = { ground: of("ground"), ink: of("ink"), faint: of("faint"), line: of("line"), rows: of("rows") };
  colors.comm = of("exposed_transfer_ns");
  colors.unresolved = of("exposed_unresolved_ns");
  colors.compute = of("compute_ns");
  colors.states = STATES.map((state) => rgba(state.color, state.shade));
  colors.layers = [0.55, 0.3].map((alpha) => rgba(colors.compute, alpha));
  colors.groundPixel = rgba(colors.ground, 1);
  colors.hatch = hatched(of("exposed_wait_ns"), colors.comm);
}

// A color as a pixel of an image, laid over the ground.
function rgba(color, alpha) {
  const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const over = parts(colors.ground ?? "#ffffff");
  const [r, g, b] = parts(color).map((value, at) => Math.round(value * alpha + over[at] * (1 - alpha)));
  return (255 << 24) | (b << 16) | (g << 8) | r;
}

function hatched(paper, pen) {
  const tile = new OffscreenCanvas(6, 6);
  const brush = tile.getContext("2d");
  brush.fillStyle = paper;
  brush.fillRect(0, 0, 6, 6);
  brush.strokeStyle = pen;
  brush.lineWidth = 1.2;
  for (const at of [-6, 0, 6]) {
    brush.beginPath();
    brush.moveTo(at - 1, 7);
    brush.lineTo(at + 7, -1);
    brush.stroke();
  }
  return tile;
}

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
  const seen = timeline.rows.filter((row) => row.layers + row.layer > frame.scrollTop && row.y < frame.scrollTop + height);
  paintStrips(brush, ratio, seen);
  brush.setTransform(ratio, 0, 0, ratio, 0, 0);
  brush.font = "11px system-ui, sans-serif";
  brush.textBaseline = "middle";
  brush.save();
  brush.beginPath();
  brush.rect(LABEL, AXIS, width - LABEL, height - AXIS);
  brush.clip();
  for (const row of seen) paintRow(brush, row, row.y - frame.scrollTop);
  brush.restore();
  for (const row of seen) paintLabel(brush, row);
  paintAxis(brush, width, height);
}

// All strips of states and layers at once, pixel by pixel.
function paintStrips(brush, ratio, seen) {
  const left = Math.round(LABEL * ratio);
  const [width, height] = [canvas.width - left, canvas.height];
  if (width <= 0) return;
  const image = brush.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  pixels.fill(colors.groundPixel);
  const shares = new Float32Array(width * STATES.length);
  const paintOne = (strip, y, high, shades, patterned) => {
    shares.fill(0);
    gather(strip, width, shares);
    const top = Math.round((y - frame.scrollTop) * ratio);
    paintStrip(pixels, [width, height], [top, Math.round(high * ratio)], shares, shades, patterned);
  };
  for (const row of seen) {
    paintOne(row.device.strips.states, row.y, row.state, colors.states, true);
    if (row.layer) paintOne(row.device.strips.layers, row.layers, row.layer - 1, colors.layers, false);
  }
  brush.putImageData(image, left, 0);
}

// The share of each pixel's time that each code of a strip has.
function gather(strip, width, shares) {
  const perNs = width / (timeline.to - timeline.from);
  for (let k = Math.max(placeOf(strip.starts, timeline.from), 0); k < strip.length; k++) {
    if (strip.starts[k] >= timeline.to) break;
    const code = strip.codes[k];
    // Outside of the device's steps: findIndex's -1 as a byte.
    if (code === 255) continue;
    const begin = Math.max((strip.starts[k] - timeline.from) * perNs, 0);
    const end = Math.min((strip.ends[k] - timeline.from) * perNs, width);
    for (let x = Math.floor(begin); x < end; x++) {
      shares[code * width + x] += Math.min(end, x + 1) - Math.max(begin, x);
    }
  }
}

// Whether a pixel is the pattern's pen and not its paper; what has no pattern has no pen.
const PATTERNS = {
  hatched: (x, y) => (x + y) % 6 === 0, crossed: (x, y) => (x + 5 * y) % 6 === 0, striped: (x, y) => (x + 4 * y) % 5 === 0,
  dotted: (x, y) => x % 3 === 0 || y % 3 === 0, level: (x, y) => y % 4 === 0, upright: (x) => x % 5 !== 0,
};

// A column's codes from the bottom up, each as high as its share, in its pattern.
function paintStrip(pixels, [width, height], [top, high], shares, shades, patterned) {
  const patterns = STATES.map((state) => (patterned && PATTERNS[state.pattern]) || null);
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

function paintRow(brush, row, y) {
  const shift = y - row.y;
  paintMarks(brush, row, row.comm + shift);
  if (row.layer > 10) nameLayers(brush, row, row.layers + shift);
  brush.fillStyle = colors.ink;
  for (const [, start, end] of row.device.windows) {
    for (const at of [start, end]) brush.fillRect(xOf(at) - 0.5, y - 3, 1, row.state + 6);
  }
}

function paintMarks(brush, row, y) {
  const hatch = brush.createPattern(colors.hatch, "repeat");
  for (const mark of row.device.marks) {
    if (mark.end < timeline.from || mark.start > timeline.to) continue;
    const [x, turn, end] = [mark.start, mark.start + Math.max(mark.wait, 0), mark.end].map(xOf);
    const resolved = mark.index >= 0 && !timeline.step.collectives[mark.index].partial;
    const top = y + mark.lane * row.lane;
    const high = row.lane - 1;
    brush.fillStyle = hatch;
    brush.fillRect(x, top, turn - x, high);
    brush.fillStyle = resolved ? colors.comm : colors.unresolved;
    brush.fillRect(turn, top, Math.max(end - turn, 1), high);
    if (mark.index >= 0 && mark.index === timeline.selected) {
      brush.strokeStyle = colors.ink;
      brush.lineWidth = 2;
      brush.strokeRect(x - 1, top - 1, Math.max(end - x, 1) + 2, high + 2);
    }
    inside(brush, nameOf(mark), x, end, top + high / 2, high, true);
  }
}

function nameLayers(brush, row, y) {
  const layers = row.device.layers;
  for (let k = Math.max(placeOf(row.device.strips.layers.starts, timeline.from), 0); k < layers.length; k++) {
    const layer = layers[k];
    if (layer.start > timeline.to) break;
    const [x, end] = [xOf(layer.start), xOf(layer.end)];
    if (end - x > 40) inside(brush, layerName(layer), x, end, y + row.layer / 2, row.layer, false);
  }
}

// Words on a mark, where they fit.
function inside(brush, words, start, end, middle, high, onColor) {
  const [from, to] = [Math.max(start, LABEL), Math.min(end, canvas.clientWidth)];
  if (high < 10 || to - from < 14 || brush.measureText(words).width > to - from - 6) return;
  brush.lineWidth = 3;
  brush.lineJoin = "round";
  brush.strokeStyle = onColor ? "rgb(0 0 0 / .6)" : colors.ground;
  brush.fillStyle = onColor ? "#ffffff" : colors.ink;
  if (onColor) brush.strokeText(words, from + 3, middle + 0.5);
  brush.fillText(words, from + 3, middle + 0.5);
}

// Words, cut off where there is no room for them.
function fitting(brush, words, room) {
  if (brush.measureText(words).width <= room) return words;
  let length = words.length;
  while (length && brush.measureText(`${words.slice(0, length)}\u2026`).width > room) length -= 1;
  return `${words.slice(0, length)}\u2026`;
}

function paintLabel(brush, row) {
  const y = row.y - frame.scrollTop + row.state / 2;
  if (y < AXIS) return;
  brush.fillStyle = colors.ink;
  brush.textAlign = "right";
  brush.fillText(plain(row.device.label), LABEL - 8, y, LABEL - 12);
  if (row.lane > 10) {
    brush.fillStyle = colors.faint;
    const lanes = row.device.lanes.map((name, lane) => [plain(name), row.comm + (lane + 0.5) * row.lane]);
    const strips = [...lanes, ...(row.layer ? [["layers", row.layers + row.layer / 2]] : [])];
    for (const [words, at] of strips) brush.fillText(fitting(brush, words, LABEL - 12), LABEL - 8, at - frame.scrollTop);
  }
  brush.textAlign = "left";
}

function paintAxis(brush, width, height) {
  brush.fillStyle = colors.ground;
  brush.fillRect(0, 0, width, AXIS);
  const step = niceStep((timeline.to - timeline.from) / Math.max(plotWidth() / 110, 1));
  const small = step < 1e4;
  for (let at = Math.ceil(timeline.from / step) * step; at <= timeline.to; at += step) {
    const x = Math.round(xOf(at)) + 0.5;
    brush.fillStyle = colors.line;
    brush.fillRect(x - 0.5, AXIS - 5, 1, 5);
    brush.fillStyle = colors.faint;
    const words = small ? `${+(at / 1e3).toFixed(3)} us` : `${+(at / 1e6).toFixed(3)} ms`;
    if (x + 3 + brush.measureText(words).width < width) brush.fillText(words, x + 3, AXIS / 2);
  }
  if (timeline.hover !== null) {
    brush.fillStyle = colors.faint;
    brush.fillRect(Math.round(xOf(timeline.hover)), AXIS, 1, height);
  }
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}
