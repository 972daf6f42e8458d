"use strict";
// What the timeline does for pointer and keys: figures, zoom, one collective in all ranks, the step handed to Perfetto.

// --- what is under the pointer ---

function under(x, y) {
  const place = y + frame.scrollTop;
  const row = timeline.rows.find((each) => place >= each.y && place < each.layers + each.layer);
  if (!row || x < LABEL || y < AXIS) return null;
  const at = nsAt(x);
  if (place < row.comm - 1) return { row, at, stretch: Math.max(placeOf(row.device.starts, at), 0) };
  if (place < row.layers - 1) return { row, at, mark: markAt(row, x, Math.floor((place - row.comm) / row.lane)) };
  return { row, at, layer: layerAt(row.device, at) };
}

// The kernel under the pointer, with two pixels' patience for short ones; the nearest.
function markAt(row, x, lane) {
  const near = row.device.marks.filter((mark) => (
    mark.lane === Math.max(lane, 0) && x >= xOf(mark.start) - 2 && x <= xOf(mark.end) + 2));
  const away = (mark) => Math.abs(x - (xOf(mark.start) + xOf(mark.end)) / 2);
  return near.sort((a, b) => away(a) - away(b))[0];
}

function layerAt(device, at) {
  const layer = device.layers[placeOf(device.layers, at, (each) => each.start)];
  return layer && layer.end > at ? layer : undefined;
}

function linesOf(found) {
  const lines = [plain(found.row.device.label)];
  const spans = (start, end) => `from ${us(start)}, ${us(end - start)} long`;
  if (found.stretch !== undefined) {
    const { starts, states } = found.row.device;
    const state = STATES.find((each) => each.letter === states[found.stretch]);
    lines.push(state ? stateName(state, found.row.device.within[found.stretch]) : "outside of the device's steps", spans(starts[found.stretch], starts[found.stretch + 1]));
    found.layer = layerAt(found.row.device, found.at);
  }
  if (found.mark) lines.push(...wordsOf(found.mark), spans(found.mark.start, found.mark.end));
  if (found.layer) lines.push(`layer ${layerName(found.layer)}`, spans(found.layer.start, found.layer.end));
  return lines.length > 1 ? lines : null;
}

// What is the device's own has no place on the host but that of its launch.
function stateName(state, within) {
  const where = "ISOP".includes(state.letter) ? "the host is in" : "launched by";
  return within < 0 ? state.label : `${state.label} (${where} ${plain(timeline.step.names[within])})`;
}

function wordsOf(mark) {
  const row = timeline.step.collectives[mark.index];
  const kind = mark.bucket >= 0 ? `${nameOf(mark)}, ${plain(mark.kind)}` : nameOf(mark);
  const about = row ? `${kind}, ${bytes(row.bytes)}` : `${kind}, in no collective`;
  const figures = row ? [`transfer ${us(row.transfer_ns)}, busbw ${rate(row.busbw_gbps)}`] : [];
  return [about, `waiting ${us(mark.wait)}, exposed ${us(mark.exposed)}`, ...figures];
}

