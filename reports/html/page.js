"use strict";
// Sorts tables, and opens for a cell what its number was made from; all of it is in #data.
addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });

const data = JSON.parse(document.getElementById("data").textContent);

// An element with attributes and children; texts stay texts.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

// --- Tables ---

const ORDERS = ["descending", "ascending", "none"]; // what a further press on a heading gives

// Rows by the column at `index`; what has no value stays last. "none": as in the paper.
function sortRows(table, index, order) {
  const body = table.tBodies[0];
  table.original ??= [...body.rows];
  const key = (row) => row.cells[index].dataset.sort;
  const compare = (a, b) => (index === 0 ? a.localeCompare(b, "en", { numeric: true }) : Number(a) - Number(b));
  const filled = table.original.filter((row) => key(row) !== "");
  const empty = table.original.filter((row) => key(row) === "");
  if (order !== "none") filled.sort((a, b) => (order === "ascending" ? 1 : -1) * compare(key(a), key(b)));
  body.append(...(order === "none" ? table.original : [...filled, ...empty]));
  table.classList.toggle("sorted", order !== "none");
  [...table.querySelector(".headings").cells].forEach((heading, i) => heading.setAttribute("aria-sort", i === index ? order : "none"));
}

for (const table of document.querySelectorAll(".headings")) {
  [...table.cells].forEach((heading, index) => {
    heading.querySelector("button").addEventListener("click", () => {
      const orders = index === 0 ? ["ascending", "descending", "none"] : ORDERS;
      const next = orders[(orders.indexOf(heading.getAttribute("aria-sort")) + 1) % orders.length];
      sortRows(table.closest("table"), index, next);
    });
  });
}

for (const tools of document.querySelectorAll(".tools")) {
  const table = tools.parentElement.querySelector("table");
  const apply = () => {
    for (const box of tools.querySelectorAll("input")) table.classList.toggle("show-" + box.name, box.checked);
  };
  tools.addEventListener("change", apply);
  apply(); // a browser may remember what was checked
}

// --- The panel ---

const panel = document.getElementById("panel");
const panelBody = document.getElementById("panel-body");

for (const button of document.querySelectorAll("[data-cell]")) {
  button.addEventListener("click", () => open(data.cells[Number(button.dataset.cell)]));
}
panel.addEventListener("click", (event) => { if (event.target === panel) panel.close(); });

function open(cell) {
  panelBody.replaceChildren(...cellParts(cell));
  panel.showModal();
  panelBody.focus({ preventScroll: true });
  panelBody.scrollTop = 0;
}

function cellParts(cell) {
  const units = cell.units.map((number) => data.artifacts[number]);
  return [
    make("p", { class: "over" }, cell.row),
    make("h2", { id: "panel-title" }, cell.column),
    make("p", { class: "big" }, cell.value),
    facts(Object.entries(cell.facts)),
    ...cell.notes.map((note) => make("p", { class: "note" }, note)),
    cell.unread ? make("p", { class: "note" }, `${cell.unread} records could not be read.`) : null,
    heading("Reproduce it"),
    make("pre", { class: "command" }, data.commands[cell.section]),
    make("p", { class: "hint" }, "Add --store and --out if yours are elsewhere. What the store holds is not computed again."),
    ...samplesOf(units),
    ...unitsOf(units, cell),
    ...runOf(units),
    ...modelOf(units),
    ...recipeOf(cell.recipe),
  ].filter((part) => part !== null);
}

const heading = (text) => make("h3", {}, text);

