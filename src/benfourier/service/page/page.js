import { bandChart, marginChart, scoreChart, short } from "/page/charts.js";

const MAX_RUNNING = 3; // images sent at once
const TAIL = 16; // letters at the end of a layer's name that are always shown
const byId = (id) => document.getElementById(id);
let guard = null;
let attacks = [];
let token = "";
let queue = [];
let running = 0;

async function call(path, options = {}) {
  const headers = { ...(options.headers || {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) byId("access").hidden = false;
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new Error(body.error || `the server answered ${response.status}`);
  }
  return response;
}

function element(name, attributes = {}, text = "") {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}

function showError(error) {
  byId("notice").textContent = error ? error.message : "";
  byId("notice").hidden = !error;
}

async function loadGuard() {
  guard = await (await call("/v1/guard")).json();
  const percent = (share) => `${Number((100 * share).toPrecision(2))} %`;
  const [low, high] = guard.interval;
  const drift = guard.drift;
  const words = {
    waiting: `waiting for images (${drift.scores} so far)`,
    steady: `as calibrated (KS distance ${short(drift.distance ?? 0)}, p ${short(drift.p ?? 1)}, last ${drift.scores} scores)`,
    changed: `no longer as calibrated (KS distance ${short(drift.distance ?? 0)}, p ${short(drift.p ?? 1)}, last ${drift.scores} scores)`,
  };
  const rows = [
    ["Detector", guard.detector],
    ["Threshold", short(guard.threshold)],
    ["False alarms", `${percent(guard.false_alarm_rate)} asked, ${percent(low)} to ${percent(high)} on ${guard.clean_images} clean images`],
    ["Stream", words[drift.state], drift.state],
  ];
  byId("facts").replaceChildren(...rows.map(([name, value, kind]) => {
    const row = element("div");
    row.append(element("dt", {}, name), element("dd", { class: kind || "" }, value));
    return row;
  }));
  await showCardLink();
  byId("size").textContent = guard.height > 0 ? `The network takes ${guard.height} × ${guard.width} pixels, ${guard.channels === 1 ? "grey" : "colour"}.` : "";
}

// A link bears no token: with one, the page asks for the card itself, once for each guard.
async function showCardLink() {
  const link = byId("guard-card");
  link.hidden = !guard.card;
  if (!guard.card || !token || link.dataset.version === guard.version) return;
  link.dataset.version = guard.version;
  link.href = URL.createObjectURL(await (await call("/card")).blob());
}

function newCard(name, state = "being judged …") {
  byId("empty").hidden = true;
  const card = byId("card").content.firstElementChild.cloneNode(true);
  card.querySelector(".name").textContent = name;
  card.querySelector(".verdict").textContent = state;
  card.querySelector(".charts").hidden = true;
  card.querySelector("details").hidden = true;
  byId("list").prepend(card);
  return card;
}

function addImage(file, sample, card = newCard(file.name)) {
  const picture = card.querySelector(".picture");
  picture.hidden = false;
  picture.addEventListener("load", () => picture.classList.toggle("small", picture.naturalWidth < 144));
  picture.src = URL.createObjectURL(file);
  picture.alt = file.name;
  return new Promise((done) => {
    queue.push(async () => {
      await judge(card, file, sample);
      done(card);
    });
    startNext();
  });
}

function startNext() {
  while (running < MAX_RUNNING && queue.length) {
    running += 1;
    queue.shift()().finally(() => { running -= 1; startNext(); });
  }
}

async function judge(card, file, sample) {
  const form = new FormData();
  form.append("images", file, file.name);
  try {
    const result = (await (await call("/v1/check", { method: "POST", body: form })).json()).results[0];
    showResult(card, result);
    if (sample !== undefined) addAttackButtons(card, sample);
    await loadGuard();
  } catch (error) {
    card.querySelector(".verdict").textContent = "not judged";
    card.querySelector(".score").textContent = error.message;
    byId("news").textContent = `${file.name}: not judged, ${error.message}`;
  }
}

function showResult(card, result) {
  const accepted = result.verdict === "accepted";
  const verdict = accepted ? "accepted" : `rejected, ${result.reason}`;
  const sign = result.score > result.threshold ? ">" : "≤";
  const label = result.class_name === String(result.label) ? result.class_name : `${result.class_name} (class ${result.label})`;
  card.classList.add(result.verdict);
  card.querySelector(".verdict").textContent = `${accepted ? "✓" : "✕"} ${verdict}`;
  card.querySelector(".label").textContent = accepted ? `The network says ${label}.` : `The network says ${label}, which is not to be trusted.`;
  card.querySelector(".score").textContent = `Score ${short(result.score)} ${sign} threshold ${short(result.threshold)}, p ${short(result.p_value)}`;
  if (result.reason === "unfamiliar") {
    const distance = result.unfamiliarity === null ? "infinite" : short(result.unfamiliarity);
    card.querySelector(".familiarity").textContent = `It is not like the images that the guard knows: distance ${distance} > ${short(result.most_unfamiliar)}. What follows is about its score as an attacked image.`;
  }
  card.querySelector(".charts").hidden = false;
  card.querySelector("details").hidden = false;
  card.querySelector(".scores").append(scoreChart(guard, result));
  if (guard.evidence === "margins") showMargins(card, result);
  else showLayers(card, result);
  card.querySelector(".scroll").append(table(result.evidence));
  byId("news").textContent = `${result.name}: ${verdict}, the network says ${label}, score ${short(result.score)}, threshold ${short(result.threshold)}`;
}

function showMargins(card, result) {
  card.querySelector(".layers figcaption").textContent = "By how much the predicted class leads, in the image and in changed views of it; clean images: mean ± deviation; red is more than two deviations below";
  card.querySelector(".bars").replaceWith(marginChart(result.evidence));
  card.querySelector(".spectrum").remove();
}

// The layers that raised the score come first.
function showLayers(card, result) {
  const layers = [...result.evidence].sort((one, other) => other.push - one.push);
  const spectral = guard.evidence === "spectrum";
  const what = spectral ? "layer" : "part";
  const count = layers.length > 1 ? ` (all ${layers.length}, largest first)` : "";
  card.querySelector(".layers figcaption").textContent = `By how much each ${what} raises the score${count}: the score falls by so much if the ${what} is as in clean images`;
  const most = Math.max(...layers.map((layer) => Math.abs(layer.push)), 1e-12);
  const figure = card.querySelector(".spectrum");
  const buttons = layers.map((layer) => {
    const push = `${layer.push > 0 ? "+" : ""}${short(Number(layer.push.toPrecision(3)))}`;
    const button = element("button", { type: "button", "aria-pressed": "false", "aria-label": `${layer.layer}, ${push}`, title: layer.layer, class: layer.push > 0 ? "odd" : "" });
    const rail = element("span", { class: "rail" }), fill = element("span", { class: "fill" });
    fill.style.width = `${(100 * Math.abs(layer.push)) / most}%`;
    rail.append(fill);
    button.append(layerName(layer.layer), rail, element("span", { class: "much" }, push));
    button.addEventListener("click", () => choose(layer, button));
    return button;
  });
  function choose(layer, button) {
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    const several = layer.values.length > 1;
    const numbers = spectral ? "Spectrum |â_n|" : "Numbers";
    const odd = `${short(Number(layer.oddness.toPrecision(3)))} deviations from clean images`;
    const caption = several ? `${numbers} of layer ${layer.layer}, ${odd}, over their mean ± deviation; red is more than two deviations away` : `${layer.layer}: ${short(layer.values[0])}; clean images ${short(layer.mean[0])} ± ${short(layer.deviation[0])}`;
    figure.replaceChildren(element("figcaption", {}, caption), ...(several ? [bandChart(layer, spectral ? "order n" : "number")] : []));
  }
  card.querySelector(".bars").append(...buttons.map((button) => {
    const item = element("li");
    item.append(button);
    return item;
  }));
  choose(layers[0], buttons[0]);
}

// A name whose end stays when it has too little room: names of layers differ at their ends.
function layerName(name) {
  const whole = element("span", { class: "where" });
  whole.append(element("span", { class: "start" }, name.slice(0, -TAIL)), element("span", { class: "end" }, name.slice(-TAIL)));
  return whole;
}

function table(evidence) {
  const whole = element("table");
  const head = element("tr");
  const count = Math.max(...evidence.map((layer) => layer.values.length));
  const column = { spectrum: (n) => `|â_${n}|`, margins: (n) => `margin ${n}`, numbers: (n) => `${n}` }[guard.evidence];
  const fixed = [guard.evidence === "margins" ? "view" : "layer", "raises the score by", "oddness"];
  head.append(...fixed.map((name) => element("th", { scope: "col" }, name)));
  for (let n = 1; n <= count; n += 1) head.append(element("th", { scope: "col" }, column(n)));
  whole.append(element("caption", { class: "unseen" }, "The image's numbers, layer by layer"), head);
  for (const layer of evidence) {
    const row = element("tr");
    row.append(element("th", { scope: "row" }, layer.layer), element("td", {}, short(layer.push)), element("td", {}, short(layer.oddness)), ...layer.values.map((value) => element("td", {}, short(value))));
    whole.append(row);
  }
  return whole;
}

function addAttackButtons(card, sample) {
  const buttons = attacks.map((attack) => {
    const button = element("button", { type: "button" }, `Attack with ${attack}`);
    button.addEventListener("click", () => runAttack(sample, attack, buttons));
    return button;
  });
  card.querySelector(".attacks").append(...buttons);
}

async function runAttack(sample, attack, buttons) {
  for (const button of buttons) button.disabled = true;
  const name = `sample ${sample.sample} after ${attack}.png`;
  const card = newCard(name), start = Date.now();
  const verdict = card.querySelector(".verdict");
  const showTime = () => { verdict.textContent = `${attack} is under way, ${Math.round((Date.now() - start) / 1000)} s …`; };
  const timer = setInterval(showTime, 1000);
  showTime();
  card.querySelector(".picture").hidden = true;
  card.classList.add("busy");
  card.scrollIntoView({ block: "nearest" });
  byId("news").textContent = `${attack} attacks sample ${sample.sample}, class ${sample.class_name}`;
  try {
    showError(null);
    const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ sample: sample.sample, attack }) };
    const result = await (await call("/v1/demo/attack", request)).json();
    if (!result.success) throw new Error(`${attack} found no 8-bit image near sample ${sample.sample} that misleads the network`);
    clearInterval(timer);
    verdict.textContent = "being judged …";
    const bytes = Uint8Array.from(atob(result.image), (letter) => letter.charCodeAt(0));
    card.querySelector(".attacks").append(element("span", { class: "hint" }, `class ${sample.class_name} attacked; no pixel moved by more than ${short(result.linf)}`));
    await addImage(new File([bytes], name, { type: "image/png" }), undefined, card);
  } catch (error) {
    card.remove();
    showError(error);
  }
  clearInterval(timer);
  card.classList.remove("busy");
  for (const button of buttons) button.disabled = false;
}

