import { bandChart, scoreChart, short } from "/page/charts.js";

const SEVERAL = 3; // images sent at a time
const find = (id) => document.getElementById(id);
let facts = null;
let attacks = [];
let token = "";
let waiting = [];
let underway = 0;

async function call(path, options = {}) {
  const headers = { ...(options.headers || {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { ...options, headers });
  if (answer.status === 401) find("access").hidden = false;
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Error(told.error || `the server answered ${answer.status}`);
  }
  return answer;
}

function made(name, attributes = {}, text = "") {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

function complain(error) {
  find("notice").textContent = error ? error.message : "";
  find("notice").hidden = !error;
}

async function learn() {
  facts = await (await call("/v1/guard")).json();
  const percent = (share) => `${Number((100 * share).toPrecision(2))} %`;
  const [low, high] = facts.interval;
  const drift = facts.drift;
  const words = {
    waiting: `waiting for images (${drift.scores} so far)`,
    steady: `as calibrated (KS distance ${short(drift.distance ?? 0)}, p ${short(drift.p ?? 1)}, last ${drift.scores} scores)`,
    changed: `no longer as calibrated (KS distance ${short(drift.distance ?? 0)}, p ${short(drift.p ?? 1)}, last ${drift.scores} scores)`,
  };
  const rows = [
    ["Detector", facts.detector],
    ["Threshold", short(facts.threshold)],
    ["False alarms", `${percent(facts.false_alarm_rate)} asked, ${percent(low)} to ${percent(high)} on ${facts.clean_images} clean images`],
    ["Stream", words[drift.state], drift.state],
  ];
  find("facts").replaceChildren(...rows.map(([name, value, kind]) => {
    const row = made("div");
    row.append(made("dt", {}, name), made("dd", { class: kind || "" }, value));
    return row;
  }));
  find("size").textContent = facts.height > 0 ? `The network takes ${facts.height} × ${facts.width} pixels, ${facts.channels === 1 ? "grey" : "colour"}.` : "";
}

function card(name) {
  find("empty").hidden = true;
  const fresh = find("card").content.firstElementChild.cloneNode(true);
  fresh.querySelector(".name").textContent = name;
  fresh.querySelector(".verdict").textContent = "being judged …";
  find("list").prepend(fresh);
  return fresh;
}

function show(file, sample) {
  const fresh = card(file.name);
  const picture = fresh.querySelector(".picture");
  picture.addEventListener("load", () => picture.classList.toggle("small", picture.naturalWidth < 144));
  picture.src = URL.createObjectURL(file);
  picture.alt = file.name;
  return new Promise((done) => {
    waiting.push(async () => {
      await judge(fresh, file, sample);
      done(fresh);
    });
    next();
  });
}

function next() {
  while (underway < SEVERAL && waiting.length) {
    underway += 1;
    waiting.shift()().finally(() => { underway -= 1; next(); });
  }
}

async function judge(fresh, file, sample) {
  const form = new FormData();
  form.append("images", file, file.name);
  try {
    const result = (await (await call("/v1/check", { method: "POST", body: form })).json()).results[0];
    tell(fresh, result);
    if (sample !== undefined) offer(fresh, sample);
    await learn();
  } catch (error) {
    fresh.querySelector(".verdict").textContent = "not judged";
    fresh.querySelector(".score").textContent = error.message;
    fresh.querySelector(".charts").hidden = true;
    fresh.querySelector("details").hidden = true;
    find("news").textContent = `${file.name}: not judged, ${error.message}`;
  }
}

function tell(fresh, result) {
  const accepted = result.verdict === "accepted";
  const label = result.class_name === String(result.label) ? result.class_name : `${result.class_name} (class ${result.label})`;
  fresh.classList.add(result.verdict);
  fresh.querySelector(".verdict").textContent = `${accepted ? "✓" : "✕"} ${result.verdict}`;
  fresh.querySelector(".label").textContent = accepted ? `The network says ${label}.` : `The network says ${label}, which is not to be trusted.`;
  fresh.querySelector(".score").textContent = `Score ${short(result.score)} ${accepted ? "≤" : ">"} threshold ${short(result.threshold)}`;
  fresh.querySelector(".scores").append(scoreChart(facts, result));
  layers(fresh, result);
  fresh.querySelector(".scroll").append(table(result.evidence));
  find("news").textContent = `${result.name}: ${result.verdict}, the network says ${label}, score ${short(result.score)}, threshold ${short(result.threshold)}`;
}

function layers(fresh, result) {
  const spectral = facts.evidence === "spectrum";
  const most = Math.max(...result.evidence.map((layer) => Math.min(layer.oddness, 50)), 3);
  const figure = fresh.querySelector(".spectrum");
  const buttons = result.evidence.map((layer) => {
    const button = made("button", { type: "button", "aria-pressed": "false", class: layer.oddness > 2 ? "odd" : "" });
    const rail = made("span", { class: "rail" }), fill = made("span", { class: "fill" });
    fill.style.width = `${(100 * Math.min(layer.oddness, most)) / most}%`;
    rail.append(fill);
    button.append(made("span", { class: "where", title: layer.layer }, layer.layer), rail, made("span", { class: "much" }, short(Number(layer.oddness.toPrecision(3)))));
    button.addEventListener("click", () => choose(layer, button));
    return button;
  });
  function choose(layer, button) {
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    const several = layer.values.length > 1;
    const what = spectral ? "Spectrum |â_n|" : "Numbers";
    const caption = several ? `${what} of layer ${layer.layer}, over the mean ± deviation of clean images; red is more than two deviations away` : `${layer.layer}: ${short(layer.values[0])}; clean images ${short(layer.mean[0])} ± ${short(layer.deviation[0])}`;
    figure.replaceChildren(made("figcaption", {}, caption), ...(several ? [bandChart(layer, spectral ? "order n" : "number")] : []));
  }
  fresh.querySelector(".bars").append(...buttons.map((button) => {
    const item = made("li");
    item.append(button);
    return item;
  }));
  const oddest = result.evidence.reduce((best, layer, place) => (layer.oddness > result.evidence[best].oddness ? place : best), 0);
  choose(result.evidence[oddest], buttons[oddest]);
}

function table(evidence) {
  const whole = made("table");
  const head = made("tr");
  const count = Math.max(...evidence.map((layer) => layer.values.length));
  head.append(made("th", { scope: "col" }, "layer"), made("th", { scope: "col" }, "oddness"));
  for (let n = 1; n <= count; n += 1) head.append(made("th", { scope: "col" }, facts.evidence === "spectrum" ? `|â_${n}|` : `${n}`));
  whole.append(made("caption", { class: "unseen" }, "The image's numbers, layer by layer"), head);
  for (const layer of evidence) {
    const row = made("tr");
    row.append(made("th", { scope: "row" }, layer.layer), made("td", {}, short(layer.oddness)), ...layer.values.map((value) => made("td", {}, short(value))));
    whole.append(row);
  }
  return whole;
}

function offer(fresh, sample) {
  const buttons = attacks.map((attack) => {
    const button = made("button", { type: "button" }, `Attack with ${attack}`);
    button.addEventListener("click", () => strike(sample, attack, buttons));
    return button;
  });
  fresh.querySelector(".attacks").append(...buttons);
}

async function strike(sample, attack, buttons) {
  for (const button of buttons) button.disabled = true;
  try {
    complain(null);
    const asked = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ sample: sample.sample, attack }) };
    const found = await (await call("/v1/demo/attack", asked)).json();
    if (!found.success) throw new Error(`${attack} found no 8-bit image near sample ${sample.sample} that misleads the network`);
    const bytes = Uint8Array.from(atob(found.image), (letter) => letter.charCodeAt(0));
    const fresh = await show(new File([bytes], `sample ${sample.sample} after ${attack}.png`, { type: "image/png" }));
    fresh.querySelector(".attacks").append(made("span", { class: "hint" }, `class ${sample.class_name} attacked; no pixel moved by more than ${short(found.linf)}`));
    fresh.scrollIntoView({ block: "nearest" });
  } catch (error) {
    complain(error);
  }
  for (const button of buttons) button.disabled = false;
}

