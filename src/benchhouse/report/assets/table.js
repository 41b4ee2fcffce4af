// The table of points (sorted, filtered, paged) and the lineage of one number.
const PAGE = DATA.large ? 25 : 50, PRINTED = 500, COLLATOR = new Intl.Collator(undefined, { numeric: true });
const table = { sort: null, down: false, filter: "", page: 0, all: false, size: PAGE };
const numbersByRef = new Map();
DATA.points.forEach((point) => DATA.metrics.forEach((metric, at) => { const number = point.numbers[at]; if (number) numbersByRef.set(number.ref, { point, metric, number }); }));

function matches(point) {
  return table.filter.toLowerCase().split(/\s+/).filter(Boolean).every((word) => {
    const [key, wanted] = word.split("=");
    if (wanted === undefined) return point.search.includes(word);
    const value = point.axes[key] ?? Object.entries(point.axes).find(([name]) => name.toLowerCase() === key)?.[1];
    return value !== undefined ? String(value).toLowerCase() === wanted : point.search.includes(word);
  });
}

function sorted(points) {
  if (!table.sort) return points;
  const [kind, key] = table.sort;
  const value = (point) => (kind === "axis" ? point.axes[key] : kind === "label" ? point.label : point.numbers[key]?.value);
  const before = (a, b) => {
    if (a === undefined || a === null) return b === undefined || b === null ? 0 : 1;
    if (b === undefined || b === null) return -1;
    const order = typeof a === "number" && typeof b === "number" ? a - b : COLLATOR.compare(String(a), String(b));
    return table.down ? -order : order;
  };
  return points.map((point, at) => [point, at]).sort((p, q) => before(value(p[0]), value(q[0])) || p[1] - q[1]).map(([point]) => point);
}

function numberButton(number) {
  const exact = `${number.value}; trace ${number.ref}${number.shaky ? "; " + number.shaky : ""}`;
  const button = html("button", { type: "button", class: "num", "data-ref": number.ref, title: exact }, number.shaky ? html("span", { class: "shaky" }, "~") : null, number.text);
  return [button, number.spread ? html("span", { class: "pm" }, ` ±${THIN}${number.spread}`) : null, html("span", { class: "count", title: "trials behind the number" }, `n${THIN}${number.n}`),
    number.off ? html("span", { class: "pm" }, ` ${number.off}`) : null].filter(Boolean);
}

function header(text, note, sort, right) {
  const same = table.sort && table.sort[0] === sort[0] && table.sort[1] === sort[1];
  const act = () => { table.down = same ? !table.down : false; table.sort = sort; table.page = 0; drawTable(); const again = document.querySelector(`#points th[data-key="${CSS.escape(sort.join("/"))}"] button`); if (again) again.focus(); };
  return html("th", { scope: "col", class: right ? "n" : null, "data-key": sort.join("/"), "aria-sort": same ? (table.down ? "descending" : "ascending") : "none" },
    html("button", { type: "button", on: { click: act } }, text), html("small", {}, note || "\u00a0"));
}

function drawTable() {
  const host = document.getElementById("points");
  if (!host || !DATA.points.length) return;
  const columns = DATA.metrics.map((metric, at) => at).filter((at) => table.all || DATA.metrics[at].primary || !primary.length);
  const gone = DATA.refused.filter((figure) => figure.metric === null && (table.all || figure.primary || !primary.length));
  const found = sorted(DATA.points.filter(matches));
  const pages = Math.max(1, Math.ceil(found.length / table.size));
  table.page = Math.min(table.page, pages - 1);
  const labels = AXES.length ? AXES.map((axis) => header(axis.title, "", ["axis", axis.name], false)) : [header("point", "", ["label", ""], false)];
  labels[0].classList.add("pin");
  const heads = columns.map((at) => { const metric = DATA.metrics[at]; return header(metric.label, [metric.unit === "1" ? "ratio" : metric.unit, arrow(metric)].filter(Boolean).join(", "), ["metric", at], true); });
  const bare = gone.map((figure) => html("th", { scope: "col", class: "n" }, figure.label, html("small", {}, figure.unit === "1" ? "ratio" : figure.unit)));
  const missing = (point, key) => (point.refused.has(key) ? html("span", { class: "bad" }, "INVALID") : "–");
  const rows = found.slice(table.page * table.size, (table.page + 1) * table.size).map((point) => {
    const names = AXES.length ? AXES.map((axis) => point.axes[axis.name]) : [point.label];
    return html("tr", {}, ...names.map((name, at) => html(at ? "td" : "th", at ? {} : { scope: "row", class: "pin" }, name === undefined || name === null ? "–" : String(name))),
      ...columns.map((at) => html("td", { class: "n" }, ...(point.numbers[at] ? numberButton(point.numbers[at]) : [missing(point, at)]))),
      ...gone.map((figure) => html("td", { class: "n" }, missing(point, figure))));
  });
  host.replaceChildren(html("table", {}, html("thead", {}, html("tr", {}, ...labels, ...heads, ...bare)), html("tbody", {}, ...rows)));
  document.getElementById("page-note").textContent = found.length === DATA.points.length && pages === 1 ? `${found.length} points` : `${found.length} of ${DATA.points.length} points, page ${table.page + 1} of ${pages}`;
  document.getElementById("page-back").disabled = table.page === 0;
  document.getElementById("page-on").disabled = table.page >= pages - 1;
  for (const id of ["page-back", "page-on"]) document.getElementById(id).hidden = pages === 1;
}

