// Pages work without this script. It refreshes the live parts of a page, shows new messages, and checks a stream's line while it is
// written.
"use strict";
(() => {
  const EVERY = 2500;

  // Live parts: the page is asked for again, and what has an id and `data-live` takes the place of the old part.
  const live = () => document.querySelectorAll("[data-live]");
  let failures = 0;

  const untimed = (part) => {
    const copy = part.cloneNode(true);
    copy.querySelectorAll("time").forEach((time) => time.replaceWith(document.createElement("time")));
    return copy.innerHTML;
  };

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
      if (!next || used || selected || part.querySelector("details[open]")) continue;
      // Where only the time of the reading differs, everything else stays, for screen readers.
      if (untimed(part) === untimed(next)) {
        const times = next.querySelectorAll("time");
        part.querySelectorAll("time").forEach((time, at) => time.replaceWith(document.adoptNode(times[at])));
        continue;
      }
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
    const pause = document.createElement("button");
    pause.className = "small";
    pause.type = "button";
    // Screen readers read changes of the state, and not the count, which changes all the time.
    const words = document.createElement("span");
    words.setAttribute("role", "status");
    const count = document.createElement("span");
    tail.append(pause, " ", words, count);
    let source = null;
    let paused = false;
    let omitted = 0;
    // The offsets up to which messages were shown or counted: the tail continues there.
    let position = "";
    const reached = (event) => { position = event.lastEventId || position; };
    const table = document.getElementById("message-rows");
    const put = (element) => {
      const first = table.querySelector("tbody");
      if (first) first.before(element); else table.append(element);
    };
    const say = (text) => { if (words.textContent !== text) words.textContent = text; };
    // A row that stands for messages between two others.
    const gap = () => {
      const top = table.querySelector("tbody");
      if (top?.matches("[data-omitted]")) return top;
      const row = document.createElement("tbody");
      row.dataset.omitted = 0;
      const cell = row.insertRow().insertCell();
      cell.className = "quiet";
      cell.colSpan = table.tHead.rows[0].cells.length;
      put(row);
      return row;
    };
    const total = () => (omitted > 0 ? ` ${omitted} were too many to show.` : "");
    const close = () => { source?.close(); source = null; };
    const open = () => {
      close();
      omitted = 0;
      count.textContent = "";
      const address = new URL(tail.dataset.tail, location);
      if (position) address.searchParams.set("after", position);
      // A topic of very many partitions has no position at which its tail continues.
      if (!address.searchParams.get("after")) gap().rows[0].cells[0].textContent = "Messages may be missing here.";
      source = new EventSource(address);
      source.addEventListener("position", reached);
      source.addEventListener("open", () => say("New messages appear here."));
      source.addEventListener("message", (event) => {
        reached(event);
        const { id, html } = JSON.parse(event.data);
        if (document.getElementById(id)) return;
        const found = new DOMParser().parseFromString(html, "text/html").querySelector("tbody");
        put(document.adoptNode(found));
        document.getElementById("looked-at")?.setAttribute("data-before", "When this page was loaded: ");
        const all = table.querySelectorAll("tbody:not([data-omitted])");
        for (let at = all.length - 1; at >= KEPT; at--) all[at].remove();
        while (all.length > KEPT && table.lastElementChild?.matches("[data-omitted]")) table.lastElementChild.remove();
      });
      source.addEventListener("omitted", (event) => {
        reached(event);
        omitted += Number(event.data);
        count.textContent = total();
        // The gap is below the newest messages, which follow.
        const row = gap();
        row.dataset.omitted = Number(row.dataset.omitted) + Number(event.data);
        row.rows[0].cells[0].textContent = `${row.dataset.omitted} messages were passed over here.`;
      });
      source.addEventListener("waiting", (event) => say(`Waiting: ${JSON.parse(event.data)}`));
      source.addEventListener("end", (event) => { rest(true); say(JSON.parse(event.data) + total()); });
      source.addEventListener("error", () => {
        if (source?.readyState === EventSource.CLOSED) { rest(true); say("New messages cannot be shown: load the page again."); }
      });
    };
    const rest = (rests) => {
      paused = rests;
      pause.textContent = paused ? "Continue" : "Pause";
      count.textContent = "";
      if (paused) { close(); say(`Paused.${total()}`); } else if (!document.hidden) open();
    };
    pause.addEventListener("click", () => rest(!paused));
    document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else if (!paused) open(); });
    rest(false);
  }

  // A row of a message opens by a click anywhere in it, as by its mark.
  document.getElementById("message-rows")?.addEventListener("click", (event) => {
    const row = event.target.closest("tr:not(.detail)");
    if (!row || event.target.closest("a, summary") || !getSelection().isCollapsed) return;
    const details = row.querySelector("details");
    if (details) details.open = !details.open;
  });

  // A link to a part of a message copies the part. The text is fetched, because a page has the start of it only.
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-copy]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const words = link.dataset.words ??= link.textContent;
    try {
      const answer = await fetch(link.href, { redirect: "error" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      await write(await answer.text());
      document.getElementById("copied").textContent = "Copied.";
      link.textContent = "Copied";
      setTimeout(() => { link.textContent = words; document.getElementById("copied").textContent = ""; }, 2000);
    } catch {
      // The text itself is at the address.
      location.assign(link.href);
    }
  });

  // Browsers give their clipboard to pages of HTTPS and of this machine.
  async function write(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    if (!isCopied) throw new Error("no clipboard");
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
    const names = [input.dataset.expect, input.dataset.visible];
    const update = () => { button.disabled = !names.includes(input.value); };
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
