// Pages work without this script. It refreshes the live parts of a page, shows new messages, and checks a stream's line while it is
// written.
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
    // What was live has ended: other parts of the page differ too.
    if ([...live()].some((part) => page.getElementById(part.id)?.hasAttribute("data-live") === false)) {
      location.replace(address);
      return;
    }
    for (const part of live()) {
      const next = page.getElementById(part.id);
      // What is in use stays.
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

  // A live tail: new messages are written above the others. It rests while the page is hidden.
  const tail = document.querySelector("[data-tail]");
  if (tail) {
    const KEPT = 200;
    const messages = document.getElementById("messages");
    const pause = document.createElement("button");
    pause.className = "small";
    pause.type = "button";
    const words = document.createElement("span");
    tail.append(pause, " ", words);
    let source = null;
    let paused = false;
    let omitted = 0;
    const say = (text) => { if (words.textContent !== text) words.textContent = text; };
    const close = () => { source?.close(); source = null; };
    const open = () => {
      close();
      omitted = 0;
      source = new EventSource(tail.dataset.tail);
      source.addEventListener("open", () => say("New messages appear here."));
      source.addEventListener("message", (event) => {
        const { id, html } = JSON.parse(event.data);
        if (document.getElementById(id)) return;
        const found = new DOMParser().parseFromString(html, "text/html").body.firstElementChild;
        const first = messages.querySelector("article");
        if (first) first.before(document.adoptNode(found)); else messages.append(document.adoptNode(found));
        const all = messages.querySelectorAll("article");
        for (let at = all.length - 1; at >= KEPT; at--) all[at].remove();
      });
      source.addEventListener("omitted", (event) => {
        omitted += Number(event.data);
        say(`New messages appear here; ${omitted} were too many to show.`);
      });
      source.addEventListener("waiting", (event) => say(`Waiting: ${JSON.parse(event.data)}`));
      source.addEventListener("end", (event) => { close(); rest(true); say(JSON.parse(event.data)); });
      source.addEventListener("error", () => {
        if (source?.readyState === EventSource.CLOSED) { close(); rest(true); say("New messages cannot be shown: load the page again."); }
      });
    };
    const rest = (rests) => {
      paused = rests;
      pause.textContent = paused ? "Continue" : "Pause";
      if (paused) { close(); say("Paused."); } else if (!document.hidden) open();
    };
    pause.addEventListener("click", () => rest(!paused));
    document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else if (!paused) open(); });
    rest(false);
  }

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
