// Pages work without this script. It refreshes the live parts of a page, and checks a stream's line while it is written.
"use strict";
(() => {
  const EVERY = 2500;

  // Live parts: the page is asked for again, and what has an id and `data-live` takes the place of the old part.
  const live = () => document.querySelectorAll("[data-live]");
  let failures = 0;

  async function refresh() {
    const address = new URL(location.href);
    address.searchParams.delete("note");
    const answer = await fetch(address, {
      headers: { "x-thalweg-refresh": "1" },
      redirect: "error",
      signal: AbortSignal.timeout(10000),
    });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of live()) {
      const next = page.getElementById(part.id);
      // What somebody is using stays.
      const used = part.contains(document.activeElement) && document.activeElement !== part;
      const selected = !getSelection().isCollapsed && part.contains(getSelection().anchorNode);
      if (!next || used || selected || part.querySelector("details[open]") || part.innerHTML === next.innerHTML) continue;
      const scrolled = [...part.querySelectorAll(".table")].map((table) => table.scrollLeft);
      part.replaceChildren(...document.adoptNode(next).childNodes);
      part.querySelectorAll(".table").forEach((table, at) => { table.scrollLeft = scrolled[at] || 0; });
    }
  }

  async function tick() {
    if (!document.hidden) {
      try {
        await refresh();
        failures = 0;
      } catch {
        failures = Math.min(failures + 1, 6);
      }
      document.body.toggleAttribute("data-stale", failures > 1);
    }
    setTimeout(tick, EVERY * 2 ** failures);
  }
  if (live().length > 0) setTimeout(tick, EVERY);

  // A form that filters a list is sent when a choice changes.
  for (const form of document.querySelectorAll("form.filter")) {
    form.addEventListener("change", (event) => {
      if (event.target.matches("select, input[type=checkbox]")) form.requestSubmit();
    });
  }

  // A deletion asks for the name of what it deletes: the button is dark until the name is there.
  for (const input of document.querySelectorAll("input[data-expect]")) {
    const button = input.form.querySelector("button[type=submit], button:not([type])");
    const update = () => { button.disabled = input.value !== input.dataset.expect; };
    input.addEventListener("input", update);
    update();
  }

  // A stream's line.
  const editor = document.querySelector("textarea[data-check]");
  if (editor) {
    const output = document.getElementById(editor.dataset.output);
    const list = document.getElementById(editor.dataset.suggestions);
    let waiting = 0;
    let asked = 0;
    const check = async () => {
      const number = ++asked;
      const query = new URLSearchParams({ definition: editor.value, cursor: editor.selectionStart });
      const answer = await fetch(`${editor.dataset.check}?${query}`, { headers: { "x-thalweg-refresh": "1" } });
      const found = await answer.json();
      if (number !== asked) return;
      output.textContent = found.message || (editor.value.trim() ? "The line is right." : "");
      output.className = `check-output ${found.message ? "bad" : "good"}`;
      list.replaceChildren(...(found.suggestions || []).map((suggestion) => {
        const item = document.createElement("li");
        const button = document.createElement("button");
        button.type = "button";
        button.className = "small mono";
        button.textContent = suggestion.text;
        if (suggestion.about) button.title = suggestion.about;
        button.addEventListener("click", () => {
          editor.setRangeText(suggestion.text, suggestion.from, suggestion.to, "end");
          editor.focus();
          schedule();
        });
        item.append(button);
        return item;
      }));
    };
    const schedule = () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => check().catch(() => {}), 150);
    };
    // What was suggested for another text does not fit this one.
    editor.addEventListener("input", () => { list.replaceChildren(); schedule(); });
    editor.addEventListener("click", schedule);
    schedule();
  }
})();
