// The tab: a list of runs on the left, the chosen one's report on the right. The server has escaped what is HTML.
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
  let wanted = null;

  async function show(run, button) {
    wanted = run.key;
    for (const other of nav.querySelectorAll("button")) other.setAttribute("aria-current", other === button);
    main.textContent = `Reading ${run.name} ...`;
    try {
      const answer = await fetch(at(`report?run=${encodeURIComponent(run.key)}`));
      const words = await answer.text();
      if (wanted !== run.key) return;
      if (answer.ok) main.innerHTML = words;
      else main.textContent = `${run.name}: ${words}`;
    } catch (error) {
      if (wanted === run.key) main.textContent = `${run.name}: TensorBoard does not answer (${error.message})`;
    }
  }

  const runs = await (await fetch(at("runs"))).json();
  if (!runs.length) main.textContent = "No recorded run (a folder with a run.json) lies in this log directory.";
  for (const run of runs) {
    const button = made("button", run.name, nav);
    if (run.is_sweep) made("small", " sweep", button);
    button.addEventListener("click", () => show(run, button));
  }
  const first = nav.querySelector("button");
  if (first) first.click();
}
