"use strict";
// Draws the tokens of #data, colours them by a measure, and shows the numbers of the token in hand.
addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });

const data = JSON.parse(document.getElementById("data").textContent);
const count = data.text.length;
const difference = data.difference;
const measures = {
  weight: { values: data.weight, bounds: data.bounds.weight, key: "weight" },
  difference: { values: difference.map((d) => (d === null ? null : Math.abs(d))), bounds: data.bounds.difference, key: "difference" },
  long: { values: data.long_nll, bounds: data.bounds.nll, key: "nll" },
  short: { values: data.short_nll, bounds: data.bounds.nll, key: "nll" },
};

// --- Text ---

const CHUNK_TOKENS = 400; // a chunk ends at the first line break after so many tokens,
const CHUNK_LIMIT = 1600; // or here: only chunks near the screen are laid out
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;
const text = document.getElementById("text");
const spans = [];

const MARKS = { "\n": "\u21b5", "\t": "\u21e5" }; // these keep their effect beside the mark
const codePoint = (character) => "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");

function mark(label) {
  const element = document.createElement("i");
  element.className = "mark";
  element.dataset.mark = label;
  return element;
}

// A token's text into `parent`: what cannot be seen gets a mark, which is not part of what is copied.
function write(parent, index, spaceMark = "") {
  const string = data.text[index];
  if (index in data.added) return parent.append(mark(data.added[index]));
  if (string === "") return parent.append(mark("\u25c2"));
  let plain = "";
  for (const character of string) {
    const label = MARKS[character] ?? (character === " " ? spaceMark : HIDDEN.test(character) ? codePoint(character) : "");
    if (label) {
      parent.append(plain, mark(label));
      plain = "";
    }
    if (!label || character in MARKS) plain += character;
  }
  parent.append(plain);
}

function draw() {
  let chunk = null;
  let size = 0;
  for (let i = 0; i < count; i++) {
    if (!chunk) {
      chunk = document.createElement("div");
      chunk.className = "chunk";
      size = 0;
    }
    const span = document.createElement("span");
    span.dataset.i = i;
    write(span, i);
    spans.push(span);
    chunk.append(span);
    size++;
    if ((size >= CHUNK_TOKENS && data.text[i].endsWith("\n")) || size >= CHUNK_LIMIT || i === count - 1) {
      text.append(chunk);
      chunk = null;
    }
  }
}

// --- Colours ---

let measure = "weight";

function level(value, bounds) {
  let found = 0;
  while (found < bounds.length && value > bounds[found]) found++;
  return found;
}

function colourClass(i) {
  const { values, bounds } = measures[measure];
  if (values[i] === null) return "t";
  if (measure !== "weight") return "t n" + level(values[i], bounds);
  return values[i] >= 1 ? "t a" + level(values[i], bounds) : "t b" + level(1 / values[i], bounds);
}

function colour() {
  spans.forEach((span, i) => { span.className = colourClass(i); });
  if (current !== null) spans[current].classList.add("current");
  for (const key of document.querySelectorAll(".key")) key.hidden = key.dataset.for !== measures[measure].key;
}

// --- The token in hand ---

let current = null;
const shown = Object.fromEntries(
  ["index", "weight", "long", "short", "difference", "pmi", "context", "before"].map((name) => [name, document.getElementById("value-" + name)]),
);

function fixed(value, signed) {
  if (value === null) return "\u2013";
  if (value > 0 && value < 0.001) return "<0.001";
  const digits = Math.abs(value).toFixed(3);
  const sign = value < 0 && Number(digits) !== 0 ? "\u2212" : signed && value > 0 ? "+" : "";
  return sign + digits;
}

function show(i) {
  const token = document.getElementById("token");
  token.replaceChildren();
  const box = document.createElement("span");
  box.className = colourClass(i);
  write(box, i, "\u2423");
  token.append(box);
  if (data.text[i] === "") {
    const note = document.createElement("span");
    note.className = "hint";
    note.textContent = i in data.added ? "  added by the tokenizer" : "  rest of the character before";
    token.append(note);
  }
  const d = difference[i];
  shown.index.textContent = i.toLocaleString("en");
  shown.weight.textContent = fixed(data.weight[i], false);
  shown.long.textContent = fixed(data.long_nll[i], false);
  shown.short.textContent = fixed(data.short_nll[i], false);
  shown.difference.textContent = fixed(d, true);
  shown.pmi.textContent = fixed(d === null ? null : -d, true);
  shown.context.textContent = data.short_context_tokens[i] === null ? "\u2013" : data.short_context_tokens[i].toLocaleString("en") + " tokens";
  shown.before.textContent = i.toLocaleString("en") + " tokens";
}

function take(i, scroll) {
  if (current !== null) {
    spans[current].classList.remove("current");
    spans[current].removeAttribute("tabindex");
  }
  current = i;
  const span = spans[i];
  span.classList.add("current");
  span.tabIndex = -1;
  span.focus({ preventScroll: true });
  if (scroll) {
    span.scrollIntoView({ block: scroll });
    // Chunks laid out on the way may have moved it.
    requestAnimationFrame(() => span.scrollIntoView({ block: scroll }));
  }
  show(i);
}

const tokenAt = (target) => {
  const span = target instanceof Element ? target.closest("#text .t") : null;
  return span ? Number(span.dataset.i) : null;
};

// Only where the pointer itself moves: text that scrolls under it after a jump takes nothing away from the token in hand.
let pointer = "";
text.addEventListener("pointermove", (event) => {
  const place = `${event.clientX} ${event.clientY}`;
  const i = tokenAt(event.target);
  if (place !== pointer && i !== null) show(i);
  pointer = place;
});
text.addEventListener("pointerleave", () => { if (current !== null) show(current); });
text.addEventListener("click", (event) => {
  const i = tokenAt(event.target);
  if (i !== null && getSelection().isCollapsed) take(i, null);
});

// --- The top tokens ---

const topInput = document.getElementById("top");
const rank = document.getElementById("rank");
const orders = {};

// The indices of the k highest of a measure, and their ranks.
function topTokens() {
  const { values } = measures[measure];
  orders[measure] ??= [...values.keys()].filter((i) => values[i] !== null).sort((a, b) => values[b] - values[a] || a - b);
  const k = Math.max(1, Math.min(orders[measure].length, Math.floor(Number(topInput.value)) || 1));
  return new Map(orders[measure].slice(0, k).map((i, place) => [i, place + 1]));
}

function jump(step) {
  const ranks = topTokens();
  const places = [...ranks.keys()].sort((a, b) => a - b);
  const from = current ?? (step > 0 ? -1 : count);
  const next = step > 0 ? places.find((i) => i > from) ?? places[0] : places.findLast((i) => i < from) ?? places.at(-1);
  take(next, "center");
  rank.textContent = `Rank ${ranks.get(next)} of ${ranks.size}`;
}

document.getElementById("next").addEventListener("click", () => jump(1));
document.getElementById("previous").addEventListener("click", () => jump(-1));
document.getElementById("measures").addEventListener("change", (event) => {
  measure = event.target.value;
  rank.textContent = "";
  colour();
  if (current !== null) show(current);
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
  if (event.key === "n" || event.key === "p") jump(event.key === "n" ? 1 : -1);
  else if (text.contains(event.target) && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
    const step = event.key === "ArrowRight" ? 1 : -1;
    take(current === null ? 0 : Math.max(0, Math.min(count - 1, current + step)), "nearest");
  } else return;
  event.preventDefault();
});

draw();
colour();
document.documentElement.dataset.drawn = String(count);
