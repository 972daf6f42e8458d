"use strict";
// What is under the pointer and what it is called; search; and links from the page to a moment of the timeline.

const tip = document.getElementById("tip");

function element(tag, words, kind) {
  const made = document.createElement(tag);
  if (words !== undefined) made.textContent = words;
  if (kind) made.className = kind;
  return made;
}

// Say something in the timeline's status line.
function say(words) {
  document.getElementById("said").textContent = words;
}

// --- what is under the pointer ---

function under(x, y) {
  const place = y + frame.scrollTop;
  if (timeline.path && x >= timeline.label && y >= AXIS && place >= timeline.path.y && place < timeline.path.bottom) {
    const segment = segmentAt(nsAt(x));
    return segment ? { segment } : null;
  }
  const row = timeline.rows.find((each) => place >= each.top && place < each.bottom);
  if (!row || x < timeline.label || y < AXIS) return null;
  const { device } = row;
  const at = nsAt(x);
  if (place < row.y) return { row, at, host: nearKernel(row.host.level, x) };
  if (place < row.comm - 1) {
    const stretch = Math.max(placeOf(device.starts, at), 0);
    const computes = device.states[stretch] === "c";
    return { row, at, stretch, kernel: computes ? computedAt(device, at) : undefined, layer: layerAt(device, at) };
  }
  if (place < row.under) return { row, at, mark: markAt(row, x, Math.floor((place - row.comm) / row.lane)) };
  const lane = row.levels.find((each) => place < each.y + each.high);
  if (lane) return { row, at, kernel: nearKernel(lane.level, x) };
  return { row, at, layer: row.layer ? layerAt(device, at) : undefined };
}

function segmentAt(at) {
  const { starts, segments } = timeline.step.path;
  const segment = segments[placeOf(starts, at)];
  return segment && segment.end > at ? segment : undefined;
}

// The kernel that computes at an instant; of several the one that began first.
function computedAt(device, at) {
  const running = device.levels.map((level) => kernelAt(level, at)).filter((kernel) => kernel && !kernel.copies);
  return running.sort((a, b) => a.start - b.start)[0];
}

// With two pixels' patience for short ones; the nearest.
function nearest(stretches, x) {
  const near = stretches.filter((each) => x >= xOf(each.start) - 2 && x <= xOf(each.end) + 2);
  const away = (each) => Math.abs(x - (xOf(each.start) + xOf(each.end)) / 2);
  return near.sort((a, b) => away(a) - away(b))[0];
}

function markAt(row, x, lane) {
  return nearest(row.device.marks.filter((mark) => mark.lane === Math.max(lane, 0)), x);
}

function nearKernel(level, x) {
  if (!level) return undefined;
  const at = placeOf(level.starts, nsAt(x));
  return kernelAt(level, nsAt(x)) ?? nearest(level.kernels.slice(Math.max(at - 1, 0), at + 3), x);
}

function spans(start, end) {
  const [[begin, stop], unit] = timesIn(timeline.to - timeline.from, plotWidth() * 10, [start, end]);
  return `${long(end - start)} long, from ${begin} to ${stop} ${unit}`;
}

function segmentLines({ charge, rank, group, start, end }) {
  const [label, meaning] = timeline.charges[charge];
  const whose = rank >= 0 ? `rank ${rank}` : group >= 0 ? `group ${named(group)}` : "of no rank that is known";
  return [`critical path, ${whose}`, `${label.replaceAll("_", " ")}: ${meaning}`, spans(start, end)];
}