async function loadSamples() {
  const listing = await (await call("/v1/demo/samples")).json();
  attacks = listing.attacks;
  byId("source").textContent = `of ${listing.source}`;
  const items = await Promise.all(listing.samples.map(async (sample) => {
    const content = await (await call(`/v1/demo/samples/${sample.sample}`)).blob();
    const button = element("button", { type: "button", "aria-label": `Sample ${sample.sample}, class ${sample.class_name}` });
    const picture = element("img", { alt: "" });
    picture.src = URL.createObjectURL(content);
    button.append(picture, element("span", {}, sample.class_name));
    button.addEventListener("click", () => addImage(new File([content], `sample ${sample.sample}.png`, { type: "image/png" }), sample));
    const item = element("li");
    item.append(button);
    return item;
  }));
  byId("samples").replaceChildren(...items);
  byId("demo").hidden = false;
}

async function start() {
  try {
    await loadGuard();
    byId("access").hidden = true;
    showError(null);
    if (guard.demo) await loadSamples();
  } catch (error) {
    showError(error);
  }
}

byId("files").addEventListener("change", (event) => {
  for (const file of event.target.files) addImage(file);
  event.target.value = "";
});
byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  start();
});
const drop = byId("drop");
for (const kind of ["dragenter", "dragover"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  event.preventDefault();
  for (const file of event.dataTransfer.files) addImage(file);
});
window.addEventListener("dragover", (event) => event.preventDefault());
window.addEventListener("drop", (event) => event.preventDefault());
start();
