/* What a reader does: pointing, moving by keys, finding; and the start. */

// --- one token --------------------------------------------------------------------------------------------------

function describe(i) {
  const value = state.shown[i], rank = state.order.indexOf(leaderOf(i)) + 1;
  const kind = `${bySentence() ? "its sentence's " : ""}${state.view === "difference" ? "change" : "score"}`;
  const score = Number.isNaN(value) ? "not scored in this view" : `${kind} ${value.toPrecision(3)} (${inWords(shareOf(value))})`;
  return `“${plain(i)}” · token ${i} · ${score}${rank ? ` · rank ${rank}` : ""} · ${partOf[i].name}`;
}

function showTip(i) {
  const tip = byId("tip"), box = spans[i].getClientRects()[0] || spans[i].getBoundingClientRect();
  tip.textContent = describe(i);
  tip.hidden = false;
  state.tip = i;
  const below = box.bottom + 6 + tip.offsetHeight < window.innerHeight;
  tip.style.top = `${below ? box.bottom + 4 : box.top - tip.offsetHeight - 4}px`;
  tip.style.left = `${Math.max(4, Math.min(box.left, window.innerWidth - tip.offsetWidth - 4))}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}

/** The score of a focused token stays beside it while the page scrolls; one that was pointed at goes. */
function follow() {
  if (byId("tip").hidden) return;
  if (document.activeElement === spans[state.tip]) showTip(state.tip);
  else hideTip();
}

/** Focus a token and show its score; Tab comes back to it. */
function visit(i) {
  document.querySelector(".token[tabindex='0']").tabIndex = -1;
  spans[i].tabIndex = 0;
  spans[i].setAttribute("aria-label", describe(i));
  spans[i].focus({ preventScroll: true });
  spans[i].scrollIntoView({ block: "center", inline: "nearest" });
  showTip(i);
}

// --- keys and pointer -------------------------------------------------------------------------------------------

function nextMarked(i, step) {
  const marked = state.marked.filter((j) => (j - i) * step > 0);
  return marked.length ? marked.reduce((a, b) => (Math.abs(b - i) < Math.abs(a - i) ? b : a)) : i;
}

function onTokenKey(event, i) {
  const moves = {
    ArrowLeft: i - 1, ArrowRight: i + 1, ArrowUp: nextMarked(i, -1), ArrowDown: nextMarked(i, 1), Home: 0, End: N - 1,
  };
  if (event.key in moves) visit(Math.max(0, Math.min(N - 1, moves[event.key])));
  else if (event.key === "Enter" && ownerOf[i]) choose(ownerOf[i]);
  else return;
  event.preventDefault();
}

function onNumberKey(event, k) {
  const last = buttons.length - 1;
  const moves = { ArrowLeft: k - 1, ArrowUp: k - 1, ArrowRight: k + 1, ArrowDown: k + 1, Home: 1, End: last };
  if (!(event.key in moves)) return;
  const to = Math.max(1, Math.min(last, moves[event.key]));
  buttons[k].tabIndex = -1;
  buttons[to].tabIndex = 0;
  buttons[to].focus();
  event.preventDefault();
}

function listen() {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
    else if (event.target.matches(".text .token")) onTokenKey(event, Number(event.target.dataset.i));
    else if (event.target.matches(".number")) onNumberKey(event, buttons.indexOf(event.target));
  });
  let pointer = "";
  document.addEventListener("pointerover", (event) => {
    const place = `${event.clientX} ${event.clientY}`;
    if (place === pointer) return; // the page moved under a pointer at rest
    pointer = place;
    const token = event.target.closest(".text .token");
    if (token) showTip(Number(token.dataset.i));
    else hideTip();
  });
  document.addEventListener("scroll", follow, { capture: true, passive: true });
  byId("response").addEventListener("click", (event) => {
    const sentence = event.target.closest(".sentence");
    if (sentence && !event.target.closest("button") && !String(getSelection())) choose(Number(sentence.dataset.k));
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("views").addEventListener("change", colour);
  byId("units").addEventListener("change", colour);
  byId("compare").addEventListener("change", colour);
  byId("count").addEventListener("input", () => (drawTop(), drawMethods(data.targets[state.target])));
  byId("query").addEventListener("input", find);
  byId("query").addEventListener("keydown", (event) => {
    if (event.key === "Enter") go(event.shiftKey ? -1 : 1);
  });
  byId("next").addEventListener("click", () => go(1));
  byId("previous").addEventListener("click", () => go(-1));
  byId("copy").addEventListener("click", copy);
  byId("save").addEventListener("click", save);
  byId("picture").addEventListener("click", savePicture);
  byId("show-code").addEventListener("click", showCode);
  window.addEventListener("hashchange", readState);
}

// --- find -------------------------------------------------------------------------------------------------------

const flat = data.tokens.map((token) => token.replace(/⏎\n/g, "\n").replace(/⇥|⟨U\+000D⟩/g, " "));
const begin = [0]; // character at which each token begins
for (const text of flat) begin.push(begin[begin.length - 1] + text.length);
const joined = flat.join("");

/** All places that hold the words of the query, whatever white space stands between them. */
function find() {
  spans.forEach((span) => span.classList.remove("found", "here"));
  const words = byId("query").value.trim().split(/\s+/).filter(Boolean);
  state.found = [];
  state.at = -1;
  const pattern = words.map((word) => word.replace(/[.*+?^${}()|[\]\\\/-]/g, "\\$&")).join("\\s+");
  let at = 0; // matches come in order
  for (const match of words.length ? joined.matchAll(new RegExp(pattern, "gi")) : []) {
    while (begin[at + 1] <= match.index) at++;
    const tokens = [];
    for (let i = at; i < N && begin[i] < match.index + match[0].length; i++) tokens.push(i);
    tokens.forEach((i) => spans[i].classList.add("found"));
    state.found.push(tokens);
  }
  byId("found").textContent = words.length ? `${state.found.length} found` : "";
}

function go(step) {
  const count = state.found.length;
  if (!count) return;
  for (const i of state.found[state.at] || []) spans[i].classList.remove("here");
  state.at = state.at < 0 ? (step > 0 ? 0 : count - 1) : (state.at + step + count) % count;
  for (const i of state.found[state.at]) spans[i].classList.add("here");
  spans[state.found[state.at][0]].scrollIntoView({ block: "center", inline: "nearest" });
  byId("found").textContent = `${state.at + 1} of ${count}`;
}

// --- start ------------------------------------------------------------------------------------------------------

function radio(value, text, name = "view", checked = value === "all") {
  const label = element("label"), input = element("input");
  Object.assign(input, { type: "radio", name, value, checked });
  label.append(input, element("span", "", ` ${text}`));
  byId(`${name}s`).append(label);
}

function drawControls() {
  const most = Math.max(...data.targets.map((target) => target.hops.length));
  const inInput = data.sentences.filter(([start]) => start < data.response[0]).length; // one alone has all of the score
  if (inInput > 1) radio("sentences", "Sentences", "unit", true);
  radio("words", "Words", "unit", inInput <= 1);
  byId("units").hidden = inInput <= 1;
  radio("all", most ? "All hops" : "Importance");
  for (let k = 0; k < most; k++) {
    radio(String(k), `Hop ${k}`);
    for (const id of ["later", "earlier"]) {
      byId(id).append(Object.assign(element("option", "", `Hop ${k}`), { value: String(k) }));
    }
  }
  if (most > 1) {
    radio("difference", "Difference");
    byId("later").value = "1";
  }
  data.targets[0].others.forEach((other, k) => radio(`${VERSUS}${k}`, other.name));
}

drawControls();
drawText();
listen();
watchLines();
readState();

