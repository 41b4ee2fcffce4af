// Keeps the part of a page that changes up to date: with every event of the run, or else every two seconds.
(() => {
  "use strict";
  const part = () => document.getElementById("live");
  const first = part();
  if (!first || !first.dataset.part) return;
  const PAUSE_MS = 2000;
  let busy = false, again = false, source = null, timer = null;

  async function refresh() {
    if (busy) { again = true; return; }
    if (!part().dataset.part) return; // it is over, and the page is loaded anew
    busy = true;
    try {
      const answer = await fetch(part().dataset.part, { headers: { Accept: "text/html" } });
      if (answer.status === 404) gone();
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
      if (!fresh) return;
      const over = !fresh.dataset.part, old = part().querySelector("pre.log");
      const atEnd = !old || old.scrollHeight - old.scrollTop - old.clientHeight < 40;
      part().replaceWith(document.adoptNode(fresh));
      const log = part().querySelector("pre.log");
      if (log) log.scrollTop = atEnd ? log.scrollHeight : old.scrollTop;
      if (over) { stop(); if (!log) location.reload(); }
    } catch { /* the server is away: the next try may reach it */ } finally {
      busy = false;
      if (again) { again = false; refresh(); }
    }
  }
  function gone() {
    stop();
    const line = Object.assign(document.createElement("p"), { className: "verdict trouble" });
    line.setAttribute("role", "alert");
    line.textContent = "This run is not here any more. Below is what was read of it last.";
    part().before(line);
    part().removeAttribute("data-part");
  }
  function stop() { if (source) source.close(); clearInterval(timer); source = timer = null; }
  function poll() { if (timer === null) timer = setInterval(() => { if (!document.hidden) refresh(); }, PAUSE_MS); }

  if (first.dataset.events) {
    source = new EventSource(first.dataset.events);
    const told = () => refresh();
    for (const name of ["status", "end", "problem"]) source.addEventListener(name, told);
    source.onerror = () => { source.close(); poll(); };
  } else poll();
  document.addEventListener("visibilitychange", () => { if (!document.hidden && (source || timer !== null)) refresh(); });
  const log = first.querySelector("pre.log");
  if (log) log.scrollTop = log.scrollHeight;
})();
