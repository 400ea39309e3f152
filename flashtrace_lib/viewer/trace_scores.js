"use strict";
/* The page of one trace. Everything it knows stands in the JSON element #data, which viewer/page.py writes:
 *   tokens   display text of each of the N tokens
 *   parts    [{name, kind, span}] that tile them; kind is input, reasoning, output or context
 *   sentences  [[start, stop], …] of input, reasoning and answer
 *   blank    tokens of white space alone
 *   method   name of the method
 *   targets  [{span, notes, copies, scores: row, hops: [row, …], others}]; the first is the whole answer, the rest are
 *            sentences; others: [{name, copies, scores: row}] by the methods that were compared
 *   row      {from, max, codes}: scores of tokens from, from + 1, …; see decode()
 * Text goes into the page as text nodes only, so whatever a prompt holds is shown and never run. */

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const MARKED = { words: 10, sentences: 3 }; // underlined in the text
const N = data.tokens.length;
const kindOf = new Array(N), partOf = new Array(N), ownerOf = new Array(N).fill(0); // ownerOf: the token's sentence
const spans = []; // the element of each token
const buttons = []; // the number of each sentence; buttons[0] is "the answer"
const state = { // values: of the words; shown: of the words, or at each word of its sentence
  target: 0, view: "all", unit: "words", values: new Float64Array(N), shown: new Float64Array(N),
  order: [], marked: [], total: 1, whole: 1, found: [], at: -1, tip: 0,
};

// --- scores -----------------------------------------------------------------------------------------------------

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const DIGIT = Object.fromEntries([...ALPHABET].map((letter, value) => [letter, value]));

/** Scores of a row over all N tokens, NaN where it has none. Three letters a score: a sign and 131071 steps on a
 *  logarithmic scale from a millionth of the row's largest score up to it. */
function decode(row) {
  const out = new Float64Array(N).fill(NaN), { codes } = row;
  for (let i = 0; i < codes.length / 3; i++) {
    const code = 4096 * DIGIT[codes[3 * i]] + 64 * DIGIT[codes[3 * i + 1]] + DIGIT[codes[3 * i + 2]];
    const step = code % 131072;
    const size = step ? row.max * 10 ** (-6 * (131071 - step) / 131070) : 0;
    out[row.from + i] = code < 131072 ? size : -size;
  }
  return out;
}

const VERSUS = "versus-"; // before the number of another method, in the name of its view

/** The scores of another method that a view shows; by its name, since not every passage has all methods. */
function otherOf(target, view) {
  if (!view.startsWith(VERSUS)) return undefined;
  const wanted = data.targets[0].others[Number(view.slice(VERSUS.length))]?.name;
  return target.others.find(({ name }) => name === wanted);
}

/** Whether a view shows importance, which lies on the input alone, and no hop. */
const isImportance = (view) => view === "all" || view.startsWith(VERSUS);

const ofInput = (row) => decode(row).map((value, i) => (kindOf[i] === "context" ? NaN : value));

/** What a view shows of the chosen target: all hops together, one hop, the difference of two, or another method. */
function scoresOf(target, view) {
  if (isImportance(view)) return ofInput((otherOf(target, view) ?? target).scores);
  if (view !== "difference") return decode(target.hops[Number(view)]);
  const later = decode(target.hops[Number(byId("later").value)]);
  const earlier = decode(target.hops[Number(byId("earlier").value)]);
  return later.map((value, i) => value - earlier[i]);
}

/** Score at which the colour saturates: the 99th percentile of what is ranked, so that one sink bleaches nothing. */
function saturation(values) {
  const sizes = [...values].filter((v, i) => !Number.isNaN(v) && ranks(i)).map(Math.abs);
  sizes.sort((a, b) => a - b);
  if (!sizes.length) return 0;
  return sizes.length < 100 ? sizes[sizes.length - 1] : sizes[Math.floor(0.99 * (sizes.length - 1))];
}

/** Hops share one scale, so that switching between them compares them. */
function limitOf(target, view, values) {
  const alone = isImportance(view) || view === "difference";
  const rows = alone ? [values] : target.hops.map((row) => shownOf(target, decode(row)));
  return Math.max(...rows.map(saturation));
}

/** A score as a part of the whole: of the input's importance, or of a hop's mass, which sums to 1 with the template. */
const shareOf = (score) => (isImportance(state.view) ? score / state.whole : score);

const sizeOf = (values) => values.reduce((total, value) => total + (Math.abs(value) || 0), 0) || 1;

/** All of the importance that a method's shares are parts of. */
const wholeOf = (shown) => sizeOf(bySentence() ? shown.filter((_, i) => leaderOf(i) === i) : shown);

/** A share in words: per cent, or in a difference the points that it changed by. */
function inWords(share, digits = 1) {
  const change = state.view === "difference";
  const number = (100 * share).toFixed(digits).replace("-", "−");
  return `${change && share > 0 ? "+" : ""}${number} ${change ? "points" : "%"}`;
}

const plain = (i) => data.tokens[i].replace(/⏎\n/g, "⏎").trim() || "␣";

/** The words beside a token that has no letter, which alone would say nothing: what stands before, what behind. */
function beside(i) {
  if (/[\p{L}\p{N}]/u.test(data.tokens[i])) return ["", ""];
  const near = (j) => (partOf[j] === partOf[i] ? data.tokens[j].replace(/⏎\n/g, "⏎").trim() : "");
  return [near(i - 1), data.tokens[i].trim() ? "" : near(i + 1)];
}
