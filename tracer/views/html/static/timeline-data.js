"use strict";
// The step that is drawn: its document unpacked, its lanes laid apart, and the words for its times and names.
// Each step has a document; times are ns from the step's beginning.

const COMMUNICATION = "communication"; // what is of no group that is known, and where there is but one
const { states: STATES, shades: SHADES } = JSON.parse(document.getElementById("states").textContent);
// What a CPU does, by the letter of the idle time that it would explain.
const OF_HOST = {
  L: "launches", O: "in operators", P: "in Python", S: "waits for the device", I: "loads input", A: "reserves device memory",
  G: "collects garbage", F: "the profiler's own work",
};
const MOST_LEVELS = 3; // lanes that kernels, or a group's collectives, share where they overlap
const MOST_DEPTH = 8; // of layers' names that are drawn
const WHOLE = Infinity; // a depth at which names are whole
const timeline = {
  step: null, names: [], short: {}, apart: [], ranks: [], charges: [], from: 0, to: 1, rows: [], wide: 0, label: 118, layers: true, kernels: true,
  path: null, // where the critical path is drawn
  selected: -1, // the collective whose members are shown
  chosen: null, // what else is outlined: {row, kind, start, end}, and `at`, its place in its lane
  measured: null, hover: null, armed: false, pans: false, matches: [], match: -1,
};
const loaded = new Map();

// --- the document ---

async function load(step) {
  if (!timeline.names.length) Object.assign(timeline, await read("names"));
  if (!loaded.has(step)) {
    const document_ = await read(`step-${step}`);
    loaded.set(step, { ...document_, devices: document_.devices.map(prepared), path: pathOf(document_.path) });
  }
  return loaded.get(step);
}

async function read(id) {
  return JSON.parse(new TextDecoder().decode(await unpacked(id)));
}

// What is drawn of a device: its stretches with their starts, its kernels and layers, its communication in lanes.
function prepared(device) {
  const starts = new Float64Array(device.lengths.length + 1);
  device.lengths.forEach((length, at) => (starts[at + 1] = starts[at] + length));
  const marks = device.marks.map(([start, length, wait, exposed, index, bucket, kind, group, name]) => (
    { start, end: start + length, length, wait, exposed, index, bucket, kind, group, name, lane: 0 }));
  // Only idle stretches, whose letters are capitals, say where the host was.
  let place = 0;
  const within = Int32Array.from(device.states, (letter) => (/[A-Z]/.test(letter) ? device.within[place++] : -1));
  const codes = Uint8Array.from(device.states, (letter) => STATES.findIndex((state) => state.letter === letter));
  const course = { starts, ends: starts.subarray(1), codes, length: codes.length };
  const kernels = kernelsOf(device.kernels ?? []);
  const layers = layersOf(device.layers);
  const deepest = layers.reduce((most, layer) => Math.max(most, timeline.names[layer.name].split(".").length), 1);
  return {
    ...device, starts, within, marks, course, kernels, levels: levelsOf(kernels), layers, blocks: [],
    deepest: Math.min(deepest, MOST_DEPTH), lanes: inLanes(marks, device.groups), host: hostOf(device.host),
  };
}

// The critical path, one strip over all ranks: its segments, and where it runs over each rank. Null where there is none.
function pathOf(rows) {
  if (!rows) return null;
  const [segments, runs] = [[], new Map()];
  let end = 0;
  for (const [length, charge, rank, group] of rows) {
    const start = end;
    end += length;
    if (charge < 0) continue;
    segments.push({ start, end, charge, rank, group });
    const own = runs.get(rank) ?? [];
    if (own.at(-1)?.end === start) own.at(-1).end = end;
    else own.push({ start, end });
    runs.set(rank, own);
  }
  const lookOf = ({ charge }) => STATES.findIndex((state) => state.letter === timeline.charges[charge][2]);
  return { segments, runs, ...strip(segments, lookOf) };
}

// What the launching threads do, a strip; null where there is none.
function hostOf(flat) {
  if (!flat) return null;
  const stretches = [];
  let at = 0;
  for (let k = 0; k < flat.length; k += 4) {
    const start = at + flat[k];
    at = start + flat[k + 1];
    stretches.push({ start, end: at, code: flat[k + 2], name: flat[k + 3] });
  }
  return { ...strip(stretches, (each) => each.code), kernels: stretches };
}

function layersOf(flat) {
  const layers = [];
  let at = 0;
  for (let k = 0; k < flat.length; k += 3) {
    const start = at + flat[k];
    at = start + flat[k + 1];
    layers.push({ start, end: at, name: flat[k + 2] >> 1, backward: flat[k + 2] & 1 });
  }
  return layers;
}

function kernelsOf(flat) {
  const kernels = [];
  let start = 0;
  for (let k = 0; k < flat.length; k += 5) {
    start += flat[k];
    const code = flat[k + 2];
    kernels.push({
      start, end: start + flat[k + 1], name: code >> 1, copies: code & 1, operator: flat[k + 3], layer: flat[k + 4], level: 0,
    });
  }
  return kernels;
}

