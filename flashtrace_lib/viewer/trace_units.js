/* What is coloured and ranked: words, or sentences, whose score is the sum of their words'. */

const unitOf = new Array(N).fill(-1); // the token's sentence, by its place in data.sentences
data.sentences.forEach(([start, stop], u) => unitOf.fill(u, start, stop));
const leaders = []; // of each sentence the first token that is no template's; drawText() fills it

const bySentence = () => state.unit === "sentences";

/** The token that stands for token i in a ranking: itself, or the first of its sentence. */
const leaderOf = (i) => (bySentence() ? leaders[unitOf[i]] : i);

const blank = new Set(data.blank); // tokens of white space alone, which say nothing

/** Scores as they are shown, [N]: of each word, or at each word that of its sentence, without white space. Some methods
 *  give every word a copy of its sentence's score; then that is it. */
function shownOf(target, values) {
  if (!bySentence()) return values;
  const out = new Float64Array(N).fill(NaN);
  for (const [start, stop] of data.sentences) {
    const known = [];
    for (let i = start; i < stop; i++) if (kindOf[i] !== "context" && !Number.isNaN(values[i])) known.push(i);
    const sum = known.reduce((all, i) => all + (blank.has(i) && !target.copies ? 0 : values[i]), 0);
    for (const i of known) out[i] = target.copies ? sum / known.length : sum;
  }
  return out;
}

/** Whether a token takes part in a ranking: not the template's, nor the chosen passage's own words, which always draw
 *  on themselves and would hide what they came from; of a sentence its first token. */
function ranks(i) {
  const [start, stop] = data.targets[state.target].span;
  const [first, last] = !bySentence() ? [i, i + 1] : data.sentences[unitOf[i]] || [0, 0];
  const says = bySentence() || (!blank.has(i) && data.tokens[i].trim()); // a part of a letter has no text of its own
  return kindOf[i] !== "context" && says && leaderOf(i) === i && !(first < stop && start < last);
}

/** The words that a ranking shows for token i. */
function wordsOf(i) {
  if (!bySentence()) return plain(i);
  const [start, stop] = data.sentences[unitOf[i]];
  const words = data.tokens.filter((_, j) => start <= j && j < stop && kindOf[j] !== "context");
  return words.join("").replace(/⏎\n/g, " ").trim();
}
