"use strict";
// What is drawn over the timeline's strips: collectives, names, outlines, what is measured, the axis; and the legend.

function paintRow(brush, row, depth) {
  paintPath(brush, row);
  paintMarks(brush, row, row.comm - frame.scrollTop);
  for (const level of [row.host, ...row.levels].filter(Boolean)) nameStretches(brush, level);
  if (row.layer > 10) nameLayers(brush, row, row.layers - frame.scrollTop, depth);
  brush.fillStyle = colors.ink;
  for (const [, start, end] of row.device.windows) {
    for (const at of [start, end]) brush.fillRect(xOf(at) - 0.5, row.y - frame.scrollTop - 3, 1, row.state + 6);
  }
  if (timeline.chosen?.row === row.device) outline(brush, row, timeline.chosen);
}

// A line over a rank where the critical path runs over it.
function paintPath(brush, row) {
  brush.fillStyle = colors.ink;
  for (const { start, end } of timeline.step.path?.runs.get(row.device.rank) ?? []) {
    if (end < timeline.from || start > timeline.to) continue;
    brush.fillRect(xOf(start), row.y - frame.scrollTop - OVERLINE - 1, Math.max((end - start) * scale(), 1), OVERLINE);
  }
}

function paintMarks(brush, row, y) {
  const [waiting, unresolved] = [colors.waiting, colors.unresolved].map((tile) => brush.createPattern(tile, "repeat"));
  for (const mark of row.device.marks) {
    if (mark.end < timeline.from || mark.start > timeline.to) continue;
    const [x, turn, end] = [mark.start, mark.start + Math.max(mark.wait, 0), mark.end].map(xOf);
    const resolved = mark.index >= 0 && !timeline.step.collectives[mark.index].partial;
    const top = y + mark.lane * row.lane;
    const high = row.lane - 1;
    brush.fillStyle = waiting;
    brush.fillRect(x, top, turn - x, high);
    brush.fillStyle = resolved ? colors.comm : unresolved;
    brush.fillRect(turn, top, Math.max(end - turn, 1), high);
    if (mark.index >= 0 && mark.index === timeline.selected) frameOf(brush, x, top, end - x, high);
    inside(brush, nameOf(mark), x, end, top + high / 2, high, true);
  }
}

function frameOf(brush, x, y, width, high) {
  brush.strokeStyle = colors.ink;
  brush.lineWidth = 2;
  brush.strokeRect(x - 1, y - 1, Math.max(width, 1) + 2, high + 2);
}

// What names of many operators and modules begin with, left out where there is little room.
const OF_PYTORCH = /^(aten::|nn\.Module: )/;

// Names of kernels, or of what the host is in, once those in sight are few enough to be told apart.
function nameStretches(brush, { level, y, high }) {
  const first = Math.max(placeOf(level.starts, timeline.from), 0);
  const last = placeOf(level.starts, timeline.to);
  if (last - first > plotWidth() / 4) return;
  const top = y - frame.scrollTop;
  for (let k = first; k <= last; k++) {
    const { start, end: stop, name, code } = level.kernels[k];
    const [x, end] = [xOf(start), xOf(stop)];
    if (end - x < 4) continue;
    brush.fillStyle = colors.ground;
    brush.fillRect(end - 0.5, top, 1, high - 1);
    const words = name >= 0 ? shortly(name).replace(OF_PYTORCH, "") : OF_HOST[STATES[code].letter];
    if (end - x > 24) inside(brush, words, x, end, top + (high - 1) / 2, high, true, true);
  }
}

// Layers' names where they fit; of a long one that does not, its own part.
function nameLayers(brush, row, y, depth) {
  const { blocks, others, starts } = blocksOf(row.device, depth);
  for (let k = Math.max(placeOf(starts, timeline.from), 0); k < blocks.length; k++) {
    const block = blocks[k];
    if (block.start > timeline.to) break;
    const [x, end] = [xOf(block.start), xOf(block.end)];
    if (end - x < 14) continue;
    const middle = y + (row.layer - 1) / 2;
    const name = plain(block.name);
    const own = name.slice(name.lastIndexOf(".") + 1);
    if (!inside(brush, name, x, end, middle, row.layer, false) && !/^\d+$/.test(own)) {
      inside(brush, own, x, end, middle, row.layer, false);
    }
  }
  for (const { start, end, name } of others) {
    if (start > timeline.to) break;
    if (end > timeline.from && (end - start) * scale() > 40) inside(brush, plain(name), xOf(start), xOf(end), y + (row.layer - 1) / 2, row.layer, false);
  }
}

