/* Several methods side by side: the share of each word or sentence by the page's own method and by those compared. */

/** A table of what is highest by any of them, in the order of the highest share; hidden where there is one method. */
function drawMethods(target) {
  byId("methods").hidden = !target.others.length;
  if (!target.others.length) return;
  const columns = [{ ...target, name: data.method, view: "all" }, ...target.others.map((other) => (
    { ...other, view: VERSUS + data.targets[0].others.findIndex(({ name }) => name === other.name) }))];
  for (const column of columns) {
    const shown = shownOf(column, ofInput(column.scores)), whole = wholeOf(shown);
    column.shares = shown.map((value) => value / whole);
    column.most = column.shares.reduce((most, share, i) => Math.max(most, ranks(i) && share ? Math.abs(share) : 0), 1e-12);
  }
  const most = (i) => Math.max(...columns.map((column) => Math.abs(column.shares[i])));
  const rows = [...kindOf.keys()].filter((i) => kindOf[i] === "input" && ranks(i)).sort((a, b) => most(b) - most(a) || a - b);
  byId("methods").classList.toggle("many", columns.length > 3);
  const [head] = byId("methods").querySelector("thead").rows;
  head.replaceChildren(methodHead(bySentence() ? "sentence" : "word"), ...columns.map((column) => methodHead(column.name, column.view)));
  byId("methods").querySelector("tbody").replaceChildren(...rows.slice(0, listed()).map((i) => {
    const line = element("tr"), name = element("th");
    name.scope = "row";
    name.append(visitButton(i));
    line.append(name, ...columns.map((column) => shareCell(column.shares[i], column.most)));
    return line;
  }));
}

/** The head of a column; of a method's a button that shows it in the text. */
function methodHead(text, view) {
  const head = element("th");
  head.scope = "col";
  if (view === undefined) head.append(text);
  else {
    const button = head.appendChild(element("button"));
    for (const part of text.split(/(?<=_)/)) button.append(part, element("wbr")); // long names break where they may
    button.type = "button";
    button.setAttribute("aria-pressed", String(view === state.view));
    button.addEventListener("click", () => {
      document.querySelector(`[name=view][value="${view}"]`).click();
      byId("methods").querySelector("[aria-pressed=true]").focus(); // the table was drawn again
    });
  }
  return head;
}

/** A share, coloured as the text is: the highest of its column fully. */
function shareCell(share, most) {
  const cell = element("td", `token scored ${share < 0 ? "loss" : ""}`, (100 * share).toFixed(1).replace("-", "−"));
  cell.style.setProperty("--s", Math.min(1, Math.abs(share) / most));
  return cell;
}
