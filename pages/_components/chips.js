// One chip a command: what was asked, and how far it has come. The words are the engineer's or the engine's: text only.

const MARKS = { queued: "○", accepted: "◐", applied: "✓", refused: "✗", withdrawn: "–" };

export default function ({ data, parentElement }) {
  const list = parentElement.querySelector(".chips");
  const known = new Map([...list.children].map((node) => [node.dataset.id, node]));
  data.chips.forEach((chip, index) => {
    const node = known.get(chip.id) ?? make(chip.id);
    known.delete(chip.id);
    const [mark, what, detail] = node.children;
    node.className = `chip ${chip.status}`;
    node.dataset.status = chip.status;
    put(mark, MARKS[chip.status] ?? "·");
    put(what, chip.what);
    put(detail, chip.detail);
    if (list.children[index] !== node) list.insertBefore(node, list.children[index] ?? null);
  });
  known.forEach((node) => node.remove());
}

function make(id) {
  const node = document.createElement("li");
  node.dataset.id = id;
  for (const [name, kind] of [["span", "mark"], ["b", "what"], ["span", "detail"]]) {
    node.appendChild(document.createElement(name)).className = kind;
  }
  node.children[0].setAttribute("aria-hidden", "true");
  return node;
}

function put(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