// Words on a mark, where they fit, or with `cut` as much as fits; whether they were written.
function inside(brush, words, start, end, middle, high, onColor, cut = false) {
  const [from, to] = [Math.max(start, timeline.label), Math.min(end, timeline.wide)];
  const room = to - from - 6;
  if (high < 10 || room < 8) return false;
  const fits = brush.measureText(words).width <= room;
  if (!fits && !(cut && room > 30)) return false;
  const written = fits ? words : fitting(brush, words, room);
  brush.lineWidth = onColor ? 3 : 2;
  brush.lineJoin = "round";
  brush.strokeStyle = onColor ? "rgb(0 0 0 / .6)" : colors.ground;
  brush.fillStyle = onColor ? "#ffffff" : colors.ink;
  if (onColor) brush.strokeText(written, from + 3, middle + 0.5);
  brush.fillText(written, from + 3, middle + 0.5);
  return true;
}

// Words, cut off where there is no room for them.
function fitting(brush, words, room) {
  if (brush.measureText(words).width <= room) return words;
  let [fits, length] = [0, words.length];
  while (fits < length) {
    const middle = (fits + length + 1) >> 1;
    if (brush.measureText(`${words.slice(0, middle)}\u2026`).width <= room) fits = middle;
    else length = middle - 1;
  }
  return `${words.slice(0, fits)}\u2026`;
}

// A frame around what was chosen: a kernel, a layer, a stretch, or a whole rank.
function outline(brush, row, chosen) {
  const places = {
    kernel: [row.levels[chosen.at]?.y, (row.levels[chosen.at]?.high ?? 0) - 1], layer: [row.layers, row.layer - 1],
    state: [row.y, row.state], mark: [row.comm + chosen.at * row.lane, row.lane - 1],
    rank: [row.top, row.bottom - row.top], host: [row.host?.y, row.host?.high - 1],
  };
  const [y, high] = places[chosen.kind];
  if (high <= 0) return;
  const [x, end] = chosen.kind === "rank" ? [timeline.label + 1, timeline.wide - 1] : [xOf(chosen.start), xOf(chosen.end)];
  frameOf(brush, x, y - frame.scrollTop, end - x, high);
}

function paintLabel(brush, row) {
  const y = row.y - frame.scrollTop + row.state / 2;
  if (y < AXIS) return;
  const room = timeline.label - 10;
  brush.fillStyle = colors.ink;
  brush.textAlign = "right";
  brush.font = "600 11px system-ui, sans-serif";
  brush.fillText(fitting(brush, plain(row.device.label), room), timeline.label - 8, y);
  brush.font = "11px system-ui, sans-serif";
  brush.fillStyle = colors.faint;
  if (row.host?.high > 10) brush.fillText(fitting(brush, `CPU of rank ${row.device.rank}`, room), timeline.label - 8, row.host.y + row.host.high / 2 - frame.scrollTop);
  if (row.lane > 10) {
    const lanes = row.device.lanes.map((name, lane) => [plain(name), row.comm + (lane + 0.5) * row.lane]);
    const kernels = row.levels.length ? [["kernels", row.levels[0].y + row.levels[0].high / 2]] : [];
    const layers = row.layer ? [["layers", row.layers + row.layer / 2]] : [];
    for (const [words, at] of [...lanes, ...kernels, ...layers]) {
      brush.fillText(fitting(brush, words, room), timeline.label - 8, at - frame.scrollTop);
    }
  }
  brush.textAlign = "left";
}

