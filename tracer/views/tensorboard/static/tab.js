// The tab: a list of runs on the left, the chosen one's own page on the right, in a frame that is of no origin.
const at = (name) => new URL(name, document.baseURI);

function follow(look) {
  // TensorBoard's own choice of light or dark; the reader's where it cannot be seen.
  let body = null;
  try { body = window.parent.document.body; } catch (error) { body = null; }
  const wants = window.matchMedia("(prefers-color-scheme: dark)");
  const set = () => look.toggle("dark", body ? body.classList.contains("dark-mode") : wants.matches);
  if (body) new MutationObserver(set).observe(body, { attributes: true, attributeFilter: ["class"] });
  wants.addEventListener("change", set);
  set();
}

function made(tag, words, parent) {
  const element = document.createElement(tag);
  element.textContent = words;
  parent.append(element);
  return element;
}

export async function render() {
  follow(document.documentElement.classList);
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = at("tab.css");
  document.head.append(style);
  const tab = made("div", "", document.body);
  tab.id = "tab";
  const nav = made("nav", "", tab);
  const main = made("main", "", tab);

  function show(run, button) {
    for (const other of nav.querySelectorAll("button")) other.setAttribute("aria-current", other === button);
    main.textContent = "";
    const reading = made("p", `Reading ${run.name} ...`, main);
    const frame = document.createElement("iframe");
    // Its scripts run and it may save files, but it sees nothing of TensorBoard.
    frame.sandbox = "allow-scripts allow-downloads";
    frame.title = run.name;
    frame.addEventListener("load", () => reading.remove());
    frame.src = at(`report?run=${encodeURIComponent(run.key)}`);
    main.append(frame);
  }

  const runs = await (await fetch(at("runs"))).json();
  if (!runs.length) made("p", "No recorded run (a folder with a run.json) lies in this log directory.", main);
  for (const run of runs) {
    const button = made("button", run.name, nav);
    if (run.is_sweep) made("small", " sweep", button);
    button.addEventListener("click", () => show(run, button));
  }
  const first = nav.querySelector("button");
  if (first) first.click();
}
