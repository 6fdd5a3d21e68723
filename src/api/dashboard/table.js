/*
 * A table of any number of items: filter, sort, and a window of rows with pages.
 *
 * The document contains only the rows of one page. A row lives as long as its item is on the page, and only cells
 * whose text changed are touched: focus, selection and a screen reader's place stay where they are.
 */
"use strict";

const ROWS = 50;

const compare = (a, b) => (a === b ? 0 : a === null || a === undefined ? -1 : b === null || b === undefined ? 1
  : a < b ? -1 : 1);

class Table {
  /* columns: { key, title, kind, text(item), mark(item), act(item) }; key null: the column cannot be sorted. */
  constructor(name, { noun, sort, down, columns, keyOf }) {
    Object.assign(this, { name, noun, sort, down, columns, keyOf });
    this.items = [];
    this.found = [];
    this.words = [];
    this.page = 0;
    this.rows = new Map(); /* the rows in the document, by key */
    this.texts = new WeakMap(); /* of items, for the filter */
    this.isCut = false; /* the server has more items */
    this.note = ""; /* shown in place of the number of items */
    this.isStale = true; /* found must be computed again */
    this.isDue = false;
    this.makeFrame();
  }

  makeFrame() {
    this.titles = this.columns.map(column => make("th", { scope: "col", class: column.kind === "n" ? "n" : null },
      column.key ? make("button", { "data-key": column.key, onclick: () => this.sortBy(column.key) }, column.title)
        : make("span", { class: "unseen" }, column.title)));
    this.body = make("tbody");
    $(this.name).append(make("thead", {}, make("tr", { "aria-rowindex": 1 }, ...this.titles)), this.body);
    const turn = (text, by) => make("button", { class: "plain", onclick: () => this.turn(by) }, text);
    this.back = turn("Previous", -1);
    this.forth = turn("Next", 1);
    this.place = make("span", { class: "soft" });
    $(`${this.name}-pages`).append(this.back, this.place, this.forth);
    $(`${this.name}-filter`)?.addEventListener("input", event => this.filterBy(event.target.value));
  }

  /* Actions of the user */

  sortBy(key) {
    this.down = this.sort === key ? !this.down : false;
    this.sort = key;
    this.page = 0;
    this.isStale = true;
    this.draw();
  }

  filterBy(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.page = 0;
    this.isStale = true;
    this.draw();
    say(`${some(this.found.length, this.noun)} found`);
  }

  turn(by) {
    const [pressed, other] = by < 0 ? [this.back, this.forth] : [this.forth, this.back];
    const hadFocus = document.activeElement === pressed;
    this.page += by;
    this.draw();
    if (hadFocus && pressed.disabled) other.focus(); /* a disabled button loses the focus */
    say(this.place.textContent);
  }

  /* Data of the server. Several calls before the next frame draw once. */

  set(items, isCut = false) {
    this.items = items;
    this.isCut = isCut;
    this.isStale = true;
    this.drawSoon();
  }

  drawSoon() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => { this.isDue = false; this.draw(); });
  }

  /* Drawing */

  textOf(item) {
    let text = this.texts.get(item);
    if (text === undefined) this.texts.set(item, text = Object.values(item).join(" ").toLowerCase());
    return text;
  }

  find() {
    const { words, sort } = this, sign = this.down ? -1 : 1;
    const fits = item => { const text = this.textOf(item); return words.every(word => text.includes(word)); };
    this.found = words.length ? this.items.filter(fits) : [...this.items];
    this.found.sort((a, b) => sign * compare(a[sort], b[sort]));
    this.isStale = false;
  }

  get lastPage() { return Math.max(0, Math.ceil(this.found.length / ROWS) - 1); }

  makeRow(item) {
    const cells = this.columns.map(({ kind, act }) => make("td", { class: kind || null }, ...(act ? [act(item)] : [])));
    return { node: make("tr", {}, ...cells), cells, item: null };
  }

  fillRow(row, item, index) {
    row.node.setAttribute("aria-rowindex", index);
    this.columns.forEach(({ key, kind, text, mark, act }, i) => {
      if (act) return;
      const cell = row.cells[i], wanted = text ? text(item) : String(item[key] ?? "–");
      const name = [kind, mark?.(item)].filter(Boolean).join(" ");
      if (cell.textContent !== wanted) cell.textContent = wanted;
      if (cell.className !== name) cell.className = name;
    });
  }

  draw() {
    if (this.isStale) this.find();
    this.page = Math.min(Math.max(0, this.page), this.lastPage);
    const first = this.page * ROWS, window = this.found.slice(first, first + ROWS);
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    const rows = new Map();
    let next = this.body.firstElementChild;
    window.forEach((item, i) => {
      const key = this.keyOf(item), row = this.rows.get(key) ?? this.makeRow(item);
      this.fillRow(row, item, first + i + 2);
      if (row.node === next) next = next.nextElementSibling;
      else this.body.insertBefore(row.node, next);
      rows.set(key, row);
    });
    for (const [key, row] of this.rows) if (!rows.has(key)) row.node.remove();
    this.rows = rows;
    if (focused && document.activeElement !== focused) (this.body.contains(focused) ? focused : this.sorter()).focus();
    this.drawFrame(first, window.length);
  }

  sorter() { return $(this.name).querySelector(`[data-key=${this.sort}]`); }

  drawFrame(first, n) {
    const { name, found, items } = this;
    $(name).hidden = !items.length;
    $(name).setAttribute("aria-rowcount", found.length + 1);
    this.columns.forEach(({ key }, i) => {
      if (key !== this.sort) this.titles[i].removeAttribute("aria-sort");
      else this.titles[i].setAttribute("aria-sort", this.down ? "descending" : "ascending");
    });
    $(`${name}-pages`).hidden = found.length <= ROWS;
    this.back.disabled = this.page === 0;
    this.forth.disabled = this.page === this.lastPage;
    this.place.textContent = `Rows ${count.format(first + 1)} to ${count.format(first + n)} of ${count.format(found.length)}`;
    const all = this.words.length ? `${count.format(found.length)} of ${count.format(items.length)}` : count.format(items.length);
    put(`${name}-more`, this.note ? this.note : this.isCut ? `${all}; the server has more` : all);
  }

  /* Keys of the items on the page */
  shown() { return this.found.slice(this.page * ROWS, this.page * ROWS + ROWS); }
}