function linesOf(found) {
  if (found.segment) return segmentLines(found.segment);
  const { device } = found.row;
  const lines = [plain(device.label)];
  if (found.stretch !== undefined) {
    const state = STATES.find((each) => each.letter === device.states[found.stretch]);
    lines.push(state ? stateName(state, device.within[found.stretch]) : "outside of the device's steps");
    lines.push(spans(device.starts[found.stretch], device.starts[found.stretch + 1]));
  }
  if (found.kernel) {
    lines.push(...kernelLines(device, found.kernel));
    const whole = spans(found.kernel.start, found.kernel.end);
    if (lines[2] !== whole) lines.push(whole);
  }
  if (found.host) {
    const { start, end, name, code } = found.host;
    lines[0] += ", CPU";
    lines.push(OF_HOST[STATES[code].letter] + (name < 0 ? "" : `: ${named(name)}`), spans(start, end));
  }
  if (found.mark) lines.push(...wordsOf(found.mark), spans(found.mark.start, found.mark.end));
  if (found.layer && !found.kernel) lines.push(`layer ${layerName(found.layer)}`, spans(found.layer.start, found.layer.end));
  return lines.length > 1 ? lines : null;
}

// What is the device's own has no place on the host but that of its launch.
function stateName(state, within) {
  const where = "ISOP".includes(state.letter) ? "the host is in" : "launched by";
  return within < 0 ? state.label : `${state.label} (${where} ${named(within)})`;
}

const LONGEST = 300; // of a kernel's name under the pointer

function kernelLines(device, kernel, longest = LONGEST) {
  const whole = named(kernel.name);
  const name = whole.length > longest ? `${whole.slice(0, longest)}\u2026` : whole;
  const [short, launched] = [shortly(kernel.name), kernel.operator >= 0 ? [`launched by ${named(kernel.operator)}`] : []];
  const drawn = layerAt(device, kernel.start);
  const backward = drawn?.name === kernel.layer && drawn.backward;
  const layer = kernel.copies ? [] : [`layer ${layerName({ name: kernel.layer, backward })}`];
  return [`${kernel.copies ? "copy" : "kernel"} ${short}`, ...(short === whole ? [] : [name]), ...launched, ...layer];
}

function wordsOf(mark) {
  const row = timeline.step.collectives[mark.index];
  const kind = mark.bucket >= 0 ? `${nameOf(mark)}, ${plain(mark.kind)}` : nameOf(mark);
  const about = row ? `${kind}, ${bytes(row.bytes)}` : `${kind}, in no collective`;
  const figures = row ? [`transfer ${long(row.transfer_ns)}, busbw ${rate(row.busbw_gbps)}`] : [];
  return [about, shortly(mark.name), `waiting ${long(mark.wait)}, exposed ${long(mark.exposed)}`, ...figures];
}

// --- what is chosen ---

// Choose a kernel, layer, collective, stretch or rank: it is framed, and in sight; collectives show their members.
function choose(thing) {
  timeline.chosen = thing;
  select(thing?.kind === "mark" ? thing.index : -1, thing);
  if (thing) intoSight(thing.row);
  draw();
}

function intoSight(device) {
  const row = timeline.rows.find((each) => each.device === device);
  const high = canvas.clientHeight;
  if (row.top - AXIS < frame.scrollTop || row.bottom > frame.scrollTop + high) frame.scrollTop = row.top - AXIS - 4;
}

// Zoom to an extent with as much again on either side.
function zoomTo({ start, end }) {
  const margin = Math.max(end - start, 1000);
  show(start - margin, end + margin);
}

// Zoom to the extent of several things, with half as much again on either side.
function showAll(things) {
  const [start, end] = [Math.min(...things.map((each) => each.start)), Math.max(...things.map((each) => each.end))];
  show(start - (end - start) / 2, end + (end - start) / 2);
}

const ofKernel = (row, kernel) => ({ row, kind: "kernel", start: kernel.start, end: kernel.end, at: kernel.level, kernel });
const ofLayer = (row, layer) => ({ row, kind: "layer", start: layer.start, end: layer.end });
const ofMark = (row, mark) => ({ row, kind: "mark", start: mark.start, end: mark.end, at: mark.lane, index: mark.index });

// --- search ---

// Everything in the step whose names hold all the words; layers in the blocks that are drawn at full depth.
function found(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  if (!wanted.length) return [];
  const holds = (text) => wanted.every((word) => text.toLowerCase().includes(word));
  const codes = new Set(timeline.names.flatMap((name, code) => (holds(`${name} ${timeline.short[code] ?? ""}`) ? [code] : [])));
  const all = timeline.step.devices.flatMap((device) => [
    ...device.kernels.filter((each) => codes.has(each.name) || codes.has(each.operator)).map((each) => ofKernel(device, each)),
    ...layersIn(device).filter((each) => holds(each.name)).map((each) => ofLayer(device, each)),
    ...device.marks.filter((each) => codes.has(each.name) || holds(markText(device, each))).map((each) => ofMark(device, each)),
  ]);
  return all.sort((a, b) => a.start - b.start);
}

