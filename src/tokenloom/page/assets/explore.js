// What the explorer does beyond links and forms: tells about the token that is pointed at, walks by keys, and keeps
// searching until it is stopped. Pages come from the server as they are; nothing is ever put together from text here.
"use strict";
(() => {
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const one = (what, where = document) => where.querySelector(what);

  // light or dark stays from page to page
  const root = document.documentElement;
  try {
    const kept = sessionStorage.getItem("theme");
    if (kept) root.dataset.theme = kept;
    new MutationObserver(() => sessionStorage.setItem("theme", root.dataset.theme))
      .observe(root, { attributeFilter: ["data-theme"] });
  } catch { /* a browser that keeps nothing starts anew */ }

  // the panel about a token
  const panel = one("#panel");
  const lines = all("#panel dd");
  const cells = all(".cell[data-f]");
  let chosen = one(".cell.chosen") || cells[0];

  function tell(cell) {
    if (!lines.length) return;
    panel.classList.remove("empty");
    JSON.parse(cell.dataset.f).forEach((value, k) => { lines[k].textContent = value; });
    if (chosen) chosen.classList.remove("chosen");
    cell.classList.add("chosen");
    if (chosen && chosen !== cell) chosen.tabIndex = -1;
    cell.tabIndex = 0;
    chosen = cell;
  }

  for (const cell of cells) cell.tabIndex = -1;
  if (chosen) chosen.tabIndex = 0;
  const cellOf = (event) => event.target instanceof Element ? event.target.closest(".cell[data-f]") : null;
  for (const box of all(".cells")) {
    box.addEventListener("pointerover", (event) => { const cell = cellOf(event); if (cell) tell(cell); });
    box.addEventListener("focusin", (event) => { const cell = cellOf(event); if (cell) tell(cell); });
    box.addEventListener("click", (event) => { const cell = cellOf(event); if (cell) cell.focus(); });
    box.addEventListener("keydown", (event) => {
      const cell = cellOf(event);
      if (!cell) return;
      const line = all(".cell[data-f]", box);
      const at = line.indexOf(cell);
      const way = getComputedStyle(cell.parentElement).direction === "rtl" ? -1 : 1;
      const steps = {
        ArrowRight: way, ArrowLeft: -way, Home: -at, End: line.length - 1 - at,
        ArrowDown: below(line, at, 1), ArrowUp: below(line, at, -1),
      };
      if (!(event.key in steps)) return;
      event.preventDefault();
      line[Math.min(line.length - 1, Math.max(0, at + steps[event.key]))].focus();
    });
  }

  // how far it is to the cell above or below
  function below(line, at, way) {
    const here = line[at].getBoundingClientRect();
    let best = 0, near = Infinity, row = null;
    for (let k = at + way; k >= 0 && k < line.length; k += way) {
      const box = line[k].getBoundingClientRect();
      if (Math.abs(box.top - here.top) < 4) continue;
      if (row === null) row = box.top;
      if (Math.abs(box.top - row) > 4) break;
      const far = Math.abs(box.left - here.left);
      if (far < near) { near = far; best = k - at; }
    }
    return best;
  }

  // keys that follow a link of the page
  const turns = { n: "next", p: "prev", j: "down", k: "up" };
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof Element && event.target.closest("input, select");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      const box = one("#go");
      const folded = box && box.closest("details");
      if (folded) folded.open = true;
      if (box) { event.preventDefault(); box.focus(); box.select(); }
    } else if (Object.hasOwn(turns, event.key)) {
      const link = one(`link[rel="${turns[event.key]}"]`);
      if (link) location.href = link.href;
    }
  });

  const parsed = (text) => new DOMParser().parseFromString(text, "text/html");
  const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

  // a search goes on by itself until it is stopped, or at its end
  const stop = one("#stop");
  if (stop && one("#more")) {
    let going = true;
    stop.hidden = false;
    stop.addEventListener("click", () => { going = false; stop.hidden = true; });
    (async () => {
      while (going && one("#more")) {
        let page;
        try {
          const answer = await fetch(one("#more").href);
          page = parsed(await answer.text());
        } catch {
          one("#said").textContent = "The explorer does not answer; is it still running?";
          break;
        }
        if (!going) break;
        one("#hits").append(...all("#hits > li", page).map((item) => document.adoptNode(item)));
        for (const what of ["#bar", "#said", "#more"]) {
          const next = one(what, page);
          if (next) one(what).replaceWith(document.adoptNode(next)); else one(what).remove();
        }
        one("#none").hidden = one("#hits").children.length > 0;
        if (!one("#more")) one("#none").textContent = "Nothing was found.";
        await pause(20);
      }
      stop.hidden = true;
    })();
  }
})();
