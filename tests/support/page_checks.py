"""What a page must not do, as lists of offenders, empty where all is well; each runs in the browser."""

from pathlib import Path

_IMAGES = "() => [...document.images].filter(i => !(i.complete && i.naturalWidth > 0)).map(i => i.src.slice(0, 200))"

_MATH = """() => [
    ...[...document.querySelectorAll('article .math')].filter(e => !e.querySelector('mjx-container')),
    ...document.querySelectorAll('article [data-mjx-error], article mjx-merror'),
].map(e => e.textContent.slice(0, 100))"""

# The page itself must not scroll sideways, and nothing may stick out of it unless a box of its own scrolls or clips it.
_OVERFLOW = """() => {
    const width = document.documentElement.clientWidth, found = [];
    const page = document.documentElement.scrollWidth;
    if (page > width) found.push(`the page is ${page} px wide in a window of ${width}`);
    const article = document.querySelector('article');
    for (const e of article ? article.querySelectorAll('*') : []) {
        const box = e.getBoundingClientRect();
        if (!(box.width > 1 && box.height > 1 && box.right > width + 1)) continue;
        let a = e.parentElement;
        while (a !== article && getComputedStyle(a).overflowX === 'visible') a = a.parentElement;
        if (a === article) found.push(`${e.tagName}.${e.className}: ${e.textContent.trim().slice(0, 60)}`);
    }
    return found.slice(0, 10);
}"""

# WCAG 2: text against what is painted behind it, 4.5 to 1, or 3 to 1 where it is large.
_CONTRAST = """() => {
    const parse = c => {
        const p = c.match(/[\\d.]+/g).map(Number), unit = c.startsWith('color(') ? 255 : 1;  // color(srgb 0.1 0.2 0.3)
        return [p[0] * unit, p[1] * unit, p[2] * unit, p[3] ?? 1];
    };
    const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
    const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
    const behind = e => {
        const stack = [];
        for (; e; e = e.parentElement) {
            const c = parse(getComputedStyle(e).backgroundColor);
            if (c[3] > 0) stack.push(c);
            if (c[3] === 1) break;
        }
        return stack.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
    };
    const found = new Map();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let t = texts.nextNode(); t; t = texts.nextNode()) {
        const e = t.parentElement;
        if (!t.data.trim() || e.closest('mjx-assistive-mml, script, style, noscript')) continue;
        if (!e.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
        const box = e.getBoundingClientRect(), style = getComputedStyle(e);
        if (box.width < 2 || box.height < 2) continue;
        const ground = behind(e), a = light(ground), b = light(over(parse(style.color), ground));
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(style.fontSize);
        const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
        if (ratio < (large ? 3 : 4.5)) {
            const key = `${style.color} on rgb(${ground.slice(0, 3).map(Math.round)}): ${ratio.toFixed(2)}`;
            if (!found.has(key)) found.set(key, `${key}, ${e.tagName}.${e.className}: ${t.data.trim().slice(0, 40)}`);
        }
    }
    return [...found.values()].slice(0, 10);
}"""

_TYPESET = "() => !document.querySelector('article .math') || MathJax.startup.promise.then(() => true)"


def open_page(page, path: Path) -> None:
    """Open a built page and wait until its formulas are typeset."""
    page.goto(path.as_uri(), wait_until="load")
    set_theme(page, "light")
    page.wait_for_function("() => !document.querySelector('article .math') || window.MathJax?.startup?.promise")
    page.evaluate(_TYPESET)


def set_theme(page, theme: str) -> None:
    """Set the theme as its switch does, without the transition."""
    page.evaluate(f"Object.assign(document.documentElement.dataset, {{theme: '{theme}', mode: '{theme}'}})")
    page.add_style_tag(content="* { transition: none !important; }")


def set_dark(page) -> None:
    """Dark mode."""
    set_theme(page, "dark")


def missing_images(page) -> list[str]:
    """Images that did not load."""
    return page.evaluate(_IMAGES)


def math(page) -> list[str]:
    """Formulas that are not typeset, or wrong."""
    return page.evaluate(_MATH)


def overflow(page) -> list[str]:
    """What makes the page scroll sideways, or sticks out of it."""
    return page.evaluate(_OVERFLOW)


def contrast(page) -> list[str]:
    """Text that is hard to read on its background, one example for each pair of colours."""
    return page.evaluate(_CONTRAST)