function startTable() {
  const filter = document.getElementById("filter");
  if (!filter) return;
  filter.addEventListener("input", () => { table.filter = filter.value; table.page = 0; drawTable(); });
  const all = document.getElementById("all-stats");
  all.addEventListener("change", () => { table.all = all.checked; drawTable(); });
  if (DATA.metrics.every((metric) => metric.primary)) all.parentElement.hidden = true;
  const turn = (by) => () => { table.page += by; drawTable(); };
  document.getElementById("page-back").addEventListener("click", turn(-1));
  document.getElementById("page-on").addEventListener("click", turn(1));
  window.addEventListener("beforeprint", () => { table.size = PRINTED; drawTable(); document.querySelectorAll("details").forEach((part) => { part.open = true; }); });
  window.addEventListener("afterprint", () => { table.size = PAGE; drawTable(); });
  drawTable();
}

function pairs(entries) {
  return html("dl", { class: "pairs" }, ...entries.filter(([, value]) => value).flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
}
const code = (text) => (text ? html("code", {}, text) : null);

function openLineage(ref) {
  const found = numbersByRef.get(ref), dialog = document.getElementById("lineage-dialog");
  if (!found) return;
  const { point, metric, number } = found;
  const line = `bench trace ${ref}`, shown = html("code", { id: "trace-line" }, line);
  const copy = html("button", { type: "button", class: "plain", on: { click: () => copyText(line, shown, copy) } }, "Copy");
  const close = html("button", { type: "button", class: "plain close", "aria-label": "Close", on: { click: () => dialog.close() } }, "Close");
  const served = DATA.served; // by a server that has pages for the lineage and the evidence
  const trace = served && html("p", {}, html("a", { href: served.trace + encodeURIComponent(ref) }, "Follow it back to its bytes"));
  const place = (trial) => (served ? html("a", { href: served.evidence + encodeURIComponent(trial.id) }, trial.id) : code(trial.folder || trial.id));
  const trials = number.trials.map((at, index) => {
    const trial = DATA.trials[at];
    return html("tr", {}, html("td", { class: "n" }, String(at + 1)), html("td", { class: "n", title: String(number.values[index]) }, show(number.values[index], 6)), html("td", {}, place(trial)));
  });
  dialog.replaceChildren(close,
    html("h2", { id: "lineage-title" }, `${metric.label}: ${withUnit(number.text, metric.unit)}`),
    html("p", { class: "soft small" }, point.label),
    number.shaky ? html("p", { class: "small bad" }, number.shaky) : "",
    trace || "", html("div", { class: "copy" }, shown, copy),
    pairs([
      ["Full value", withUnit(String(number.value), metric.unit)],
      ["95% interval of the mean", number.low === null ? "none: needs two trials or more" : `${show(number.low, 6)} to ${show(number.high, 6)}${number.doubt ? ` (${number.doubt})` : ""}`],
      ["Error bound", number.off ? withUnit(number.off, metric.unit) : ""],
      ["Spread over trials", number.stdev === null ? "unknown: one trial" : `stdev ${show(number.stdev, 4)}, min ${show(number.min, 6)}, max ${show(number.max, 6)}, n = ${number.n}`],
      ["Samples behind it", number.samples ? String(number.samples) : ""],
      ["Run", code(point.run)], ["Target", point.target], ["Query spec digest", code(number.query)], ["Instance digest", code(point.instance)],
      ["Benchmark case", code(point.case)], ["Workload spec digest", code(point.workload)],
    ]),
    html("div", { class: "scroll" }, html("table", {}, html("thead", {}, html("tr", {}, html("th", { class: "n" }, "trial"), html("th", { class: "n" }, metric.stat === "value" ? "value" : metric.stat), html("th", {}, "sealed folder"))), html("tbody", {}, ...trials))));
  dialog.showModal();
}

async function copyText(text, shown, button) {
  try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; }
  catch { getSelection().selectAllChildren(shown); button.textContent = "Selected"; }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-ref]");
  if (button) openLineage(button.dataset.ref);
  const dialog = document.getElementById("lineage-dialog");
  if (event.target === dialog) dialog.close();
});
startCharts();
startTable();