function facts(entries) {
  return make("dl", { class: "facts" }, ...entries
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// Details whose content is made when they are opened for the first time.
function lazily(summary, content, attributes = {}) {
  const element = make("details", attributes, make("summary", {}, ...[summary].flat()));
  element.addEventListener("toggle", () => { if (element.children.length === 1) element.append(...content()); }, { once: true });
  return element;
}

// Seed and task of an evaluation, as in "seed 2, ruler/vt/4096"; of other artifacts the address.
const nameOf = ({ seed, unit, address }) => [seed === null ? "" : `seed ${seed}`, unit ?? address].filter(Boolean).join(", ");

// --- Samples ---

function samplesOf(units) {
  const having = units.filter((unit) => unit.samples.length);
  if (!having.length) return [];
  const shown = make("div", { id: "samples" });
  const show = (unit) => {
    const names = unit.samples.length > 1 ? ["Lowest", "Highest"] : ["First"];
    shown.replaceChildren(...unit.samples.map((sample, i) => sampleView(sample, names[i])));
  };
  const choice = make("select", { "aria-label": "Unit" }, ...having.map((unit, i) => make("option", { value: i }, nameOf(unit))));
  // Where some unit has a sample that failed and one that did not, that one is shown first.
  const first = Math.max(0, having.findIndex((unit) => unit.samples.length > 1));
  choice.value = first;
  choice.addEventListener("change", () => show(having[Number(choice.value)]));
  show(having[first]);
  const left = data.samplesLeftOut ? " Some units have none here: a page holds a limited amount." : "";
  return [
    heading("Samples"),
    make("p", { class: "hint" }, `Of each unit the first sample with the lowest score and the first with the highest.${left}`),
    make("p", {}, choice),
    shown,
  ];
}

function sampleView(sample, name) {
  const kind = sample.score === 1 ? "Right" : sample.score === 0 ? "Wrong" : name;
  const parts = [
    make("h4", {}, `${kind}: sample ${sample.doc_id}, ${sample.metric} ${rounded(sample.score)}`),
    quoted("Reference", sample.reference),
    quoted(sample.metric === "acc" ? "Output: log-likelihood of each choice" : "Output", sample.output),
  ];
  if (sample.filtered.join() !== sample.output.join()) parts.push(quoted("Compared", sample.filtered));
  const length = `${grouped(sample.n_prompt_tokens)} tokens${sample.truncated ? ", cut to fit" : ""}`;
  if ("prompt" in sample) parts.push(quoted(`Prompt (${length})`, data.prompts[sample.prompt]));
  parts.push(make("p", { class: "hint" }, ("prompt" in sample ? "" : `Prompt of ${length}, not stored. `) + `SHA-256 of the prompt: ${sample.prompt_sha256}`));
  return make("div", { class: "sample" }, ...parts);
}

function quoted(label, [head, leftOut, tail]) {
  const text = make("pre", { dir: "auto" }, head === "" ? make("i", {}, "empty") : head);
  if (leftOut) text.append(make("i", {}, ` … ${grouped(leftOut)} characters … `), tail);
  return make("div", { class: "quoted" }, make("p", {}, label), text);
}

// --- Records ---

function unitsOf(units, cell) {
  if (!units.length) return [];
  const held = units.reduce((sum, unit) => sum + (Number(unit.facts?.n) || 0), 0);
  const part = cell.samples && cell.samples < held ? `The number is over ${grouped(cell.samples)} of the ${grouped(held)} samples that these units hold: those of its lengths.` : null;
  return [
    heading(`${units.length} evaluation unit${units.length === 1 ? "" : "s"} behind it`),
    part && make("p", { class: "hint" }, part),
    make("div", { class: "list" }, ...units.map((unit) => {
      const known = unit.facts ?? {};
      const flags = Array.isArray(known.flags) && known.flags.length ? make("span", { class: "flag" }, known.flags.join(", ")) : null;
      return lazily([
        make("span", {}, nameOf(unit)),
        make("span", { class: "hint" }, `n ${known.n ?? "–"}, mean ${rounded(known.mean_score)}`),
        ...(flags ? [flags] : []),
      ], () => [recordView(unit)]);
    })),
  ];
}

function recordView(artifact) {
  const links = Object.entries(artifact.inputs).map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, typeof value === "number" ? data.artifacts[value].address : value)));
  const view = make("div", { class: "record" },
    facts([
      ["Record", `${artifact.address}/record.json`],
      ["Fingerprint", artifact.fingerprint],
      ["Stage", `${artifact.stage}, version ${artifact.stage_version}`],
      ["Started", moment(artifact.started)],
      ["Wall time", seconds(artifact.wall_seconds)],
      ["Devices", json(data.parts[artifact.devices])],
      ["Commit", commit(data.parts[artifact.git])],
      ["Peak memory", memory(data.parts[artifact.peak_memory_bytes])],
    ]),
    links.length ? make("h4", {}, "Made from") : null,
    links.length ? make("dl", { class: "digests" }, ...links) : null,
    make("h4", {}, "Found"),
    tree(artifact.facts),
    make("h4", {}, "Settings and data digests"),
    tree(data.parts[artifact.config]),
    make("h4", {}, "Versions"),
    make("p", {}, versions(data.parts[artifact.versions])),
    make("h4", {}, "SHA-256 of its files"),
    tree(artifact.outputs),
  );
  return view;
}