function paintPathLabel(brush) {
  const y = (timeline.path.y + timeline.path.bottom) / 2 - frame.scrollTop;
  if (y < AXIS) return;
  brush.fillStyle = colors.ink;
  brush.textAlign = "right";
  brush.fillText(fitting(brush, "critical path", timeline.label - 10), timeline.label - 8, y);
  brush.textAlign = "left";
}

function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

// All figures of the axis are in one unit, which stands at its left.
function paintAxis(brush, width, height) {
  brush.fillStyle = colors.ground;
  brush.fillRect(0, 0, width, AXIS);
  const [unit, size] = unitFor(timeline.to - timeline.from);
  const step = niceStep((timeline.to - timeline.from) / Math.max(plotWidth() / 100, 1));
  const digits = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
  brush.fillStyle = colors.faint;
  brush.textAlign = "right";
  brush.fillText(unit, timeline.label - 8, AXIS / 2);
  brush.textAlign = "left";
  for (let at = Math.ceil(timeline.from / step) * step; at <= timeline.to; at += step) {
    const x = Math.round(xOf(at)) + 0.5;
    brush.fillStyle = colors.line;
    brush.fillRect(x - 0.5, AXIS - 6, 1, 6);
    brush.fillStyle = colors.faint;
    const words = number(at / size, digits);
    if (x + 3 + brush.measureText(words).width < width) brush.fillText(words, x + 3, AXIS / 2);
  }
  paintMatches(brush, width);
  if (timeline.hover !== null) {
    brush.fillStyle = colors.faint;
    brush.fillRect(Math.round(xOf(timeline.hover)), AXIS, 1, height);
  }
  if (timeline.measured) paintMeasured(brush, timeline.measured, width, height);
}

// Where on the axis something that is searched for lies.
function paintMatches(brush, width) {
  brush.fillStyle = colors.focus;
  let last = -1;
  for (const match of timeline.matches) {
    const x = Math.round(xOf(match.start));
    if (x === last || x < timeline.label || x > width) continue;
    last = x;
    brush.fillRect(x - 1, AXIS - 5, 2, 5);
  }
}

function paintMeasured(brush, { from, to }, width, height) {
  const [x, end] = [Math.max(xOf(from), timeline.label), Math.min(xOf(to), width)];
  if (end < x) return;
  brush.globalAlpha = 0.14;
  brush.fillStyle = colors.ink;
  brush.fillRect(x, AXIS, end - x, height - AXIS);
  brush.globalAlpha = 1;
  brush.fillRect(x - 0.5, AXIS - 4, 1, height);
  brush.fillRect(end - 0.5, AXIS - 4, 1, height);
  const [[length], unit] = timesIn(timeline.to - timeline.from, plotWidth() * 10, [to - from]);
  const words = `${length} ${unit}`;
  const wide = brush.measureText(words).width + 10;
  const left = Math.min(Math.max((x + end - wide) / 2, timeline.label), width - wide);
  brush.fillRect(left, 2, wide, AXIS - 6);
  brush.fillStyle = colors.ground;
  brush.fillText(words, left + 5, AXIS / 2 - 1);
}

// --- the legend: every mark as the canvas has it ---

const SWATCH = [30, 14];

// Devices begin a step at different times: of those that begin before others, or after them, two steps are drawn.
function severalSteps(devices) {
  const several = devices.find(({ windows }) => windows.length > 1);
  if (!several) return "";
  const numbers = several.windows.map(([step]) => step).join(" and ");
  return `; ${plain(several.label)} shows parts of steps ${numbers}, since it begins them at other times than the others`;
}

