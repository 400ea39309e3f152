"use strict";
/* The page of a sample's deletion curves. Everything it knows stands in the JSON element #data (curves_page.py):
 *   tokens   display text of the tokens of the input
 *   gold     1 at the tokens of the evidence
 *   methods  [{label, scores, order, masked, logProbs, response, rise}]: scores of the tokens, their order from the
 *            highest; and at each step how many are masked, log p of the response in nats, and what is left of the fall
 * Text goes into the page as text nodes only, so whatever a prompt holds is shown and never run. */

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const BOX = { left: 46, right: 412, top: 12, bottom: 222 };
const state = { method: 0, step: 0 };

const spans = data.tokens.map((token, i) => {
  const span = document.createElement("span");
  span.className = data.gold[i] ? "token scored gold" : "token scored";
  span.textContent = token;
  byId("input").append(span);
  return span;
});

data.methods.forEach((method, i) => {
  const label = document.createElement("label"), input = document.createElement("input");
  Object.assign(input, { type: "radio", name: "method", value: String(i), checked: i === 0 });
  input.addEventListener("change", () => { state.method = i; show(); });
  label.append(input, ` ${method.label}`);
  byId("methods").append(label);
});
byId("step").max = String(data.methods[0].masked.length - 1);
byId("step").addEventListener("input", () => { state.step = Number(byId("step").value); show(); });
byId("controls").addEventListener("submit", (event) => event.preventDefault());

/** An SVG element with attributes, and text where there is any. */
function drawn(name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.textContent = text;
  return element;
}

const across = (k, method) => BOX.left + (BOX.right - BOX.left) * method.masked[k] / data.tokens.length;
const up = (share) => BOX.bottom - (BOX.bottom - BOX.top) * share;

function line(method, chosen) {
  const points = method.response.map((share, k) => `${across(k, method).toFixed(1)},${up(share).toFixed(1)}`).join(" ");
  return drawn("polyline", { points, class: chosen ? "chosen" : "other" });
}

function chart() {
  const method = data.methods[state.method], axis = { class: "axis" };
  byId("chart").replaceChildren(
    drawn("line", { x1: BOX.left, y1: BOX.bottom, x2: BOX.right, y2: BOX.bottom, ...axis }),
    drawn("line", { x1: BOX.left, y1: BOX.top, x2: BOX.left, y2: BOX.bottom, ...axis }),
    ...[0, 0.5, 1].map((share) => drawn("text", { x: BOX.left - 6, y: up(share) + 4, "text-anchor": "end" }, String(share))),
    ...[0, 0.5, 1].map((part) => drawn("text", {
      x: BOX.left + part * (BOX.right - BOX.left), y: BOX.bottom + 16, "text-anchor": part === 1 ? "end" : "middle",
    }, String(Math.round(part * data.tokens.length)))),
    drawn("text", { x: (BOX.left + BOX.right) / 2, y: BOX.bottom + 34, "text-anchor": "middle" }, "tokens masked, highest scores first"),
    drawn("text", { x: 12, y: (BOX.top + BOX.bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${(BOX.top + BOX.bottom) / 2})` }, "left of the log-likelihood's fall"),
    ...data.methods.filter((_, i) => i !== state.method).map((other) => line(other, false)),
    line(method, true),
    drawn("circle", { cx: across(state.step, method), cy: up(method.response[state.step]), r: 5, class: "here" }),
  );
}

function show() {
  const method = data.methods[state.method], k = state.step;
  const masked = new Set(method.order.slice(0, method.masked[k]));
  const sizes = method.scores.map(Math.abs).sort((a, b) => a - b);
  const limit = sizes[Math.floor(0.99 * (sizes.length - 1))] || 1; // one sink bleaches nothing
  spans.forEach((span, i) => {
    span.style.setProperty("--s", Math.min(1, Math.max(0, method.scores[i]) / limit).toFixed(2));
    span.classList.toggle("masked", masked.has(i));
  });
  const found = data.gold.filter((isGold, i) => isGold && masked.has(i)).length;
  const evidence = data.gold.reduce((a, b) => a + b, 0);
  byId("count").textContent = `${method.masked[k]} of ${data.tokens.length}`;
  byId("said").textContent = `${method.label}: log p(T ∪ O) = ${method.logProbs[k].toFixed(1)} nats, `
    + `${Math.round(100 * method.response[k])} % of the fall is left; ${found} of ${evidence} tokens of the evidence are masked. `
    + `RISE, the area under its curve: ${method.rise.toFixed(3)} (lower is better).`;
  chart();
}

show();