function hover(event) {
  const box = canvas.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  timeline.hover = x >= LABEL ? nsAt(x) : null;
  const found = under(x, y);
  const lines = found && linesOf(found);
  tip.hidden = !lines;
  if (lines) {
    tip.replaceChildren(...lines.map((line) => element("div", line)));
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.min(event.clientX + 14, room)}px`;
    tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
  }
  draw();
}

function element(tag, words, kind) {
  const made = document.createElement(tag);
  if (words !== undefined) made.textContent = words;
  if (kind) made.className = kind;
  return made;
}

// --- one collective, in all ranks ---

function select(index) {
  timeline.selected = index;
  const panel = document.getElementById("collective");
  const row = timeline.step.collectives[index];
  panel.replaceChildren(...(row ? described(row) : []));
  draw();
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
  const starts = new Map();
  for (const { device } of timeline.rows) {
    for (const mark of device.marks) {
      if (mark.index >= 0) starts.set(mark.index, Math.min(mark.start, starts.get(mark.index) ?? Infinity));
    }
  }
  const order = [...starts.keys()].sort((a, b) => starts.get(a) - starts.get(b));
  if (!order.length) return;
  const at = order.indexOf(timeline.selected);
  const next = order[at < 0 ? (way > 0 ? 0 : order.length - 1) : Math.min(Math.max(at + way, 0), order.length - 1)];
  select(next);
  const start = starts.get(next);
  if (start < timeline.from || start > timeline.to) pan((start - (timeline.from + timeline.to) / 2) / (timeline.to - timeline.from));
}

// Zoom to the selected collective, with as much again around it.
function focusSelected() {
  const marks = timeline.rows.flatMap((row) => row.device.marks.filter((mark) => mark.index === timeline.selected));
  if (timeline.selected < 0 || !marks.length) return;
  const [start, end] = [Math.min(...marks.map((mark) => mark.start)), Math.max(...marks.map((mark) => mark.end))];
  show(start - (end - start) / 2, end + (end - start) / 2);
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
  zoom(Math.exp(Math.max(Math.min(event.deltaY, 300), -300) / 400), nsAt(Math.max(event.offsetX, LABEL)));
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const far = event.shiftKey ? 0.5 : 0.1;
  const keys = {
    ArrowLeft: () => pan(-far), ArrowRight: () => pan(far), "+": () => zoom(0.7), "=": () => zoom(0.7),
    "-": () => zoom(1 / 0.7), 0: fit, Home: fit, n: () => selectNext(1), p: () => selectNext(-1), f: focusSelected,
    Escape: () => select(-1), ArrowUp: () => (frame.scrollTop -= 60), ArrowDown: () => (frame.scrollTop += 60),
  };
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

// A drag moves the time under the pointer along; a press that did not move is a click.
function onPress(event) {
  if (event.button !== 0) return;
  const begin = { x: event.clientX, from: timeline.from, to: timeline.to, moved: false };
  canvas.setPointerCapture(event.pointerId);
  const move = (now) => {
    begin.moved ||= Math.abs(now.clientX - begin.x) > 3;
    if (!begin.moved) return;
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

function onClick(event) {
  const box = canvas.getBoundingClientRect();
  const found = under(event.clientX - box.left, event.clientY - box.top);
  select(found?.mark ? found.mark.index : -1);
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
    device.lengths.forEach((length, at) => {
      const state = STATES.find((each) => each.letter === device.states[at]);
      const within = device.within[at];
      const where = within < 0 ? {} : { operator_or_module: plain(timeline.step.names[within]) };
      if (state) add(pid, 1, state.label, device.starts[at], length, where);
    });
    for (const layer of device.layers) add(pid, 2, layerName(layer), layer.start, layer.end - layer.start);
    for (const mark of device.marks) {
      called("thread_name", 3 + mark.lane, plain(device.lanes[mark.lane]) || COMMUNICATION);
      const about = { waiting_us: mark.wait / 1000, exposed_us: mark.exposed / 1000, collective: mark.index };
      add(pid, 3 + mark.lane, nameOf(mark), mark.start, mark.length, about);
    }
  });
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
  timeline.selected = -1;
  document.getElementById("collective").replaceChildren();
  layOut();
  fit();
}

function listen() {
  const click = (id, act) => document.getElementById(id).addEventListener("click", act);
  click("closer", () => zoom(0.6));
  click("wider", () => zoom(1 / 0.6));
  click("whole", fit);
  click("earlier", () => selectNext(-1));
  click("later", () => selectNext(1));
  click("perfetto", openInPerfetto);
  document.getElementById("step").addEventListener("change", (event) => open_(Number(event.target.value)));
  document.getElementById("strips").addEventListener("change", (event) => {
    timeline.layers = event.target.checked;
    layOut();
    draw();
  });
  canvas.addEventListener("pointermove", (event) => { timeline.armed = true; hover(event); });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; timeline.hover = null; draw(); });
  canvas.addEventListener("pointerdown", onPress);
  canvas.addEventListener("keydown", onKey);
  canvas.addEventListener("wheel", onWheel, { passive: false });
  frame.addEventListener("scroll", draw);
  addEventListener("scroll", () => { timeline.armed = false; tip.hidden = true; });
  new ResizeObserver(() => { if (timeline.step) { layOut(); draw(); } }).observe(frame);
  for (const media of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(media).addEventListener("change", () => {
      takeColors();
      if (timeline.step) layOut();
      paint();
    });
  }
}

async function startTimeline() {
  const select_ = document.getElementById("step");
  const strips = document.getElementById("strips");
  takeColors();
  listen();
  try {
    const step = await load(Number(select_.value));
    timeline.layers = strips.checked = step.devices.length <= 8;
    await open_(step.step);
  } catch (error) {
    document.getElementById("extent").textContent = `The timeline cannot be shown by this browser: ${error.message}`;
    console.error(error);
  }
}
startTimeline();