async function samples() {
  const found = await (await call("/v1/demo/samples")).json();
  attacks = found.attacks;
  find("source").textContent = `of ${found.source}`;
  const items = await Promise.all(found.samples.map(async (sample) => {
    const content = await (await call(`/v1/demo/samples/${sample.sample}`)).blob();
    const button = made("button", { type: "button", "aria-label": `Sample ${sample.sample}, class ${sample.class_name}` });
    const picture = made("img", { alt: "" });
    picture.src = URL.createObjectURL(content);
    button.append(picture, made("span", {}, sample.class_name));
    button.addEventListener("click", () => show(new File([content], `sample ${sample.sample}.png`, { type: "image/png" }), sample));
    const item = made("li");
    item.append(button);
    return item;
  }));
  find("samples").replaceChildren(...items);
  find("demo").hidden = false;
}

async function start() {
  try {
    await learn();
    find("access").hidden = true;
    complain(null);
    if (facts.demo) await samples();
  } catch (error) {
    complain(error);
  }
}

find("files").addEventListener("change", (event) => {
  for (const file of event.target.files) show(file);
  event.target.value = "";
});
find("access").addEventListener("submit", (event) => {
  event.preventDefault();
  token = find("token").value.trim();
  start();
});
const drop = find("drop");
for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  for (const file of event.dataTransfer.files) show(file);
});
window.addEventListener("dragover", (event) => event.preventDefault());
window.addEventListener("drop", (event) => event.preventDefault());
start();