const tree = (value) => make("pre", { class: "tree" }, JSON.stringify(value, null, 1) ?? "–");

// What all units have in common, and where they do not.
function runOf(units) {
  if (!units.length) return [];
  const distinct = (text) => [...new Set(units.map(text))].filter((one) => one !== "").join("; ");
  const started = units.map((unit) => String(unit.started ?? "")).filter(Boolean).sort();
  const total = units.reduce((sum, unit) => sum + (Number(unit.wall_seconds) || 0), 0);
  return [
    heading("Evaluated by"),
    facts([
      ["Commit", distinct((unit) => commit(data.parts[unit.git]))],
      ["Devices", distinct((unit) => json(data.parts[unit.devices]))],
      ["Wall time of these units", seconds(total)],
      ["Started", [...new Set([started[0], started.at(-1)].map(moment))].join(" to ")],
    ]),
    make("p", { class: "hint" }, distinct((unit) => versions(data.parts[unit.versions]))),
  ];
}

// The model, and what it was made from.
function modelOf(units) {
  const found = new Set();
  const unknown = new Set();
  const follow = (artifact) => {
    for (const [name, value] of Object.entries(artifact.inputs)) {
      if (name === "prepared") continue; // each unit's own, see its record
      if (typeof value !== "number") unknown.add(`${name} ${value}`);
      else if (!found.has(value)) {
        found.add(value);
        follow(data.artifacts[value]);
      }
    }
  };
  units.forEach(follow);
  if (!found.size && !unknown.size) return [];
  return [
    heading("Model and what it was made from"),
    make("div", { class: "list" }, ...[...found].map((number) => {
      const artifact = data.artifacts[number];
      return lazily([make("span", {}, nameOf(artifact)), make("span", { class: "hint" }, seconds(artifact.wall_seconds))], () => [recordView(artifact)]);
    })),
    ...[...unknown].map((text) => make("p", { class: "hint" }, `Given, known by its content: ${text}`)),
  ];
}

function recipeOf(name) {
  const recipe = data.recipes[name];
  if (!recipe) return [];
  const rows = () => recipe.settings.map((number) => {
    const [key, value, origin] = data.parts[number];
    return make("tr", {}, make("th", { scope: "row" }, key), make("td", {}, json(value)), make("td", {}, origin));
  });
  const head = () => make("thead", {}, make("tr", {}, ...["Setting", "Value", "Origin"].map((text) => make("th", { scope: "col" }, text))));
  return [
    heading("Recipe"),
    make("div", { class: "list" }, lazily([make("span", {}, name), make("span", { class: "hint" }, `${recipe.settings.length} settings and their origins`)], () => [
      make("pre", { class: "command" }, recipe.command),
      make("div", { class: "scroll" }, make("table", { class: "words" }, head(), make("tbody", {}, ...rows()))),
    ])),
  ];
}

// --- Words ---

const json = (value) => (typeof value === "string" ? value : Array.isArray(value) && value.every((one) => typeof one === "string") ? value.join(", ") : JSON.stringify(value) ?? "");
const grouped = (value) => (typeof value === "number" ? value.toLocaleString("en") : "–");
const rounded = (value) => (typeof value === "number" ? String(Number(value.toFixed(4))) : "–");

const moment = (text) => String(text ?? "").replace("T", " ").replace("+00:00", " UTC");

function commit(git) {
  if (!git?.commit) return "not known";
  return String(git.commit).slice(0, 12) + (git.dirty ? " with uncommitted changes" : "");
}

function versions(value) {
  return value && typeof value === "object" ? Object.entries(value).map(([name, version]) => `${name} ${version}`).join(", ") : "";
}

function memory(value) {
  if (!value || typeof value !== "object") return "";
  return Object.entries(value).map(([where, bytes]) => `${where} ${(Number(bytes) / 2 ** 30).toFixed(2)} GiB`).join(", ");
}

function seconds(value) {
  if (typeof value !== "number") return "";
  return value < 120 ? `${Number(value.toFixed(1))} s` : value < 7200 ? `${(value / 60).toFixed(1)} min` : `${(value / 3600).toFixed(1)} h`;
}

document.documentElement.dataset.ready = String(data.cells.length);
