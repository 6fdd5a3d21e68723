// Every text that is shown, with the contrast between it and what is behind it (WCAG 2.2, 1.4.3): those below 4.5, or
// below 3 where the text is large; and how many were looked at.
(() => {
  const parts = text => { const n = text.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const ratio = (text, ground) => {
    const [a, b] = [light(over(text, ground)), light(ground)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const bad = [];
  let n = 0;
  const check = (node, text, pseudo) => {
    const style = getComputedStyle(node, pseudo), isSvg = node instanceof SVGElement;
    const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const box = isSvg ? node.parentElement.querySelector(".box") : null;
    const ground = box ? parts(getComputedStyle(box).fill) : behind(node);
    const found = ratio(parts(isSvg ? style.fill : style.color), ground);
    n++;
    if (found < (isLarge ? 3 : 4.5)) bad.push(`${found.toFixed(2)} ${node.tagName}${pseudo || ""}: ${text.slice(0, 40)}`);
  };
  for (const node of document.querySelectorAll("body *")) {
    if (!node.getClientRects().length || node.closest(".unseen") || node.disabled) continue;
    const text = [...node.childNodes].filter(c => c.nodeType === 3).map(c => c.textContent).join("").trim();
    if (text) check(node, text);
    if (node.placeholder) check(node, node.placeholder, "::placeholder");
    if (node.matches("th button")) check(node, "the arrow", "::after");
  }
  return { n, bad };
})()
