"use strict";
// What the page's tables and folded sections do: sort, search, copy, open; and the report's JSON, saved. Without this
// script all is there to read.

// The bytes that an element of the page carries, gzipped, in base64.
async function unpacked(id) {
  const packed = atob(document.getElementById(id).textContent.trim());
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

function saveAs(name, parts, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Text from a trace, without what would steer the reader: as the page's own text has it.
function plain(text) {
  return String(text).replace(/[\p{C}\p{Z}]/gu, (character) => (character === " " ? " " : "\uFFFD"));
}

// A cell as something to sort by: sizes, percentages and numbers by what they amount to, other words as they are.
// Commas stand between thousands only: `0,1` is a list.
const UNITS = { B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
const FIGURE = String.raw`[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?`;
const MEASURED = new RegExp(`^[~\u2264\u2265]*(${FIGURE})(?: (B|kB|MB|GB|TB|%))?(?: - .*)?$`);
const PLAIN_FIGURE = new RegExp(`^${FIGURE}(?: %)?$`);
function sortKey(text) {
  const found = MEASURED.exec(text);
  if (found) return Number(found[1].replaceAll(",", "")) * (UNITS[found[2]] ?? 1);
  return text === "-" || text === "" ? null : text;
}

// Numbers before words; what is unknown last, whichever way.
function compare(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return sign * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
}

// Numbers begin with the largest, words with A; each group of rows keeps to itself.
function sortBy(table, head, column) {
  const bodies = [...table.tBodies];
  const keyOf = (row) => sortKey(row.cells[column].textContent);
  const isNumeric = bodies.some((body) => [...body.rows].some((row) => typeof keyOf(row) === "number"));
  const before = head.getAttribute("aria-sort");
  const way = before ? (before === "ascending" ? "descending" : "ascending") : isNumeric ? "descending" : "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", way);
  for (const body of bodies) {
    const rows = [...body.rows].map((row) => [keyOf(row), row]);
    rows.sort((a, b) => compare(a[0], b[0], way === "ascending" ? 1 : -1));
    body.append(...rows.map((each) => each[1]));
  }
}

function makeSortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    if (head.title) button.setAttribute("aria-description", head.title);
    button.addEventListener("click", () => sortBy(table, head, column));
    head.append(button);
  });
}

// Rows that hold all the words that are searched for.
function search(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = document.querySelectorAll("table.searchable tbody tr");
  let found = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !wanted.every((word) => text.includes(word));
    found += !row.hidden;
  }
  document.getElementById("matches").textContent = wanted.length ? `${found} of ${rows.length} lines` : "";
}

// Cells for a spreadsheet, as csv_tables.py writes them: figures without commas, and no text that would be a formula.
function csvCell(text, isText = false) {
  const words = plain(text.replaceAll("\n", " ").trim());
  const isFigure = PLAIN_FIGURE.test(words);
  if (isFigure && !isText) return words.replaceAll(",", "");
  if (words === "-") return "";
  const harmless = !isFigure && /^[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]/.test(words) ? `'${words}` : words;
  return /[",]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

// A long name is cut in its cell, and whole in its title.
function wholeText(cell) {
  return (cell.tagName === "TD" && cell.title) || cell.textContent;
}

function csvText(table) {
  const rows = [table.tHead.rows[0], ...[...table.tBodies].flatMap((body) => [...body.rows])];
  return rows.map((row) => `${[...row.cells].map((cell) => csvCell(wholeText(cell), cell.classList.contains("words"))).join(",")}\n`).join("");
}

// To the clipboard; where a browser or frame keeps that to itself, as a file.
async function copyCsv(table, status) {
  const text = csvText(table);
  try {
    await navigator.clipboard.writeText(text);
    status.textContent = "copied";
  } catch {
    saveAs(`${table.closest("details.section, section")?.id || "table"}.csv`, [text], "text/csv");
    status.textContent = "saved as a file";
  }
}

function makeCopyable(table) {
  const line = document.createElement("div");
  const [button, status] = [document.createElement("button"), document.createElement("span")];
  line.className = "copy";
  button.type = "button";
  button.textContent = "copy as CSV";
  status.setAttribute("role", "status");
  button.addEventListener("click", () => copyCsv(table, status));
  line.append(button, status);
  table.parentElement.after(line);
}

// Unfold what a link of this page leads to.
function reveal(id) {
  for (let element = document.getElementById(id); element; element = element.parentElement) {
    if (element.tagName === "DETAILS") element.open = true;
  }
}

function revealLinked() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link) reveal(link.hash.slice(1));
  });
  const arrive = () => {
    reveal(location.hash.slice(1));
    document.getElementById(location.hash.slice(1))?.scrollIntoView();
  };
  addEventListener("hashchange", arrive);
  arrive();
}

// Paper shows what is folded away on the screen.
function unfoldForPaper() {
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not(.read):not([open])")];
    folded.forEach((each) => (each.open = true));
  });
  addEventListener("afterprint", () => folded.forEach((each) => (each.open = false)));
}

function makeUnfoldable(button) {
  const sections = [...document.querySelectorAll("details.section")];
  button.hidden = false;
  button.addEventListener("click", () => {
    const open = sections.some((each) => !each.open);
    sections.forEach((each) => (each.open = open));
    button.textContent = open ? "close all" : "open all";
  });
}

function start() {
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  document.querySelectorAll("table.sortable").forEach(makeCopyable);
  revealLinked();
  unfoldForPaper();
  makeUnfoldable(document.getElementById("unfold"));
  document.querySelectorAll(".tools").forEach((each) => (each.hidden = false));
  document.getElementById("search").addEventListener("input", (event) => search(event.target.value));
  const save = document.getElementById("save");
  save.hidden = false;
  save.addEventListener("click", async () => {
    const name = document.title.replace(/[^\w.-]+/g, "-");
    saveAs(`${name}.json`, [await unpacked("report")], "application/json");
  });
}
start();
