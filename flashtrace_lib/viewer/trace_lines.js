/* Lines from the chosen passage of the response to the sentences that matter most to it: to the input's, and in a hop,
 * which rests on the response as well, to earlier sentences of the response. */

const lines = byId("lines");

/** Where a passage can be seen: its first box, moved to the edge of the pane that it has scrolled out of. */
function seenAt(i, side) {
  const box = spans[i].getClientRects()[0] || spans[i].getBoundingClientRect();
  const pane = spans[i].closest("#left, #right").getBoundingClientRect();
  const y = Math.max(pane.top, Math.min(pane.bottom, (box.top + box.bottom) / 2));
  return { x: side === "right" ? pane.right : Math.max(pane.left, box.left), y };
}

function drawLines() {
  const wide = matchMedia("(min-width: 60rem)").matches;
  const chosen = spans[data.targets[state.target].span[0]];
  const ends = bySentence() && wide && chosen ? state.marked : [];
  lines.replaceChildren(...ends.map((i) => {
    const within = i >= data.response[0];
    const from = seenAt(data.targets[state.target].span[0], "right"), to = seenAt(i, within ? "right" : "left");
    const path = document.createElementNS(lines.namespaceURI, "path");
    const bend = within ? from.x + 30 : (from.x + to.x) / 2; // an arc beside the response
    if (within) path.setAttribute("class", "within");
    path.setAttribute("d", `M ${from.x} ${from.y} C ${bend} ${from.y}, ${bend} ${to.y}, ${to.x} ${to.y}`);
    path.setAttribute("stroke-width", String(1 + 4 * Math.min(1, Math.abs(shareOf(state.shown[i])))));
    return path;
  }));
}

/** The height of the bar of controls, below which the panes stay. */
function measureBar() {
  document.documentElement.style.setProperty("--bar", `${byId("fold").offsetHeight}px`);
}

function watchLines() {
  let waiting = false;
  const soon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => ((waiting = false), measureBar(), drawLines()));
  };
  document.addEventListener("scroll", soon, { capture: true, passive: true });
  window.addEventListener("resize", soon);
  byId("fold").open = matchMedia("(min-width: 40rem)").matches; // on a phone the text comes first
  byId("fold").addEventListener("toggle", soon);
  measureBar();
}
