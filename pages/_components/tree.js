// Figure 1, left: a column per iteration, a lane per subproblem, the end-to-end row on top.
// Labels come from files that nobody vouches for: they reach the page as text nodes only.

const SVG = "http://www.w3.org/2000/svg";
const GUTTER = 24;
const PAD = 5;
const ROWS = [46, 54]; // a lane's height: as much as there is room for
const BOX = 38;
const HEAD = 20;
const NARROWEST = 116;
const LOCAL_MS = 1500; // how long a click shows before the server has answered

const views = new WeakMap();
const pen = document.createElement("canvas").getContext("2d");

export default function ({ data, parentElement, setTriggerValue }) {
  const view = views.get(parentElement) ?? mount(parentElement);
  view.send = setTriggerValue;
  view.data = data;
  if (view.local && (view.local.until < Date.now() || same(view.local.ids, data.selected))) view.local = null;
  draw(view);
}

function mount(parent) {
  const root = parent.querySelector(".tree");
  const view = { root, local: null, shapes: new Map(), focus: null, columns: 0, width: 0 };
  view.empty = root.querySelector(".empty");
  view.scroll = root.querySelector(".scroll");
  view.head = root.querySelector(".head");
  view.body = root.querySelector(".body");
  view.live = root.querySelector(".live");
  root.addEventListener("click", (event) => click(view, event));
  root.addEventListener("keydown", (event) => key(view, event));
  new ResizeObserver(() => {
    if (view.data && Math.abs(root.clientWidth - view.width) > 1) draw(view);
  }).observe(root);
  views.set(parent, view);
  return view;
}

// ---- drawing: every shape is made once and changed in place afterwards

function draw(view) {
  const { data, root } = view;
  view.width = root.clientWidth;
  root.style.height = `${data.height}px`;
  view.empty.textContent = data.empty ?? "";
  view.empty.hidden = !data.empty;
  const count = Math.max(data.columns.length, 1);
  const fit = (view.width - 2 * PAD - (count - 1) * GUTTER) / count;
  view.box = Math.max(NARROWEST, fit);
  const width = 2 * PAD + count * view.box + (count - 1) * GUTTER;
  const room = (data.height - HEAD - BOX - 16) / Math.max(data.lanes, 1);
  view.row = Math.min(Math.max(room, ROWS[0]), ROWS[1]);
  size(view.head, width, HEAD + BOX + 14);
  size(view.body, width, Math.max(data.lanes, 1) * view.row + 2);
  const used = new Set();
  data.columns.forEach((column, index) => drawColumn(view, column, index, used));
  data.edges.forEach((edge) => drawEdge(view, edge, used));
  data.boxes.forEach((box) => drawBox(view, box, used));
  for (const [id, shape] of view.shapes) {
    if (!used.has(id)) {
      shape.node.remove();
      view.shapes.delete(id);
    }
  }
  if (view.live.textContent !== data.announce) view.live.textContent = data.announce;
  if (view.columns !== data.newest) view.scroll.scrollLeft = view.scroll.scrollWidth;
  view.columns = data.newest;
  tabStops(view);
}

function size(svg, width, height) {
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
}

function shapeOf(view, id, used, make) {
  used.add(id);
  let shape = view.shapes.get(id);
  if (!shape) {
    shape = make();
    view.shapes.set(id, shape);
  }
  return shape;
}

function drawColumn(view, column, index, used) {
  const shape = shapeOf(view, `column ${column.iteration}`, used, () => {
    const node = add(view.head, "g", { class: "column" });
    return { node, label: add(node, "text", { y: 12 }), slot: add(node, "rect", { rx: 14, height: BOX }) };
  });
  const x = left(view, index);
  shape.node.classList.toggle("planned", column.planned);
  set(shape.label, { x: x + 2 });
  put(shape.label, column.label);
  set(shape.slot, { x, y: HEAD, width: view.box });
}

