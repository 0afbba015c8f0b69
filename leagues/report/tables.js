// SPDX-License-Identifier: Apache-2.0
// Tables sort by a click on a column's title, and are saved as CSV.
"use strict";
(() => {
  const text = (cell) => cell.textContent.replace(/\s+/g, " ").trim();

  // Numbers by size, equal ones and words by the alphabet; cells without a number come last.
  function compare(a, b, way) {
    const [x, y] = [parseFloat(a), parseFloat(b)];
    if (Number.isNaN(x) && Number.isNaN(y)) return way * a.localeCompare(b);
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return way * (x - y || a.localeCompare(b));
  }

  function sort(table, column, title) {
    const way = title.ariaSort === "ascending" ? -1 : 1, body = table.tBodies[0];
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    title.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    const rows = [...body.rows].sort((a, b) => compare(text(a.cells[column]), text(b.cells[column]), way));
    body.append(...rows);
  }

  function save(table, name) {
    const lines = [...table.rows].map((row) => [...row.cells].map((cell) => `"${text(cell).replaceAll('"', '""')}"`).join(","));
    const url = URL.createObjectURL(new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
    Object.assign(document.createElement("a"), { href: url, download: `${name}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  document.querySelectorAll("section .scroll > table").forEach((table, number) => {
    if (table.closest("#explorer")) return; // its rows are a moment's
    [...table.tHead.rows[0].cells].forEach((title, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...title.childNodes);
      button.addEventListener("click", () => sort(table, column, title));
      title.append(button);
    });
    const button = document.createElement("button");
    const name = `${table.closest("section").getAttribute("aria-labelledby")}-${number + 1}`;
    Object.assign(button, { type: "button", className: "csv", textContent: "CSV", title: `Save as ${name}.csv` });
    button.addEventListener("click", () => save(table, name));
    table.caption.append(" ", button);
  });
})();

(() => {
  // Not in the file's own text: the same league gives the same bytes.
  const footer = document.querySelector("footer");
  footer?.append(` File of ${new Date(document.lastModified).toISOString().slice(0, 10)}.`);
})();
