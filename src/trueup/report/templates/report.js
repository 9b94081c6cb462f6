"use strict";
(() => {
  // Rows beyond this are kept out of the page until asked for: layout stays fast.
  const MOST = 50;

  const key = (row, column) => {
    const cell = row.cells[column];
    return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent.trim().toLowerCase();
  };

  // Numbers before words, empty cells last whatever the direction.
  const compare = (a, b, sign) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    if (typeof a === "number") return sign * (a - b);
    return sign * a.localeCompare(b, "en", { numeric: true });
  };

  const enhance = (box) => {
    const body = box.querySelector("tbody");
    const input = box.querySelector("input");
    const count = box.querySelector("output");
    const more = box.querySelector(".more");
    const heads = [...box.querySelectorAll("th")];
    let rows = [...body.rows];
    const texts = new Map(rows.map((row) => [
      row, [...row.cells].map((cell) => cell.textContent).join("\n").toLowerCase(),
    ]));
    let all = false;

    const show = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = rows.filter((row) => words.every((word) => texts.get(row).includes(word)));
      const shown = all ? found : found.slice(0, MOST);
      body.replaceChildren(...shown);
      more.hidden = shown.length === found.length;
      const number = (n) => n.toLocaleString("en");
      count.textContent = `${number(shown.length)} of ${number(rows.length)} rows shown` +
        (words.length ? `, ${number(found.length)} match` : "");
    };

    const sort = (column) => {
      const down = heads[column].getAttribute("aria-sort") === "ascending";
      heads.forEach((head) => head.removeAttribute("aria-sort"));
      heads[column].setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const keyed = rows.map((row) => [key(row, column), row]);
      keyed.sort((a, b) => compare(a[0], b[0], sign));
      rows = keyed.map((pair) => pair[1]);
      show();
    };

    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.dataset.name = head.textContent;
      button.title = "Sort by this column";
      button.addEventListener("click", () => sort(column));
      head.replaceChildren(button);
    });
    let waiting = 0;
    input.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(show, 120);
    });
    more.addEventListener("click", () => {
      all = true;
      show();
    });
    box.querySelector(".controls").hidden = false;
    show();
  };

  document.querySelectorAll("[data-table]").forEach(enhance);
})();
