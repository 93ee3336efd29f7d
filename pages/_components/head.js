// The line that is always true: what the run is, how it is known, and when this page last heard from the dashboard.

const LATE_MS = 10_000; // ten ticks without a word: the page says so
const ICONS = {
  play: "M4.5,2.5 L13,8 L4.5,13.5 Z",
  pause: "M5,3 V13 M11,3 V13",
  check: "M2.5,8.5 L6.5,12.5 L13.5,4",
  cross: "M3.5,3.5 L12.5,12.5 M12.5,3.5 L3.5,12.5",
  wait: "M8,2 A6,6 0 1 1 7.99,2 M8,4.5 V8 L10.5,9.5",
  stop: "M3.5,3.5 H12.5 V12.5 H3.5 Z",
  alert: "M8,2 V9.5 M8,13.2 V13.3",
};
const views = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
  const view = views.get(parentElement) ?? mount(parentElement);
  if (view.tick !== data.tick) view.heard = performance.now();
  view.root.dataset.tick = data.tick;
  view.tick = data.tick;
  view.data = data;
  draw(view);
  if (view.version !== undefined && view.version !== data.version) setTriggerValue("changed", data.version);
  view.version = data.version;
}

function mount(parent) {
  const root = parent.querySelector(".head");
  const find = (name) => root.querySelector(`.${name}`);
  const parts = Object.fromEntries(["name", "run", "note", "state", "word", "evidence", "clock", "figures"].map((n) => [n, find(n)]));
  const view = { root, ...parts, icon: root.querySelector("path"), heard: performance.now(), cells: new Map() };
  const timer = setInterval(() => (root.isConnected ? clock(view) : clearInterval(timer)), 500);
  views.set(parent, view);
  return view;
}

function draw(view) {
  const { data } = view;
  put(view.name, data.name);
  put(view.run, data.run);
  put(view.note, data.note ?? "");
  view.note.hidden = !data.note;
  put(view.word, data.state);
  put(view.evidence, data.evidence);
  if (document.title !== data.title) document.title = data.title;
  view.evidence.title = data.evidence;
  view.icon.setAttribute("d", ICONS[data.icon] ?? ICONS.alert);
  view.state.className = `state ${data.tone}`;
  data.figures.forEach((figure) => drawFigure(view, figure));
  for (const [label, cell] of view.cells) {
    if (data.figures.some((figure) => figure.label === label)) continue;
    cell.root.remove();
    view.cells.delete(label);
  }
  clock(view);
}

function drawFigure(view, figure) {
  if (!view.cells.has(figure.label)) view.cells.set(figure.label, makeFigure(view.figures, figure.label));
  const cell = view.cells.get(figure.label);
  put(cell.value, figure.value);
  put(cell.more, figure.more ?? "");
  cell.root.title = figure.help ?? "";
  cell.bar.hidden = figure.part === undefined || figure.part === null;
  cell.fill.style.width = `${100 * Math.min(Math.max(figure.part ?? 0, 0), 1)}%`;
}

function makeFigure(parent, label) {
  const root = parent.appendChild(document.createElement("div"));
  put(root.appendChild(document.createElement("dt")), label);
  const line = root.appendChild(document.createElement("dd"));
  const value = line.appendChild(document.createElement("span"));
  const more = line.appendChild(document.createElement("small"));
  const bar = root.appendChild(document.createElement("div"));
  bar.className = "bar";
  return { root, value, more, bar, fill: bar.appendChild(document.createElement("i")) };
}

function clock(view) {
  if (!view.data.ticking) {
    view.clock.className = "clock";
    return put(view.clock, view.data.rest ?? "");
  }
  const silent = performance.now() - view.heard;
  const late = silent > (view.data.late_ms ?? LATE_MS);
  view.clock.className = late ? "clock stopped" : "clock";
  const since = new Date(Date.now() - silent).toLocaleTimeString([], { hour12: false });
  put(view.clock, late ? `not updating since ${since}` : `updated ${Math.round(silent / 1000)} s ago`);
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