// The layers of a device, whole, and what is for none.
function layersIn(device) {
  const { blocks, others } = blocksOf(device, WHOLE);
  return [...blocks, ...others];
}

function markText(device, mark) {
  return `${nameOf(mark)} ${mark.kind} ${device.groups[mark.group]}`;
}

function search_(words) {
  timeline.matches = found(words);
  timeline.match = -1;
  const count = timeline.matches.length;
  say(words.trim() ? (count ? `${number(count, 0)} in this step; Enter goes to the first` : "nothing of that name in this step") : "");
  draw();
}

function nextMatch(way) {
  const count = timeline.matches.length;
  if (!count) return;
  if (timeline.match < 0) {
    const first = timeline.matches.findIndex((each) => each.start >= timeline.from);
    timeline.match = way > 0 ? Math.max(first, 0) : (first < 0 ? count : first + count) - 1;
    timeline.match %= count;
  } else timeline.match = (timeline.match + way + count) % count;
  goTo(timeline.match);
}

function goTo(at) {
  const match = timeline.matches[at];
  timeline.match = at;
  const [seen, pixels] = [match.start >= timeline.from && match.end <= timeline.to, (match.end - match.start) * scale()];
  if (!seen || pixels < 8) zoomTo(match);
  choose(match);
  say(`${number(at + 1, 0)} of ${number(timeline.matches.length, 0)}`);
}

// --- links to a moment ---

// Show a place: {step, rank, device, collective, bucket, layer, kernel}, those that apply. Whether it is drawn.
async function showMoment(place) {
  const section = document.getElementById("timeline");
  for (let each = section; each; each = each.parentElement?.closest("details")) if (each.tagName === "DETAILS") each.open = true;
  section.scrollIntoView({ block: "start" });
  canvas.focus({ preventScroll: true });
  // What was folded away has a width only now.
  await new Promise((done) => requestAnimationFrame(done));
  const missing = await moved(place);
  if (missing) say(missing);
  return !missing;
}

// Go there, and return in words what is not drawn of it; an empty text if all is.
async function moved(place) {
  const step = await stepOf(place);
  if (step === null) return `Step ${plain(place.step)} is not drawn in this page.`;
  if (step !== timeline.step.step) await open_(step);
  else layOut();
  say("");
  timeline.measured = null;
  const ofRank = timeline.step.devices.filter((device) => place.rank === undefined || String(device.rank) === String(place.rank));
  const devices = ofRank.filter((device) => place.device === undefined || String(device.device) === String(place.device));
  if (!devices.length) return notDrawn(place, ofRank.length > 0);
  const [what, things] = sought(place, devices);
  if (!what) {
    fit();
    if (place.rank !== undefined) choose({ row: devices[0], kind: "rank" });
    return "";
  }
  if (!things.length) {
    choose({ row: devices[0], kind: "rank" });
    return `${what} is not drawn in step ${timeline.step.step}${place.rank === undefined ? "" : ` on rank ${plain(place.rank)}`}.`;
  }
  timeline.matches = things.sort((a, b) => a.start - b.start);
  const asked = things.filter((each) => devices.includes(each.row));
  const longest = (asked.length ? asked : things).reduce((most, each) => (each.end - each.start > most.end - most.start ? each : most));
  timeline.match = things.indexOf(longest);
  if (place.collective === undefined) zoomTo(longest);
  else showAll(things);
  choose(longest);
  const which = asked.length < things.length && asked.includes(longest) ? `that of rank ${longest.row.rank}` : "the longest";
  say(`${what}: ${number(timeline.match + 1, 0)} of ${number(things.length, 0)} in this step, ${which}`);
  return "";
}