// Kernels that overlap stand below one another. Shades of the same color tell names apart, copies have their own.
function levelsOf(kernels) {
  const ends = [];
  for (const kernel of kernels) {
    let level = ends.findIndex((end) => end <= kernel.start);
    if (level < 0) level = Math.min(ends.length, MOST_LEVELS - 1);
    ends[level] = Math.max(kernel.end, ends[level] ?? 0);
    kernel.level = level;
  }
  return ends.map((_, level) => {
    const own = kernels.filter((kernel) => kernel.level === level);
    // A level for the few that overlap others is thin.
    const thin = own.length < 0.1 * kernels.length;
    return { ...strip(own, (kernel) => (kernel.copies ? SHADES.kernels.length : kernel.name % SHADES.kernels.length)), kernels: own, thin };
  });
}

function strip(stretches, codeOf) {
  return {
    starts: Float64Array.from(stretches, (each) => each.start), ends: Float64Array.from(stretches, (each) => each.end),
    codes: Uint8Array.from(stretches, codeOf), length: stretches.length,
  };
}

// Layers at a depth of their names (layer1, layer1.0, layer1.0.conv1): neighbors that share it are one block.
// What is no layer (packing, copies) is apart: what it interrupts is still one block.
function blocksOf(device, depth) {
  if (device.blocks[depth]) return device.blocks[depth];
  const [blocks, others] = [[], []];
  const codes = new Uint8Array(device.layers.length);
  device.layers.forEach((layer, at) => {
    const whole = timeline.names[layer.name];
    const apart = timeline.apart.includes(layer.name);
    const among = apart ? others : blocks;
    const name = apart ? whole : whole.split(".").slice(0, depth).join(".");
    const last = among.at(-1);
    const goes = last?.name === name && last.backward === layer.backward && (!apart || last.end === layer.start);
    if (goes) last.end = layer.end;
    else among.push({ start: layer.start, end: layer.end, name, backward: layer.backward });
    codes[at] = apart ? SHADES.layers.length : 2 * layer.backward + (blocks.length % 2);
  });
  const ofBlock = strip(blocks, () => 0);
  return (device.blocks[depth] = { blocks, others, starts: ofBlock.starts, strip: { ...strip(device.layers, () => 0), codes } });
}

// A lane for each process group; its kernels that overlap stand below one another. The lanes' names.
function inLanes(marks, groups) {
  const names = [];
  groups.forEach((group, code) => {
    const ends = [];
    for (const mark of marks.filter((each) => each.group === code)) {
      let lane = ends.findIndex((end) => end <= mark.start);
      if (lane < 0) lane = Math.min(ends.length, MOST_LEVELS - 1);
      ends[lane] = Math.max(mark.end, ends[lane] ?? 0);
      mark.lane = names.length + lane;
    }
    ends.forEach((_, lane) => names.push(lane ? "" : group || COMMUNICATION));
  });
  const several = names.filter((name) => name).length > 1;
  return several || !names.length ? names : [COMMUNICATION, ...names.slice(1)];
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

// --- what is at an instant ---

function layerAt(device, at) {
  const layer = device.layers[placeOf(device.layers, at, (each) => each.start)];
  return layer && layer.end > at ? layer : undefined;
}

function kernelAt(level, at) {
  const kernel = level?.kernels[placeOf(level.starts, at)];
  return kernel && kernel.end > at ? kernel : undefined;
}

// --- words ---

const UNITS_OF_TIME = [["s", 1e9, 9], ["ms", 1e6, 6], ["us", 1e3, 3], ["ns", 1, 0]];

function number(value, digits, least = digits) {
  return value.toLocaleString("en", { minimumFractionDigits: least, maximumFractionDigits: digits });
}

// The one unit of everything that is said about an extent as long as this.
function unitFor(ns) {
  return UNITS_OF_TIME.find(([, size]) => ns >= 2 * size) ?? UNITS_OF_TIME.at(-1);
}

// Times in one unit, as fine as an extent of that many pixels shows them: the numbers, and the unit.
function timesIn(extent, pixels, times) {
  const [unit, size, most] = unitFor(extent);
  const digits = Math.min(Math.max(Math.ceil(Math.log10((size * Math.max(pixels, 1)) / extent)), 0), most);
  return [times.map((ns) => number(ns / size, digits)), unit];
}

// A length by itself: exact up to a millisecond, with six figures beyond.
function long(ns) {
  if (ns === null || ns < 0) return "-";
  const [unit, size] = ns < 1e6 ? ["us", 1e3] : ns < 1e10 ? ["ms", 1e6] : ["s", 1e9];
  return `${number(ns / size, 3)} ${unit}`;
}

const us = (ns) => (ns === null || ns < 0 ? "-" : `${number(ns / 1000, 3)} us`);
const share = (value) => (value === null ? "-" : `${(100 * value).toFixed(1)} %`);
const rate = (value) => (value === null ? "-" : `${value.toPrecision(4)} GB/s`);
const bytes = (value) => (value === null ? "-" : `${new Intl.NumberFormat("en").format(value)} B`);

const named = (code) => plain(timeline.names[code]);
const shortly = (code) => plain(timeline.short[code] ?? timeline.names[code]);

function nameOf(mark) {
  return mark.bucket >= 0 ? `bucket ${mark.bucket}` : plain(mark.kind);
}

function layerName(layer) {
  return `${named(layer.name)}${layer.backward ? " (backward)" : ""}`;
}
