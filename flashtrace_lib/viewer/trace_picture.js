/* What a reader takes away, continued: the view as a picture, and the Python that gives its numbers. */

const PIXELS = 2, EDGE = 16, TALLEST = 16_000; // of a picture: per CSS pixel, CSS pixels around it, pixels

/** A canvas with the input and the response under each other, as they are coloured now. */
function picture() {
  const panes = [byId("input"), byId("response")];
  const boxes = panes.map((pane) => pane.getBoundingClientRect());
  const heights = panes.map((pane) => pane.scrollHeight);
  const width = Math.max(...boxes.map((box) => box.width)) + 2 * EDGE;
  const height = heights[0] + heights[1] + 3 * EDGE;
  const scale = Math.min(PIXELS, TALLEST / height);
  const canvas = Object.assign(element("canvas"), { width: Math.ceil(width * scale), height: Math.ceil(height * scale) });
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = getComputedStyle(document.body).backgroundColor;
  pen.fillRect(0, 0, width, height);
  panes.forEach((pane, k) => {
    pen.save();
    pen.translate(EDGE - boxes[k].left, EDGE + k * (heights[0] + EDGE) - boxes[k].top);
    for (const block of pane.querySelectorAll(".block")) drawEdge(pen, block);
    for (const drawn of pane.querySelectorAll(".caption, .number, .token")) drawWord(pen, drawn);
    pen.restore();
  });
  return canvas;
}

function drawEdge(pen, block) {
  const box = block.getBoundingClientRect(), style = getComputedStyle(block);
  pen.fillStyle = style.borderLeftColor;
  pen.fillRect(box.left, box.top, parseFloat(style.borderLeftWidth), box.height);
}

/** One element's colour, letters and underline, line by line as the browser has broken them. */
function drawWord(pen, drawn) {
  const style = getComputedStyle(drawn);
  for (const [text, box] of linesOf(drawn)) {
    pen.fillStyle = style.backgroundColor;
    pen.fillRect(box.left, box.top, box.width, box.height);
    pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    pen.fillStyle = style.color;
    pen.textBaseline = "middle";
    pen.fillText(text, box.left, box.top + box.height / 2);
    if (!drawn.classList.contains("top")) continue;
    pen.setLineDash(drawn.classList.contains("loss") ? [2, 2] : []);
    pen.lineWidth = 2;
    pen.strokeStyle = style.color;
    pen.beginPath();
    pen.moveTo(box.left, box.bottom);
    pen.lineTo(box.right, box.bottom);
    pen.stroke();
  }
}

/** The text of an element by line, each with its box. */
function linesOf(drawn) {
  const lines = [], node = drawn.firstChild, range = document.createRange();
  for (let i = 0; node && i < node.length; i++) {
    range.setStart(node, i);
    range.setEnd(node, i + 1);
    const box = range.getClientRects()[0];
    if (!box) continue;
    const last = lines[lines.length - 1];
    if (last && Math.abs(last[1].top - box.top) < 2) {
      last[0] += node.data[i];
      const left = Math.min(last[1].left, box.left); // the next letter of Hebrew or Arabic stands to the left
      last[1] = new DOMRect(left, last[1].top, Math.max(last[1].right, box.right) - left, last[1].height);
    } else lines.push([node.data[i], box]);
  }
  return lines;
}

function savePicture() {
  picture().toBlob((blob) => download(blob, "png"), "image/png");
}

/** Python that prints what is shown, from the JSON of the same trace. */
function asCode() {
  const chosen = state.target ? `t.targets[${state.target - 1}].attribution` : "t.attribution";
  const hop = (k) => `chosen.hops[${k}].scores`;
  const other = otherOf(data.targets[state.target], state.view);
  const shown = other ? [`chosen.metadata["compared"][${JSON.stringify(other.name)}]["scores"]`, "of each token of the input"] : {
    all: bySentence() ? ['Trace(t.sample, chosen).to_frame("sentence")', "of each sentence of the input"] : ["chosen.scores", "of each token of the input"],
    difference: [`${hop(byId("later").value)} - ${hop(byId("earlier").value)}`, "of each token of the context"],
  }[state.view] || [hop(state.view), "of each token of the context"];
  return [
    "from flashtrace_lib import Trace",
    "",
    't = Trace.from_json("trace.json")  # of the same trace: --json, or Trace.to_json',
    `chosen = ${chosen}`,
    `print(${shown[0]})  # ${shown[1]}`,
  ].join("\n");
}

function showCode() {
  byId("code").hidden = !byId("code").hidden;
  byId("show-code").setAttribute("aria-expanded", String(!byId("code").hidden));
}