// What a swatch shows, and its words; states are those of the step.
function legendOf() {
  const devices = timeline.step.devices;
  const has = (test) => devices.some(test);
  const partial = (mark) => mark.index < 0 || timeline.step.collectives[mark.index].partial;
  const onPath = new Set(timeline.step.path?.codes ?? []);
  const entries = STATES.map((state, code) => [onPath.has(code) || has((device) => device.states.includes(state.letter)), (brush) => state_(brush, code), state.label]);
  // Idle causes that look alike are one entry.
  const looks = new Map();
  for (const [at, [shown, paint_, label]] of entries.entries()) {
    if (!shown) continue;
    const { look } = STATES[at];
    if (looks.has(look)) looks.get(look)[1] += `, ${label.replace("idle: ", "")}`;
    else looks.set(look, [paint_, label]);
  }
  const filled = (style) => (brush) => fill(brush, style);
  const tile = (image) => (brush) => fill(brush, brush.createPattern(image, "repeat"));
  const pixel = (value) => filled(`rgb(${value & 255} ${(value >> 8) & 255} ${(value >> 16) & 255})`);
  const layered = (pass) => timeline.layers && has((device) => blocksOf(device, 1).blocks.some((block) => block.backward === pass));
  const communicates = has((device) => device.marks.length);
  const hosts = new Set(devices.flatMap((device) => [...(device.host?.codes ?? [])]));
  const ofHosts = [...hosts].sort((one, other) => one - other).map((code) => [true, (brush) => state_(brush, code, colors.host, ON_HOST), `CPU: ${OF_HOST[STATES[code].letter]}`]);
  const more = [
    ...ofHosts,
    [has((device) => device.marks.some((mark) => !partial(mark))), filled(colors.comm), "collective or bucket: transfer"],
    [has((device) => device.marks.some((mark) => mark.wait > 0)), tile(colors.waiting), "waits for its last member"],
    [has((device) => device.marks.some(partial)), tile(colors.unresolved), "waiting or transfer: not known"],
    [communicates, (brush) => { brush.fillStyle = colors.ink; brush.fillRect(0, SWATCH[1] - 4, SWATCH[0], 3); }, "underlined: exposed"],
    [timeline.kernels && has((device) => device.kernels.length), kernels_, "kernels, in shades by name"],
    [timeline.kernels && has((device) => device.kernels.some((kernel) => kernel.copies)), pixel(colors.kernels[SHADES.kernels.length]), "copies"],
    [layered(0), (brush) => halves(brush, colors.layers[0], colors.layers[1]), "layers, forward"],
    [layered(1), (brush) => halves(brush, colors.layers[2], colors.layers[3]), "layers, backward"],
    [timeline.layers && has((device) => blocksOf(device, 1).others.length), (brush) => state_(brush, SHADES.layers.length, colors.layers, ON_LAYERS), "for no layer"],
    [timeline.step.path, (brush) => { brush.fillStyle = colors.ink; brush.fillRect(0, 2, SWATCH[0], OVERLINE); }, "a line above: on the critical path"],
    [true, (brush) => { brush.fillStyle = colors.ink; brush.fillRect(SWATCH[0] / 2, 0, 1, SWATCH[1]); }, `a device's step begins or ends${severalSteps(devices)}`],
  ];
  return [...looks.values(), ...more.filter(([shown]) => shown).map(([, paint_, words]) => [paint_, words])];
}

function fill(brush, style) {
  brush.fillStyle = style;
  brush.fillRect(0, 0, ...SWATCH);
}

function state_(brush, code, shades = colors.states, patterns = PATTERNED) {
  const image = brush.createImageData(...SWATCH);
  const shares = new Float32Array(SWATCH[0] * STATES.length);
  shares.fill(1, code * SWATCH[0], (code + 1) * SWATCH[0]);
  paintStrip(new Uint32Array(image.data.buffer), SWATCH, [0, SWATCH[1]], shares, shades, patterns);
  brush.putImageData(image, 0, 0);
}

function halves(brush, ...values) {
  values.forEach((value, at) => {
    brush.fillStyle = `rgb(${value & 255} ${(value >> 8) & 255} ${(value >> 16) & 255})`;
    brush.fillRect((at * SWATCH[0]) / values.length, 0, SWATCH[0] / values.length - 1, SWATCH[1]);
  });
}

function kernels_(brush) {
  halves(brush, ...colors.kernels.slice(0, 3));
}

function showLegend() {
  const entries = legendOf().map(([paint_, words]) => {
    const swatch = element("canvas");
    [swatch.width, swatch.height] = SWATCH;
    paint_(swatch.getContext("2d"));
    const entry = element("span");
    entry.append(swatch, words);
    return entry;
  });
  document.getElementById("marks").replaceChildren(...entries);
}
