/* What a reader takes away: the highest scores as a copy, all scores of a view as a file, the view as a link. */

// --- copy and save ----------------------------------------------------------------------------------------------

const HEADER = () => ["rank", bySentence() ? "sentence" : "token", "position", "score", "part"];
const rowOf = (i, rank, digits) => [rank, wordsOf(i), i, state.shown[i].toPrecision(digits), partOf[i].name];

async function copy() {
  const rows = topTokens().map((i, k) => rowOf(i, k + 1, 3).join("\t"));
  const text = [HEADER().join("\t"), ...rows].join("\n");
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.body.appendChild(element("textarea", "unseen", text)); // a file:// page in some browsers
    area.select();
    done = document.execCommand("copy");
    area.remove();
    byId("copy").focus();
  }
  byId("copied").textContent = done ? `${rows.length} copied` : "the browser refused";
}

/** Every word or sentence that has a score in this view, in the order of the text; rank is empty for those not ranked. */
function asCsv() {
  const rank = new Map(state.order.map((i, k) => [i, k + 1]));
  const known = [...state.shown.keys()].filter((i) => !Number.isNaN(state.shown[i]) && leaderOf(i) === i);
  const rows = [HEADER(), ...known.map((i) => rowOf(i, rank.get(i) ?? "", 6))];
  return rows.map((row) => row.map((cell) => `"${String(cell).replace(/"/g, '""')}"`).join(",") + "\r\n").join("");
}

function save() {
  download(new Blob(["\ufeff", asCsv()], { type: "text/csv" }), "csv"); // the mark: Excel reads UTF-8
}

function download(blob, suffix) {
  const link = element("a");
  link.href = URL.createObjectURL(blob);
  link.download = `trace_${state.target ? `sentence_${state.target}` : "answer"}_${state.unit}.${suffix}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// --- the view in the address ------------------------------------------------------------------------------------

/** Note the choices in the address, so that a link or a reload shows the same; a frame has no address of its own. */
function noteState() {
  const fields = { passage: state.target, show: state.view, by: state.unit };
  if (state.view === "difference") Object.assign(fields, { later: byId("later").value, earlier: byId("earlier").value });
  try {
    history.replaceState(null, "", `#${new URLSearchParams(fields)}`);
  } catch {
    // in a frame whose page is part of another
  }
}

/** Take over what the address says, as far as this page has it. */
function readState() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const check = (name, value) => {
    const input = [...document.querySelectorAll(`[name=${name}]`)].find((radio) => radio.value === value);
    if (input) input.checked = true;
  };
  for (const id of ["later", "earlier"]) {
    if ([...byId(id).options].some((option) => option.value === fields.get(id))) byId(id).value = fields.get(id);
  }
  check("view", fields.get("show"));
  check("unit", fields.get("by"));
  const k = Number(fields.get("passage"));
  choose(Number.isInteger(k) && data.targets[k] ? k : 0);
}
