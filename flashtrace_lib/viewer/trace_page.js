/* What is drawn: the text once; colours, lists and tables for each choice. */

// --- the text, drawn once ---------------------------------------------------------------------------------------

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function tokenElement(i, text) {
  const span = element("span", "token", text);
  span.dataset.i = i;
  span.tabIndex = -1;
  spans[i] = span;
  return span;
}

/** The button that names a sentence; arrow keys move between them, so Tab stops at one only. */
function numberButton(k) {
  const button = element("button", "number", String(k));
  button.type = "button";
  button.setAttribute("aria-label", `Explain sentence ${k}`);
  button.tabIndex = -1;
  button.addEventListener("click", () => choose(k));
  buttons[k] = button;
  return button;
}

function drawText() {
  const begins = new Map(data.targets.slice(1).map((target, k) => [target.span[0], k + 1]));
  for (const part of data.parts) {
    const block = element("div", `block ${part.kind}`);
    block.append((part.caption = element("span", "caption", part.name)));
    const words = block.appendChild(element("div", "words"));
    let holder = words;
    for (let i = part.span[0]; i < part.span[1]; i++) {
      const k = begins.get(i) ?? (i === part.span[0] ? ownerOf[i - 1] : undefined);
      if (k && i < data.targets[k].span[1]) {
        holder = words.appendChild(element("span", "sentence"));
        holder.dataset.k = k;
        if (begins.get(i) === k) holder.append(numberButton(k));
      } else if (ownerOf[i - 1] && i >= data.targets[ownerOf[i - 1]].span[1]) holder = words;
      ownerOf[i] = holder === words ? 0 : Number(holder.dataset.k);
      kindOf[i] = part.kind;
      partOf[i] = part;
      if (part.kind !== "context" && unitOf[i] >= 0) leaders[unitOf[i]] ??= i;
      // The space before a word stands outside its colour and underline; a token of nothing else keeps it.
      const space = data.tokens[i].trim() ? data.tokens[i].match(/^[ ]*/)[0] : "";
      holder.append(space, tokenElement(i, data.tokens[i].slice(space.length)));
    }
    byId(part.span[0] < data.response[0] ? "input" : "response").append(block);
  }
  buttons[0] = byId("whole");
  buttons[0].addEventListener("click", () => choose(0));
  (buttons[1] || buttons[0]).tabIndex = 0;
  spans[data.parts.find((part) => part.kind === "input").span[0]].tabIndex = 0;
}

// --- what is chosen ---------------------------------------------------------------------------------------------

function choose(k) {
  state.target = k;
  const count = data.targets[k].hops.length;
  for (const radio of document.querySelectorAll("[name=view]")) {
    const needs = { all: 0, difference: 2 }[radio.value] ?? Number(radio.value) + 1; // hops
    radio.disabled = radio.value.startsWith(VERSUS) ? !otherOf(data.targets[k], radio.value) : needs > count;
  }
  for (const option of document.querySelectorAll("#compare option")) option.disabled = Number(option.value) >= count;
  const tooFar = Math.max(Number(byId("later").value), Number(byId("earlier").value)) >= count;
  if (tooFar && count > 1) [byId("later").value, byId("earlier").value] = ["1", "0"];
  if (document.querySelector("[name=view]:checked").disabled) document.querySelector("[name=view]").checked = true;
  buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(j === k)));
  for (const sentence of document.querySelectorAll(".sentence")) {
    sentence.classList.toggle("chosen", Number(sentence.dataset.k) === k);
  }
  document.querySelector(".block.output").classList.toggle("chosen", k === 0);
  colour();
}

/** Colours, underlines, captions, list and table for the chosen target and view. */
function colour() {
  const target = data.targets[state.target];
  state.view = document.querySelector("[name=view]:checked").value;
  state.unit = document.querySelector("[name=unit]:checked").value;
  byId("compare").hidden = state.view !== "difference";
  measureBar();
  const values = (state.values = scoresOf(target, state.view));
  const shown = (state.shown = shownOf(otherOf(target, state.view) ?? target, values));
  const signed = state.view === "difference" || shown.some((value) => value < 0);
  const limit = limitOf(target, state.view, shown) || 1;
  const ranked = [...shown.keys()].filter((i) => shown[i] && ranks(i)); // NaN and 0 are no scores
  state.order = ranked.sort((a, b) => Math.abs(shown[b]) - Math.abs(shown[a]) || a - b);
  state.total = sizeOf(values);
  state.whole = wholeOf(shown);
  // of few sentences not all: a third, at least one
  const most = bySentence() ? Math.min(MARKED.sentences, Math.max(1, Math.floor(ranked.length / 3))) : MARKED.words;
  state.marked = state.order.slice(0, most);
  const marked = new Set(state.marked);
  spans.forEach((span, i) => {
    span.removeAttribute("aria-label"); // which tells another view's score
    const value = shown[i] || 0;
    const shade = Math.round(24 * Math.min(1, Math.abs(value) / limit)) / 24; // steps, as in the printed heatmaps
    span.style.setProperty("--s", shade);
    span.classList.toggle("scored", shade > 0);
    span.classList.toggle("gain", signed && value > 0);
    span.classList.toggle("loss", value < 0);
    span.classList.toggle("top", value !== 0 && marked.has(leaderOf(i)));
  });
  byId("code").textContent = asCode();
  drawLegend(limit, signed);
  drawTop();
  drawShares(values);
  drawMethods(target);
  hideTip();
  drawLines();
  noteState();
}