function drawEdge(view, edge, used) {
  const shape = shapeOf(view, `edge ${edge.from} ${edge.to}`, used, () => {
    const node = add(view.body, "path", { class: `edge ${edge.kind}` });
    view.body.insertBefore(node, view.body.firstChild);
    return { node };
  });
  const [from, to] = [place(view, edge.from), place(view, edge.to)];
  if (!from || !to) return;
  const [x1, y1, x2, y2] = [from.x + view.box, from.y + BOX / 2, to.x - 1, to.y + BOX / 2];
  const bend = Math.max(12, (x2 - x1) / 2);
  set(shape.node, { d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}` });
}

function drawBox(view, box, used) {
  const whole = box.lane < 0;
  const shape = shapeOf(view, box.id, used, () => makeBox(whole ? view.head : view.body, whole));
  const { x, y } = place(view, box.id);
  const chosen = (view.local?.ids ?? view.data.selected).includes(box.id);
  shape.node.dataset.id = box.id;
  const marks = [box.state, box.estimated && "estimated", whole && "whole", chosen && "chosen", box.busy && "busy"];
  const classes = ["box", ...marks].filter(Boolean).join(" ");
  if (shape.node.getAttribute("class") !== classes) shape.node.setAttribute("class", classes);
  set(shape.node, { transform: `translate(${x},${y})`, "aria-label": box.sentence, "aria-selected": chosen });
  put(shape.tip, box.sentence);
  set(shape.ring, { width: view.box + 6 });
  set(shape.frame, { width: view.box });
  set(shape.inner, { width: Math.max(view.box - 6, 0) });
  put(shape.glyph, box.glyph);
  const tail = (box.pinned ? 16 : 0) + (box.swapped ? 16 : 0);
  put(shape.title, clip(box.title, view.box - 30 - tail, "500 12.5px"));
  put(shape.word, clip(box.word, view.box - 30, "600 12.5px"));
  drawMarks(shape, box, view.box);
  drawShares(shape, box, view.box);
}

function makeBox(svg, whole) {
  const node = add(svg, "g", { class: "box", role: "treeitem", tabindex: -1 });
  const radius = whole ? 14 : 6;
  return {
    node,
    tip: add(node, "title"),
    ring: add(node, "rect", { class: "ring", x: -3, y: -3, height: BOX + 6, rx: radius + 3 }),
    frame: add(node, "rect", { class: "frame", height: BOX, rx: radius }),
    inner: add(node, "rect", { class: "inner", x: 3, y: 3, height: BOX - 6, rx: Math.max(radius - 3, 2) }),
    strip: add(node, "path", { class: "strip", d: strip(radius) }),
    glyph: add(node, "text", { class: "glyph", x: 15.5, y: 24 }),
    title: add(node, "text", { class: "title", x: 25, y: 15.5 }),
    word: add(node, "text", { class: "word", x: 25, y: 30.5 }),
    lock: add(node, "path", { class: "lock", d: "M2.5,5.5 v-2 a2.5,2.5 0 0 1 5,0 v2 M1.2,5.5 h7.6 v5.6 h-7.6 z" }),
    swap: add(node, "path", { class: "swap", d: "M0,3.5 h9 m-2.6,-2.6 l2.6,2.6 l-2.6,2.6 M11,8.5 h-9 m2.6,-2.6 l-2.6,2.6 l2.6,2.6" }),
    shares: add(node, "g", { class: "shares" }),
  };
}

function strip(radius) {
  const wide = 5;
  const cut = radius - Math.sqrt(radius ** 2 - (radius - wide) ** 2);
  const arc = `A${radius},${radius} 0 0 0`;
  return `M${wide},${cut} ${arc} 0,${radius} V${BOX - radius} ${arc} ${wide},${BOX - cut} Z`;
}

function drawMarks(shape, box, width) {
  shape.lock.style.display = box.pinned ? "" : "none";
  shape.swap.style.display = box.swapped ? "" : "none";
  set(shape.lock, { transform: `translate(${width - 16},4)` });
  set(shape.swap, { transform: `translate(${width - (box.pinned ? 33 : 17)},5)` });
}

function drawShares(shape, box, width) {
  const shares = box.shares ?? [];
  while (shape.shares.childNodes.length > shares.length) shape.shares.lastChild.remove();
  while (shape.shares.childNodes.length < shares.length) add(shape.shares, "rect", { y: BOX + 3, height: 4 });
  let x = 10;
  shares.forEach((share, index) => {
    const long = share.part * (width - 20);
    set(shape.shares.childNodes[index], { x, width: Math.max(long - 1, 0.5), fill: share.color });
    x += long;
  });
}

// ---- places

function left(view, index) {
  return PAD + index * (view.box + GUTTER);
}

function place(view, id) {
  const box = view.data.boxes.find((one) => one.id === id);
  if (!box) return null;
  const index = view.data.columns.findIndex((column) => column.iteration === box.iteration);
  return { x: left(view, index), y: box.lane < 0 ? HEAD : PAD + box.lane * view.row };
}

function clip(text, room, font) {
  pen.font = `${font} "Source Sans", system-ui, sans-serif`;
  if (pen.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (pen.measureText(text.slice(0, middle) + "…").width <= room) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low).trimEnd() + "…";
}

// ---- choosing

function click(view, event) {
  const box = event.target.closest?.("[data-id]");
  if (box) choose(view, box.dataset.id, event.shiftKey);
  else choose(view, null, false);
}

function choose(view, id, more) {
  const known = view.local?.ids ?? view.data.selected;
  let ids = id ? [id] : [];
  if (more && id) ids = known.includes(id) ? known.filter((one) => one !== id) : [...known, id];
  if (same(ids, known)) return;
  view.local = { ids, until: Date.now() + LOCAL_MS };
  view.focus = id ?? view.focus;
  draw(view);
  view.send("picked", { ids });
}

function same(one, other) {
  return one.length === other.length && one.every((id, index) => id === other[index]);
}

function key(view, event) {
  const here = view.data.boxes.find((box) => box.id === event.target.dataset?.id);
  const moves = {
    ArrowLeft: () => aside(view, here, -1),
    ArrowRight: () => aside(view, here, +1),
    ArrowUp: () => upright(view, here, -1),
    ArrowDown: () => upright(view, here, +1),
    Home: () => edgeOf(view, here, +1),
    End: () => edgeOf(view, here, -1),
  };
  if (event.key === "Enter" && here) choose(view, here.id, event.shiftKey);
  else if (event.key === "Escape") choose(view, null, false);
  else if (moves[event.key] && here) focusOn(view, moves[event.key]());
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function columnsOf(view, direction) {
  const all = [...new Set(view.data.boxes.map((box) => box.iteration))].sort((a, b) => a - b);
  return direction > 0 ? all : all.reverse();
}

function nearest(view, iteration, lane) {
  const column = view.data.boxes.filter((box) => box.iteration === iteration);
  return column.sort((a, b) => Math.abs(a.lane - lane) - Math.abs(b.lane - lane))[0];
}

function aside(view, here, step) {
  const columns = columnsOf(view, step);
  const next = columns[columns.indexOf(here.iteration) + 1];
  return next === undefined ? here : nearest(view, next, here.lane);
}

function upright(view, here, step) {
  const column = view.data.boxes.filter((box) => box.iteration === here.iteration && (box.lane - here.lane) * step > 0);
  return column.sort((a, b) => (a.lane - b.lane) * step)[0] ?? here;
}

function edgeOf(view, here, direction) {
  return nearest(view, columnsOf(view, direction)[0], here.lane);
}

function focusOn(view, box) {
  view.focus = box.id;
  tabStops(view);
  view.shapes.get(box.id)?.node.focus();
}

function tabStops(view) {
  const ids = view.data.boxes.map((box) => box.id);
  const stop = [view.focus, ...view.data.selected, ids.at(-1)].find((id) => ids.includes(id));
  for (const id of ids) set(view.shapes.get(id).node, { tabindex: id === stop ? 0 : -1 });
}

// ---- the document

function add(parent, name, attributes = {}) {
  const node = document.createElementNS(SVG, name);
  set(node, attributes);
  parent.appendChild(node);
  return node;
}

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text = String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