// Why no device is shown: its rank is not in the report, not drawn, or has no such device.
function notDrawn(place, hasRank) {
  const [rank, device] = [plain(place.rank), plain(place.device)];
  if (place.rank === undefined) return `Device ${device} is not drawn in this page.`;
  if (hasRank) return `Device ${device} of rank ${rank} is not drawn in this page.`;
  if (!timeline.ranks.map(String).includes(String(place.rank))) return `Rank ${rank} is not in this report.`;
  return `Rank ${rank} is not drawn in this page; --ranks ${rank} draws it.`;
}

// The step to show: the one that is named, that of a collective, or the one that is shown; null where it is not drawn.
async function stepOf(place) {
  const steps = [...document.getElementById("step").options].map((option) => Number(option.value));
  if (place.step !== undefined) return steps.includes(Number(place.step)) ? Number(place.step) : null;
  if (place.collective === undefined) return timeline.step.step;
  for (const step of [timeline.step.step, ...steps]) {
    if (String(place.collective) in (await load(step)).collectives) return step;
  }
  return timeline.step.step;
}

// What is looked for in words, and all of it on these devices.
function sought(place, devices) {
  const all = (items, wanted, made) => devices.flatMap((device) => items(device).filter(wanted).map((each) => made(device, each)));
  if (place.collective !== undefined) {
    const wanted = (mark) => mark.index === Number(place.collective);
    // Those of all ranks: a straggler's own is short, and it may be no member itself.
    return [`Collective ${plain(place.collective)}`, marksOf(timeline.step.devices, wanted)];
  }
  if (place.bucket !== undefined) {
    const wanted = (mark) => mark.bucket === Number(place.bucket);
    return [`Bucket ${plain(place.bucket)}`, all((device) => device.marks, wanted, ofMark)];
  }
  if (place.kernel !== undefined) {
    // The page's links have names without control characters.
    const name = plain(place.kernel);
    const codes = new Set(timeline.names.flatMap((each, code) => (plain(each) === name ? [code] : [])));
    const wanted = (each) => codes.has(each.name);
    const things = [...all((device) => device.kernels, wanted, ofKernel), ...all((device) => device.marks, wanted, ofMark)];
    return [`The kernel ${codes.size ? shortly([...codes][0]) : name}`, things];
  }
  if (place.layer !== undefined) {
    const name = plain(place.layer);
    const own = all(layersIn, (block) => plain(block.name) === name, ofLayer);
    return [`Layer ${name}`, own.length ? own : devices.flatMap((device) => partsOf(device, name))];
  }
  return ["", []];
}

const marksOf = (devices, wanted) => devices.flatMap((device) => device.marks.filter(wanted).map((mark) => ofMark(device, mark)));

// What a layer that computes nothing itself consists of: the blocks below it; or below each of several, as FSDP groups them.
function partsOf(device, name) {
  return name.split(", ").flatMap((each) => {
    const { blocks } = blocksOf(device, each.split(".").length);
    return blocks.filter((block) => plain(block.name) === each).map((block) => ofLayer(device, block));
  });
}

// --- addresses: #at:step=3,rank=1 ---

const PLACE = ["step", "rank", "device", "collective", "bucket", "layer", "kernel"];

function addressOf(place) {
  const parts = PLACE.filter((name) => place[name] !== undefined && place[name] !== "");
  return `#at:${parts.map((name) => `${name}=${encodeURIComponent(place[name])}`).join(",")}`;
}

// The place that the page's address names; null where it names none.
function placeOfAddress() {
  if (!location.hash.startsWith("#at:")) return null;
  const pairs = location.hash.slice(4).split(",").map((part) => part.split("="));
  return Object.fromEntries(pairs.filter(([name, value]) => PLACE.includes(name) && value).map(([name, value]) => [name, decoded(value)]));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function followLinks() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.at");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const address = addressOf(link.dataset);
    // The same address again moves there again.
    if (location.hash === address) showMoment(placeOfAddress());
    else location.hash = address;
  });
  addEventListener("hashchange", () => {
    const place = placeOfAddress();
    if (place) showMoment(place);
  });
}
