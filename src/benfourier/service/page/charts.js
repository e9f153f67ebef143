// Charts as SVG, drawn with attributes and classes only, as the content security policy wants it.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 460;

export function short(value) {
  const size = Math.abs(value);
  return size >= 1e5 || (size > 0 && size < 1e-3) ? value.toExponential(2) : Number(value.toPrecision(4)).toString();
}

function draw(parent, name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function drawing(height, description) {
  const node = document.createElementNS(SVG, "svg");
  node.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
  node.setAttribute("role", "img");
  node.setAttribute("aria-label", description);
  return node;
}

// The clean images' scores as a histogram, the threshold, and this image's score.
export function scoreChart(guard, result) {
  const { edges, counts } = guard.clean_scores;
  const { score, threshold } = result;
  const isAbove = score > threshold;
  const mark = `mark-${isAbove ? "rejected" : "accepted"}`;
  const least = Math.min(edges[0], threshold), most = Math.max(edges[edges.length - 1], threshold);
  const room = Math.max((most - least) * 0.6, 1e-12);
  const low = Math.max(Math.min(least, score), least - room) - room * 0.08;
  const high = Math.min(Math.max(most, score), most + room) + room * 0.08;
  const floor = 122, top = 34, x = (value) => 12 + ((WIDTH - 24) * (value - low)) / (high - low);
  const sign = isAbove ? "above" : "at most";
  const svg = drawing(150, `The score ${short(score)} is ${sign} the threshold ${short(threshold)}; clean images have scores from ${short(edges[0])} to ${short(edges[edges.length - 1])}.`);
  const tall = Math.max(...counts, 1);
  counts.forEach((count, place) => {
    const height = ((floor - top) * count) / tall;
    const left = x(edges[place]);
    draw(svg, "rect", { class: "clean", x: left, y: floor - height, width: Math.max(x(edges[place + 1]) - left - 1, 1), height });
  });
  draw(svg, "line", { class: "axis", x1: 8, x2: WIDTH - 8, y1: floor, y2: floor });
  const limit = x(threshold);
  draw(svg, "line", { class: "limit", x1: limit, x2: limit, y1: top - 8, y2: floor });
  draw(svg, "text", { x: limit, y: 144, "text-anchor": anchor(limit) }, `threshold ${short(threshold)}`);
  const beyond = score > high ? 1 : score < low ? -1 : 0;
  const here = beyond > 0 ? WIDTH - 14 : beyond < 0 ? 14 : x(score);
  const tip = beyond ? `${here + 9 * beyond},70 ${here - 5 * beyond},62 ${here - 5 * beyond},78` : `${here},${floor} ${here - 7},${floor + 11} ${here + 7},${floor + 11}`;
  if (!beyond) draw(svg, "line", { class: mark, x1: here, x2: here, y1: 18, y2: floor, "stroke-width": 2.5 });
  draw(svg, "polygon", { class: mark, points: tip });
  draw(svg, "text", { class: "strong", x: here, y: 12, "text-anchor": anchor(here) }, `this image ${short(score)}`);
  return svg;
}

function anchor(x) {
  return x < 70 ? "start" : x > WIDTH - 70 ? "end" : "middle";
}

// One layer's numbers of this image over the clean images' mean ± deviation.
export function bandChart(layer, symbol) {
  const count = layer.values.length, floor = 176, top = 10, left = 44;
  const uppers = layer.mean.map((mean, n) => mean + layer.deviation[n]);
  const lowers = layer.mean.map((mean, n) => mean - layer.deviation[n]);
  const low = Math.min(0, ...layer.values, ...lowers), high = Math.max(...layer.values, ...uppers, 1e-9) * 1.05;
  const x = (n) => left + 10 + ((WIDTH - left - 20) * n) / Math.max(count - 1, 1);
  const y = (value) => floor - ((floor - top) * (value - low)) / (high - low);
  const outside = layer.values.map((value, n) => Math.abs(value - layer.mean[n]) > 2 * layer.deviation[n]);
  const far = outside.filter(Boolean).length;
  const svg = drawing(210, `Layer ${layer.layer}: ${far} of ${count} numbers lie more than two deviations from the mean of clean images.`);
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    const value = low + (high - low) * tick;
    draw(svg, "line", { class: "axis", x1: left, x2: WIDTH - 4, y1: y(value), y2: y(value) });
    draw(svg, "text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, Number(value.toPrecision(2)));
  }
  const points = (values) => values.map((value, n) => `${x(n)},${y(value)}`);
  draw(svg, "polygon", { class: "band", points: [...points(uppers), ...points(lowers).reverse()].join(" ") });
  draw(svg, "polyline", { class: "mean", points: points(layer.mean).join(" ") });
  draw(svg, "polyline", { class: "values", points: points(layer.values).join(" ") });
  layer.values.forEach((value, n) => {
    draw(svg, "circle", { class: outside[n] ? "outside" : "within", cx: x(n), cy: y(value), r: outside[n] ? 4 : 3 });
    if (count <= 20 || n % 4 === 3) draw(svg, "text", { class: n % 2 ? "few" : "", x: x(n), y: floor + 15, "text-anchor": "middle" }, n + 1);
  });
  draw(svg, "text", { x: (WIDTH + left) / 2, y: 207, "text-anchor": "middle" }, symbol);
  return svg;
}

// The first margin of the image and of each view: a dot over the clean images' mean ± deviation; below 0 stands another class.
export function marginChart(evidence) {
  const row = 40, top = 8, floor = top + row * evidence.length, edge = 10;
  const margins = evidence.map((view) => ({ name: view.layer, value: view.values[0], mean: view.mean[0], deviation: view.deviation[0] }));
  const ends = margins.flatMap(({ value, mean, deviation }) => [value, mean - deviation, mean + deviation]);
  const low = Math.min(0, ...ends), high = Math.max(0, ...ends, low + 1e-9);
  const x = (value) => edge + ((WIDTH - 2 * edge) * (value - low)) / (high - low);
  const words = margins.map(({ name, value, mean }) => `${name} ${short(value)}, clean images ${short(mean)}`);
  const svg = drawing(floor + 20, `Margin of the predicted class: ${words.join("; ")}.`);
  draw(svg, "line", { class: "limit", x1: x(0), x2: x(0), y1: top, y2: floor });
  draw(svg, "text", { x: x(0), y: floor + 14, "text-anchor": anchor(x(0)) }, low < 0 ? "← another class | 0" : "0");
  margins.forEach(({ name, value, mean, deviation }, place) => {
    const y = top + row * place, middle = y + 27, isFar = value < mean - 2 * deviation;
    draw(svg, "text", { class: "strong", x: edge, y: y + 13 }, shortenMiddle(name, 28));
    draw(svg, "text", { x: WIDTH - edge, y: y + 13, "text-anchor": "end" }, `${short(value)}; clean ${short(mean)} ± ${short(deviation)}`);
    draw(svg, "rect", { class: "clean", x: x(mean - deviation), y: middle - 6, width: Math.max(x(mean + deviation) - x(mean - deviation), 2), height: 12 });
    draw(svg, "line", { class: "mean", x1: x(mean), x2: x(mean), y1: middle - 6, y2: middle + 6 });
    draw(svg, "circle", { class: isFar ? "outside" : "within", cx: x(value), cy: middle, r: 5 });
  });
  return svg;
}

function shortenMiddle(text, most) {
  const end = Math.floor(most / 2);
  return text.length > most ? `${text.slice(0, most - end - 1)}…${text.slice(-end)}` : text;
}