function drawLegend(limit, signed) {
  const marks = signed ? [-1, -0.5, 0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
  const digits = Math.max(1, 1 - Math.floor(Math.log10(100 * shareOf(limit)))); // two that count
  // The colour stops growing at the limit; a score may go on.
  const beyond = (mark) => Math.abs(mark) === 1 && state.shown.some((value) => value * mark > limit);
  const swatches = marks.map((mark) => {
    const words = `${beyond(mark) ? (mark < 0 ? "≤ " : "≥ ") : ""}${inWords(shareOf(mark * limit), digits)}`;
    const swatch = element("span", `swatch token ${mark < 0 ? "loss" : signed ? "gain" : ""}`, words);
    swatch.style.setProperty("--s", Math.abs(mark));
    return swatch;
  });
  const words = signed ? " · underlined: largest changes (solid gains, dotted loses)" : " · underlined: highest scores";
  const own = isImportance(state.view) ? "" : "; the passage's own words are not ranked";
  const part = isImportance(state.view) ? "share of the input's score" : "share of the hop's mass";
  const what = state.view === "difference" ? "change of the share" : part;
  byId("legend").replaceChildren(`${what}: `, ...swatches, words, own);
}

function drawTop() {
  const name = state.target ? `Sentence ${state.target}` : "The answer O";
  const label = document.querySelector("[name=view]:checked").parentElement.textContent.trim();
  byId("chosen").textContent = `${name} · ${label}${state.order.length ? "" : ": no score above zero"}`;
  const target = data.targets[state.target], notes = otherOf(target, state.view) ? [] : target.notes; // of its own scores
  byId("notes").replaceChildren(...notes.map((note) => element("li", "", note)));
  byId("top").replaceChildren(...topTokens().map((i) => {
    const item = element("li");
    item.append(visitButton(i, ` ${inWords(shareOf(state.shown[i]))}`));
    return item;
  }));
}

/** A button that leads to a word or sentence, with what stands behind it. */
function visitButton(i, behind = "") {
  const button = element("button");
  button.type = "button";
  button.dataset.of = i;
  const [before, after] = bySentence() ? ["", ""] : beside(i);
  const word = element("bdi"); // or a right-to-left word would pull the number behind it apart
  word.append(element("i", "", before), element("b", "", wordsOf(i)), element("i", "", after));
  button.append(word, behind);
  button.addEventListener("click", () => visit(i));
  return button;
}

const listed = () => Math.max(1, Math.min(500, Number(byId("count").value) || 10)); // how many a list holds
const topTokens = () => state.order.slice(0, listed());

/** Share of each part: of the magnitudes, or in a difference its change in points. */
function drawShares(values) {
  const rows = new Map();
  for (const part of data.parts) {
    const known = [...values.subarray(...part.span)].filter((value) => !Number.isNaN(value));
    const change = state.view === "difference";
    const sum = known.reduce((all, value) => all + (change ? value : Math.abs(value)), 0) / (change ? 1 : state.total);
    const tokens = part.span[1] - part.span[0];
    const size = `${part.name} · ${tokens} token${tokens === 1 ? "" : "s"}`;
    part.caption.textContent = known.length ? `${size} · ${inWords(sum)}` : size;
    const row = rows.get(part.name) || { tokens: 0, sum: 0, scored: false };
    row.tokens += tokens;
    row.sum += sum;
    row.scored ||= known.length > 0;
    rows.set(part.name, row);
  }
  byId("shares").tBodies[0].replaceChildren(...[...rows].map(([name, row]) => {
    const line = element("tr"), bar = element("span", row.sum < 0 ? "bar loss" : "bar"), last = element("td");
    bar.style.setProperty("--part", row.scored ? Math.min(1, Math.abs(row.sum)) : 0);
    last.append(bar);
    const share = element("td", "", row.scored ? inWords(row.sum) : "–");
    line.append(element("td", "", name), element("td", "", String(row.tokens)), share, last);
    return line;
  }));
}

