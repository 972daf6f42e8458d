"use strict";
// What the timeline does for pointer and keys: figures, zoom, measuring, one collective in all ranks, Perfetto.

function hover(event) {
  const box = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  timeline.hover = x >= timeline.label ? nsAt(x) : null;
  const it = under(x, y);
  const lines = it && event.buttons === 0 && linesOf(it);
  tip.hidden = !lines;
  if (lines) {
    tip.replaceChildren(...lines.map((line) => element("div", line)));
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.min(event.clientX + 14, room)}px`;
    tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
  }
  draw();
}

// --- one collective, in all ranks; or one kernel ---

function select(index, thing) {
  timeline.selected = index;
  const row = timeline.step.collectives[index];
  const shown = row ? described(row) : thing?.kernel ? kernelDescribed(thing) : [];
  document.getElementById("collective").replaceChildren(...shown);
  draw();
}

function kernelDescribed({ row, kernel }) {
  const [short, ...about] = kernelLines(row, kernel, Infinity);
  return [element("h3", short), ...[...about, spans(kernel.start, kernel.end)].map((line) => element("p", line))];
}

function described(row) {
  const name = `${plain(row.kind)} ${row.index}${row.bucket === null ? "" : ` of bucket ${row.bucket}`}`;
  const of = [bytes(row.bytes), row.dtype && plain(row.dtype), `${row.group_size} members`, plain(row.purpose)];
  const bound = row.bound ? " (a bound)" : "";
  const known = [
    [row.algbw_gbps, `algbw ${rate(row.algbw_gbps)}`], [row.busbw_gbps, `busbw ${rate(row.busbw_gbps)}`],
    [row.utilization_at_size, `${share(row.utilization_at_size)} of what was calibrated`],
    [row.utilization_of_link, `${share(row.utilization_of_link)} of the link`],
  ];
  const transfer = row.transfer_ns === null ? "transfer not known" : `transfer ${us(row.transfer_ns)}${bound}`;
  const figures = [transfer, ...known.filter((each) => each[0] !== null).map((each) => each[1])];
  const table = element("table");
  const heads = ["rank", "device", "begins", "length", "waiting", "exposed"];
  const head = table.createTHead().insertRow();
  for (const each of heads) head.append(element("th", each));
  const body = table.createTBody();
  for (const member of row.members) {
    const line = body.insertRow();
    const since = member.start_ns - timeline.step.start_ns;
    const begins = `${since < 0 ? "-" : ""}${us(Math.abs(since))}`;
    const cells = [member.rank, plain(member.device), begins, us(member.dur_ns), us(member.wait_ns), us(member.exposed_ns)];
    for (const cell of cells) line.append(element("td", cell));
  }
  const scroll = element("div", undefined, "wide members");
  scroll.append(table);
  return [element("h3", name), element("p", of.filter(Boolean).join(", ")), element("p", figures.join("; ")), scroll];
}

// The next or the last collective before the selected one, by their first beginnings; the view follows.
function selectNext(way) {
  const firsts = new Map();
  for (const row of timeline.step.devices) {
    for (const mark of row.marks) {
      const first = firsts.get(mark.index);
      if (mark.index >= 0 && !(first?.start <= mark.start)) firsts.set(mark.index, ofMark(row, mark));
    }
  }
  const order = [...firsts.values()].sort((a, b) => a.start - b.start);
  if (!order.length) return;
  const at = order.findIndex((each) => each.index === timeline.selected);
  const next = order[at < 0 ? (way > 0 ? 0 : order.length - 1) : Math.min(Math.max(at + way, 0), order.length - 1)];
  choose(next);
  const { start } = next;
  if (start < timeline.from || start > timeline.to) pan((start - (timeline.from + timeline.to) / 2) / (timeline.to - timeline.from));
}

// Zoom to what was measured, to the selected collective on all ranks, or to what else is chosen.
function focusChosen() {
  if (timeline.measured) return show(timeline.measured.from, timeline.measured.to);
  const marks = timeline.rows.flatMap((row) => row.device.marks.filter((mark) => mark.index === timeline.selected));
  if (timeline.selected >= 0 && marks.length) showAll(marks);
  else if (timeline.chosen && timeline.chosen.kind !== "rank") zoomTo(timeline.chosen);
}

// --- hands ---

// The wheel zooms once the pointer has moved here: a page that scrolls by under it goes on scrolling.
function onWheel(event) {
  if (!timeline.armed && !event.ctrlKey && !event.metaKey) return;
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
    event.preventDefault();
    pan((event.deltaX || event.deltaY) / 1000);
    return;
  }
  const whole = timeline.to - timeline.from >= timeline.step.span_ns;
  if (whole && event.deltaY > 0) return;
  event.preventDefault();
  zoom(Math.exp(Math.max(Math.min(event.deltaY, 300), -300) / 400), nsAt(Math.max(event.offsetX, timeline.label)));
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const far = event.shiftKey ? 0.5 : 0.1;
  const keys = {
    ArrowLeft: () => pan(-far), ArrowRight: () => pan(far), "+": () => zoom(0.7), "=": () => zoom(0.7),
    "-": () => zoom(1 / 0.7), 0: fit, Home: fit, n: () => selectNext(1), p: () => selectNext(-1), f: focusChosen,
    Escape: letGo, ArrowUp: () => (frame.scrollTop -= 60), ArrowDown: () => (frame.scrollTop += 60),
    "/": () => document.getElementById("sought").focus(), "]": () => nextMatch(1), "[": () => nextMatch(-1),
  };
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function letGo() {
  Object.assign(timeline, { measured: null, matches: [], match: -1 });
  document.getElementById("sought").value = "";
  say("");
  choose(null);
}

// A drag measures, or with Shift, by touch, or where it was so chosen, moves the time along; a press that stays is a click.
function onPress(event) {
  if (event.button !== 0) return;
  const box = canvas.getBoundingClientRect();
  const pans = timeline.pans !== event.shiftKey || event.pointerType === "touch";
  const begin = { x: event.clientX, from: timeline.from, to: timeline.to, moved: false };
  begin.at = snapped(event.clientX - box.left, event.clientY - box.top);
  canvas.setPointerCapture(event.pointerId);
  const move = (now) => {
    begin.moved ||= Math.abs(now.clientX - begin.x) > 3;
    if (!begin.moved) return;
    if (!pans) return measure(begin.at, snapped(now.clientX - box.left, now.clientY - box.top));
    const by = Math.min(Math.max((begin.x - now.clientX) / scale(), -begin.from), timeline.step.span_ns - begin.to);
    show(begin.from + by, begin.to + by);
  };
  const release = (now) => {
    canvas.removeEventListener("pointermove", move);
    canvas.removeEventListener("pointerup", release);
    canvas.removeEventListener("pointercancel", release);
    if (!begin.moved && now.type === "pointerup") onClick(now);
  };
  canvas.addEventListener("pointermove", move);
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
}

// The instant at a place; near an edge of what is drawn there, that edge.
function snapped(x, y) {
  const at = Math.min(Math.max(nsAt(Math.max(x, timeline.label)), 0), timeline.step.span_ns);
  const it = under(x, y);
  if (!it) return at;
  const edges = [it.segment, it.host, it.mark, it.kernel, it.layer].filter(Boolean).flatMap((each) => [each.start, each.end]);
  if (it.stretch !== undefined) edges.push(it.row.device.starts[it.stretch], it.row.device.starts[it.stretch + 1]);
  const near = edges.filter((edge) => Math.abs(xOf(edge) - x) <= 4);
  return near.sort((a, b) => Math.abs(a - at) - Math.abs(b - at))[0] ?? at;
}

function measure(one, other) {
  const [from, to] = [Math.min(one, other), Math.max(one, other)].map(Math.round);
  timeline.measured = { from, to };
  // To the nanosecond, so that the length is the difference that it is said to be.
  const [[length, begin, end], unit] = timesIn(timeline.to - timeline.from, Infinity, [to - from, from, to]);
  say(`${length} ${unit} measured, from ${begin} to ${end} ${unit}`);
  tip.hidden = true;
  draw();
}

function onClick(event) {
  const box = canvas.getBoundingClientRect();
  const it = under(event.clientX - box.left, event.clientY - box.top);
  if (timeline.measured) say("");
  timeline.measured = null;
  choose(it && thingOf(it));
}

function thingOf(it) {
  if (it.segment) return null;
  const { device } = it.row;
  if (it.host) return { row: device, kind: "host", start: it.host.start, end: it.host.end };
  if (it.mark) return ofMark(device, it.mark);
  if (it.kernel && it.stretch === undefined) return ofKernel(device, it.kernel);
  if (it.stretch !== undefined) {
    return { row: device, kind: "state", start: device.starts[it.stretch], end: device.starts[it.stretch + 1], kernel: it.kernel };
  }
  return it.layer ? ofLayer(device, it.layer) : null;
}

// --- Perfetto ---

// The step as Chrome's trace events: a process for each device, with the strips that are drawn here as its threads.
function chromeTrace() {
  const events = [];
  const add = (pid, tid, name, start, length, args = {}) => (
    events.push({ ph: "X", pid, tid, name: plain(name), ts: start / 1000, dur: length / 1000, args }));
  timeline.step.devices.forEach((device, pid) => {
    const called = (name, tid, value) => events.push({ ph: "M", pid, tid, name, args: { name: value } });
    called("process_name", 0, plain(device.label));
    called("thread_name", 1, "states");
    called("thread_name", 2, "layers");
    device.levels.forEach((_, level) => called("thread_name", 1000 + level, "kernels"));
    device.lanes.forEach((lane, at) => called("thread_name", 3 + at, plain(lane) || COMMUNICATION));
    device.lengths.forEach((length, at) => {
      const state = STATES.find((each) => each.letter === device.states[at]);
      const within = device.within[at];
      const where = within < 0 ? {} : { operator_or_module: named(within) };
      if (state) add(pid, 1, state.label, device.starts[at], length, where);
    });
    if (device.host) called("thread_name", 2000, "CPU");
    for (const { start, end, code, name } of device.host?.kernels ?? []) {
      add(pid, 2000, name < 0 ? OF_HOST[STATES[code].letter] : named(name), start, end - start, { state: OF_HOST[STATES[code].letter] });
    }
    for (const layer of device.layers) add(pid, 2, layerName(layer), layer.start, layer.end - layer.start);
    device.kernels.forEach((kernel) => {
      const launched = kernel.operator < 0 ? {} : { operator: named(kernel.operator) };
      add(pid, 1000 + kernel.level, shortly(kernel.name), kernel.start, kernel.end - kernel.start, { kernel: named(kernel.name), ...launched });
    });
    for (const mark of device.marks) {
      const about = { waiting_us: mark.wait / 1000, exposed_us: mark.exposed / 1000, collective: mark.index, kernel: named(mark.name) };
      add(pid, 3 + mark.lane, nameOf(mark), mark.start, mark.length, about);
    }
  });
  const alone = timeline.step.devices.length;
  if (timeline.step.path) events.push({ ph: "M", pid: alone, tid: 0, name: "process_name", args: { name: "critical path" } });
  for (const { start, end, charge, rank, group } of timeline.step.path?.segments ?? []) {
    const whose = rank >= 0 ? { rank } : group >= 0 ? { group: named(group) } : {};
    add(alone, 1, timeline.charges[charge][0], start, end - start, whose);
  }
  return JSON.stringify({ displayTimeUnit: "ns", traceEvents: events });
}

// Perfetto answers PING with PONG once it listens, and then takes the trace; nothing leaves the browser.
function openInPerfetto() {
  const site = "https://ui.perfetto.dev";
  const other = open(site);
  const title = `${document.title}, step ${timeline.step.step}`;
  const buffer = new TextEncoder().encode(chromeTrace()).buffer;
  if (!other) return saveAs("timeline.json", [buffer], "application/json");
  const calling = setInterval(() => other.postMessage("PING", site), 100);
  setTimeout(() => clearInterval(calling), 60000);
  addEventListener("message", function answered(event) {
    if (event.source !== other || event.origin !== site || event.data !== "PONG") return;
    clearInterval(calling);
    removeEventListener("message", answered);
    other.postMessage({ perfetto: { buffer, title, fileName: "timeline.json" } }, site);
  });
}

// --- start ---

async function open_(step) {
  timeline.step = await load(step);
  document.getElementById("step").value = String(step);
  Object.assign(timeline, { selected: -1, chosen: null, measured: null, matches: [], match: -1 });
  document.getElementById("sought").value = "";
  document.getElementById("collective").replaceChildren();
  say("");
  layOut();
  fit();
  showLegend();
}

// A box that says whether strips of a sort are drawn.
function listenToStrips(id, name) {
  document.getElementById(id).addEventListener("change", (event) => {
    timeline[name] = event.target.checked;
    layOut();
    draw();
    showLegend();
  });
}

function listenToSearch() {
  const field = document.getElementById("sought");
  field.addEventListener("input", () => search_(field.value));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") nextMatch(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") { letGo(); canvas.focus(); }
  });
}

function listenToCanvas() {
  canvas.addEventListener("pointermove", (event) => { timeline.armed = true; hover(event); });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; timeline.hover = null; draw(); });
  canvas.addEventListener("pointerdown", onPress);
  canvas.addEventListener("keydown", onKey);
  canvas.addEventListener("wheel", onWheel, { passive: false });
  frame.addEventListener("scroll", draw);
  addEventListener("scroll", () => { timeline.armed = false; tip.hidden = true; });
}

function listen() {
  const click = (id, act) => document.getElementById(id).addEventListener("click", act);
  click("closer", () => zoom(0.6));
  click("wider", () => zoom(1 / 0.6));
  click("whole", fit);
  click("earlier", () => selectNext(-1));
  click("later", () => selectNext(1));
  click("before", () => nextMatch(-1));
  click("after", () => nextMatch(1));
  click("perfetto", openInPerfetto);
  document.getElementById("step").addEventListener("change", (event) => open_(Number(event.target.value)));
  document.getElementById("drag").addEventListener("change", (event) => { timeline.pans = event.target.value === "pans"; });
  listenToStrips("strips", "layers");
  listenToStrips("named", "kernels");
  listenToSearch();
  listenToCanvas();
  followLinks();
  new ResizeObserver(() => { if (timeline.step) { layOut(); show(timeline.from, timeline.to); } }).observe(frame);
  for (const media of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(media).addEventListener("change", () => {
      takeColors();
      if (timeline.step) { layOut(); showLegend(); }
      paint();
    });
  }
}

async function startTimeline() {
  takeColors();
  try {
    const step = await load(Number(document.getElementById("step").value));
    const few = step.devices.length <= 8;
    for (const [id, name] of [["strips", "layers"], ["named", "kernels"]]) timeline[name] = document.getElementById(id).checked = few;
    timeline.pans = document.getElementById("drag").value === "pans";
    await open_(step.step);
    listen();
    const place = placeOfAddress();
    if (place) await showMoment(place);
  } catch (error) {
    document.getElementById("extent").textContent = `The timeline cannot be shown by this browser: ${error.message}`;
    console.error(error);
  }
}
startTimeline();
