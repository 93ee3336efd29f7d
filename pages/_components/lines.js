// Figure 1, right: a figure made in Python, drawn with Plotly.react in one place that is never replaced.

const PLOTLY = new URL("app/static/plotly.min.js", document.baseURI).href;
const OPTIONS = { displaylogo: false, responsive: false, scrollZoom: false, displayModeBar: false, doubleClick: "reset" };
const views = new WeakMap();

export default function ({ data, parentElement, setTriggerValue }) {
  const view = views.get(parentElement) ?? mount(parentElement);
  view.send = setTriggerValue;
  view.data = data;
  view.root.style.height = `${data.height}px`;
  const text = JSON.stringify(data);
  if (text === view.drawn) return;
  view.drawn = text;
  load().then(() => draw(view)).catch((error) => {
    view.note.textContent = `The plot cannot be drawn: ${error.message}`;
  });
}

function mount(parent) {
  const root = parent.querySelector(".lines");
  const view = { root, plot: root.querySelector(".plot"), note: root.querySelector(".note"), listening: false };
  new ResizeObserver(() => {
    if (view.listening && view.plot.isConnected && view.plot.clientWidth) window.Plotly.Plots.resize(view.plot);
  }).observe(root);
  views.set(parent, view);
  return view;
}

function load() {
  window.mkevolvePlotly ??= new Promise((resolve, reject) => {
    if (window.Plotly) return resolve();
    const script = document.createElement("script");
    script.src = PLOTLY;
    script.onload = () => resolve();
    script.onerror = () => {
      window.mkevolvePlotly = undefined;
      reject(new Error(`no answer from ${PLOTLY}`));
    };
    document.head.appendChild(script);
  });
  return window.mkevolvePlotly;
}

async function draw(view) {
  const { figure, empty } = view.data;
  view.note.textContent = empty ?? "";
  // react keeps the objects it is given: it gets its own copy, so that the next comparison is honest
  const copy = structuredClone(figure);
  await window.Plotly.react(view.plot, copy.data, copy.layout, OPTIONS);
  if (view.listening) return;
  view.listening = true;
  view.plot.on("plotly_click", (event) => {
    const point = event.points?.find((one) => one.customdata);
    if (!event.points?.length) return view.send("picked", { ids: [] });
    if (!point) return;
    const id = point.customdata;
    const known = view.data.selected;
    const more = event.event?.shiftKey && !known.includes(id);
    view.send("picked", { ids: more ? [...known, id] : [id] });
  });
}
