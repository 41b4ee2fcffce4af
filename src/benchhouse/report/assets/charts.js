// The three charts: value along an axis, one metric against another, and values in order of execution.
const DATA = unpack(JSON.parse(document.getElementById("data").textContent));
const EACH = { name: "", title: "each point", numeric: false };
const AXES = DATA.axes;
const state = { metric: 0, x: null, colour: null, log: false, zero: false, sx: 0, sy: 0, relative: true, hidden: new Set() };

const axisNamed = (name) => AXES.find((axis) => axis.name === name) || null;
const primary = DATA.metrics.map((metric, at) => at).filter((at) => DATA.metrics[at].primary);
const arrow = (metric) => (metric.direction === "higher" ? "higher is better" : metric.direction === "lower" ? "lower is better" : "");
const extreme = (metric) => (metric.direction === "lower" ? "lowest" : "highest");
const titled = (metric) => metric.label + (metric.unit && metric.unit !== "1" ? ` (${metric.unit})` : "");
const hiddenBy = (point) => state.colour && state.hidden.has(String(point.axes[state.colour]));

// What is not drawn for want of a number must not look as if it had not been tried.
function without(...metrics) {
  const lacking = DATA.points.filter((point) => metrics.some((at) => !point.numbers[at]));
  const named = lacking.map((point) => point.label + (metrics.some((at) => point.refused.has(at)) ? " (INVALID)" : ""));
  const names = [...named, ...DATA.missing], more = names.length - 6;
  return names.length ? `Not drawn, without a valid number: ${names.slice(0, 6).join(", ")}${more > 0 ? ` and ${more} more` : ""}.` : "";
}

function tell(mark) {
  const { point, number, metric } = mark;
  const interval = number.low === null ? "no interval: " + (number.n < 2 ? "one trial" : "unknown") : `95% interval ${show(number.low)} to ${show(number.high)}${number.doubt ? ` (${number.doubt})` : ""}`;
  const spread = number.stdev === null ? "" : `, stdev ${show(number.stdev, 3)}`;
  return [
    html("b", {}, withUnit((number.shaky ? "~" : "") + show(number.value), metric.unit)), ` ${metric.label}`,
    html("span", { class: "soft" }, point.label),
    html("span", { class: "soft" }, `${interval}; n = ${number.n}${spread}`),
    number.shaky ? html("span", { class: "soft" }, number.shaky) : null,
    mark.extra ? html("span", { class: "soft" }, mark.extra) : null,
    html("span", { class: "soft" }, "trace ", html("code", {}, number.ref)),
  ].filter(Boolean);
}
const open = (mark) => openLineage(mark.number.ref);

function whisker(svg, ends, upright, at, colour) {
  const [a, b] = ends, cap = 3.5;
  const d = upright ? `M${at} ${a}V${b}M${at - cap} ${a}h${2 * cap}M${at - cap} ${b}h${2 * cap}` : `M${a} ${at}H${b}M${a} ${at - cap}v${2 * cap}M${b} ${at - cap}v${2 * cap}`;
  make(svg, "path", { d, stroke: colour, "stroke-width": 1.3, fill: "none" });
}

function legend(host, axis, brush) {
  host.replaceChildren();
  if (!axis) return;
  host.append(html("span", { class: "soft" }, axis.title));
  if (brush.ramp) {
    const stops = axis.values.map((value) => brush.colour(value)).join(",");
    host.append(show(axis.values[0]), html("span", { style: `width:90px;height:9px;background:linear-gradient(90deg,${stops})` }), show(axis.values[axis.values.length - 1]));
    return;
  }
  for (const value of axis.values.slice(0, 12)) {
    const swatch = make("svg", "svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": true });
    make(swatch, "path", { d: brush.shape(value)(7, 7, 4.4), fill: brush.colour(value) });
    const shown = !state.hidden.has(String(value));
    const toggle = () => { if (shown) state.hidden.add(String(value)); else state.hidden.delete(String(value)); draw(); };
    host.append(html("button", { type: "button", "aria-pressed": String(shown), title: "show or hide", on: { click: toggle } }, swatch, String(value)));
  }
  if (axis.values.length > 12) host.append(html("span", { class: "soft" }, `and ${axis.values.length - 12} more in grey`));
}

function drawSweep() {
  const host = document.getElementById("sweep"), note = document.getElementById("sweep-note");
  const metric = DATA.metrics[state.metric], axis = axisNamed(state.x) || EACH;
  const colourAxis = axisNamed(state.colour), brush = paint(colourAxis);
  legend(document.getElementById("sweep-legend"), colourAxis, brush);
  const points = DATA.points.filter((point) => point.numbers[state.metric] && !hiddenBy(point));
  const values = points.flatMap((point) => { const n = point.numbers[state.metric]; return [n.value, n.low, n.high, ...n.values].filter((v) => v !== null); });
  const lost = state.log ? values.filter((value) => value <= 0).length : 0;
  const notes = lost ? [`${lost} values at or below zero have no place on a log scale.`] : [];
  const draws = DATA.large && axis !== EACH ? drawBands : axis.numeric ? drawLines : drawRows;
  const marks = draws({ host, metric, axis, brush, points, values, notes });
  note.textContent = [...notes, without(state.metric)].join(" ").trim();
  const summed = draws === drawBands;
  listen(host, host.querySelector("svg"), marks, summed ? tellBand : tell, summed ? openBand : open);
}

// The scale of a numeric axis: by logarithm where its values grow by factors.
function along(axis, left, width) {
  const geometric = axis.values.every((value) => value > 0) && axis.values.length > 2 && axis.values[axis.values.length - 1] / axis.values[0] > 6 && axis.values[2] - axis.values[1] > 1.4 * (axis.values[1] - axis.values[0]);
  const x = scale(axis.values, left, width - 14, { log: geometric, own: axis.values.length <= 14 ? axis.values : null, wanted: width / 90 });
  return { x, geometric };
}

function drawLines({ host, metric, axis, brush, points, values }) {
  const width = host.clientWidth, height = width < 560 ? 300 : 380, left = 62;
  const { x, geometric } = along(axis, left, width);
  const y = scale(values, height - 40, 10, { log: state.log, zero: state.zero });
  const label = `${metric.label} along ${axis.title}; arrow keys walk the points, Enter shows where a number comes from`;
  const svg = frame(host, { width, height, left, x, y, xLabel: axis.title + (geometric ? ", log scale" : ""), yLabel: titled(metric), label });
  const lines = new Map();
  for (const point of points) {
    const key = JSON.stringify(AXES.map((other) => (other.name === axis.name ? 0 : point.axes[other.name])));
    if (!lines.has(key)) lines.set(key, []);
    lines.get(key).push(point);
  }
  const crowd = points.length > 150, marks = [], keys = [...lines.keys()];
  for (const key of keys) {
    const line = lines.get(key).sort((a, b) => a.axes[axis.name] - b.axes[axis.name]);
    const colour = brush.colour(line[0].axes[state.colour]);
    const shift = crowd ? 0 : (keys.indexOf(key) - (keys.length - 1) / 2) * Math.min(3, 18 / keys.length);
    const placed = line.filter((point) => y.fits(point.numbers[state.metric].value)).map((point) => {
      const number = point.numbers[state.metric];
      return { x: x.map(point.axes[axis.name]) + shift, y: y.map(number.value), point, number, metric };
    });
    dots(svg, placed.flatMap((mark) => mark.number.values.filter(y.fits).map((value) => [mark.x + 5, y.map(value)])), colour);
    make(svg, "path", { d: placed.map((mark, at) => `${at ? "L" : "M"}${mark.x.toFixed(1)} ${mark.y.toFixed(1)}`).join(""), fill: "none", stroke: colour, "stroke-width": crowd ? 1 : 1.8, opacity: crowd ? 0.55 : 0.9 });
    for (const mark of placed) {
      const { low, high } = mark.number;
      if (!crowd && low !== null && y.fits(low) && y.fits(high)) whisker(svg, [y.map(low), y.map(high)], true, mark.x, colour);
    }
    marks.push(...placed);
  }
  stamp(svg, marks, brush, crowd ? 2.5 : 4.2);
  return marks;
}

function drawRows({ host, metric, axis, brush, points, values, notes }) {
  const MOST = 48, groups = new Map();
  for (const point of points) {
    const name = axis === EACH ? point.label : String(point.axes[axis.name]);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(point);
  }
  let names = [...groups.keys()];
  const worth = (name) => (metric.direction === "lower" ? 1 : -1) * groups.get(name)[0].numbers[state.metric].value;
  if (names.length > MOST) {
    names = names.sort((a, b) => worth(a) - worth(b)).slice(0, MOST);
    notes.push(`The ${extreme(metric)} ${MOST} of ${groups.size} are drawn; the table below holds all.`);
  }
  if (axis === EACH || [...groups.values()].every((group) => group.length === 1)) {
    names.sort((a, b) => worth(a) - worth(b));
  }
  const width = host.clientWidth, longest = Math.max(...names.map((name) => name.length), 1);
  const left = Math.min(longest * 6.8 + 16, width * (width < 560 ? 0.38 : 0.34));
  const most = Math.max(...names.map((name) => groups.get(name).length), 1);
  const step = Math.min(13, 90 / most), row = Math.max(28, most * step + 14), height = 10 + names.length * row + 40;
  const x = scale(values, left, width - 14, { log: state.log, zero: state.zero, wanted: (width - left) / 80 });
  const rows = names.map((name, at) => ({ name, y: 10 + row * (at + 0.5) }));
  const label = `${metric.label} by ${axis.title}; arrow keys walk the points, Enter shows where a number comes from`;
  const svg = frame(host, { width, height, left, x, rows, xLabel: titled(metric), label });
  const marks = [];
  for (const { name, y } of rows) {
    const group = groups.get(name);
    group.forEach((point, at) => {
      const number = point.numbers[state.metric], colour = brush.colour(point.axes[state.colour]);
      const level = y + (at - (group.length - 1) / 2) * step;
      if (!x.fits(number.value)) return;
      dots(svg, number.values.filter(x.fits).map((value) => [x.map(value), level + (group.length > 1 ? 0 : 7)]), colour);
      if (number.low !== null && x.fits(number.low) && x.fits(number.high)) whisker(svg, [x.map(number.low), x.map(number.high)], false, level, colour);
      make(svg, "path", { d: brush.shape(point.axes[state.colour])(x.map(number.value), level, 4.4), fill: colour });
      marks.push({ x: x.map(number.value), y: level, point, number, metric });
    });
  }
  return marks;
}

function drawScatter() {
  const figure = document.getElementById("scatter");
  if (!figure) return;
  const mx = DATA.metrics[state.sx], my = DATA.metrics[state.sy], brush = paint(axisNamed(state.colour));
  const points = DATA.points.filter((point) => point.numbers[state.sx] && point.numbers[state.sy] && !hiddenBy(point));
  const width = figure.clientWidth, height = 330, left = 62;
  const reach = (at) => points.flatMap((point) => { const n = point.numbers[at]; return [n.value, n.low, n.high].filter((value) => value !== null); });
  const x = scale(reach(state.sx), left, width - 14, { wanted: width / 90 });
  const y = scale(reach(state.sy), height - 40, 10, { log: state.log });
  const svg = frame(figure, { width, height, left, x, y, xLabel: titled(mx), yLabel: titled(my), label: `${my.label} against ${mx.label}` });
  const marks = points.filter((point) => y.fits(point.numbers[state.sy].value)).map((point) => ({
    x: x.map(point.numbers[state.sx].value), y: y.map(point.numbers[state.sy].value), point, number: point.numbers[state.sy], metric: my,
    extra: `${mx.label} ${withUnit(show(point.numbers[state.sx].value), mx.unit)}`,
  }));
  const curves = DATA.curves && DATA.curves.x === state.sx && DATA.curves.y === state.sy ? DATA.curves : null;
  const front = curves ? frontOf(curves, marks) : paretoFront(marks, mx, my);
  if (curves) drawCurves(svg, curves, { x, y, left, width, height, brush, mx });
  else if (front.length > 1) make(svg, "path", { d: front.map((mark, at) => `${at ? "L" : "M"}${mark.x} ${mark.y}`).join(""), fill: "none", stroke: "var(--faint)", "stroke-dasharray": "5 4", "stroke-width": 1.3 });
  for (const mark of front) mark.extra += "; on the trade-off front";
  for (const mark of marks.length <= 150 ? marks : []) {
    const { low, high } = mark.number, colour = brush.colour(mark.point.axes[state.colour]), side = mark.point.numbers[state.sx];
    if (low !== null && y.fits(low)) whisker(svg, [y.map(low), y.map(high)], true, mark.x, colour);
    if (side.low !== null) whisker(svg, [x.map(side.low), x.map(side.high)], false, mark.y, colour);
  }
  stamp(svg, marks, brush, marks.length > 400 ? 2.6 : 4.6);
  if (curves) make(svg, "path", { d: front.map((mark) => SHAPES[0](round(mark.x), round(mark.y), 8)).join(""), fill: "none", stroke: "var(--ink)", "stroke-width": 1.1, opacity: 0.8 });
  const dashed = front.length > 1 ? `Dashed: the ${front.length} points that no other point beats on both.` : "";
  const drawn = curves ? curvesNote(curves, front, mx, my) : dashed;
  document.getElementById("scatter-note").textContent = `${drawn} ${without(state.sx, state.sy)}`.trim();
  listen(figure, svg, marks, tell, open);
}

// The points that no other of the same test beats, as the analysis found them.
function frontOf(curves, marks) {
  const chosen = new Set(curves.front.map((at) => DATA.points[at]));
  return marks.filter((mark) => chosen.has(mark.point)).sort((a, b) => a.x - b.x);
}

function curvesNote(curves, front, mx, my) {
  const level = curves.level === null ? "" : ` Dashed: ${mx.label} ${show(curves.level)}; the open marks on it are what each curve has there, with its interval.`;
  return `Curves: one a target, as interpolated. Ringed: the ${front.length} point${front.length === 1 ? "" : "s"} that no other beats on both.${level}`;
}

// A curve for each target, the level asked for, and where each curve meets it, with its interval.
function drawCurves(svg, curves, { x, y, left, width, height, brush, mx }) {
  const dashed = { stroke: "var(--soft)", "stroke-dasharray": "5 4", "stroke-width": 1.2 };
  const inside = curves.level !== null && x.map(curves.level) >= left && x.map(curves.level) <= width - 14;
  if (inside) {
    const at = x.map(curves.level), right = at > width * 0.8;
    make(svg, "line", { class: "level", x1: at, x2: at, y1: 10, y2: height - 40, ...dashed });
    make(svg, "text", { x: at + (right ? -5 : 5), y: 20, "text-anchor": right ? "end" : "start" }, `${mx.label} ${show(curves.level)}`);
  }
  curves.lines.forEach((curve) => {
    const values = new Set(curve.points.map((at) => String(DATA.points[at].axes[state.colour])));
    if (curve.points.every((at) => hiddenBy(DATA.points[at]))) return;
    const colour = values.size === 1 ? brush.colour([...values][0]) : "var(--faint)";
    const places = curve.line.filter(([, value]) => y.fits(value)).map(([a, b]) => `${round(x.map(a))} ${round(y.map(b))}`);
    if (places.length > 1) make(svg, "path", { class: "curve", d: "M" + places.join("L"), fill: "none", stroke: colour, "stroke-width": 1.8, opacity: 0.85 });
    if (!inside || curve.value === null || !y.fits(curve.value)) return;
    const at = x.map(curves.level);
    if (curve.low !== null && y.fits(curve.low)) whisker(svg, [y.map(curve.low), y.map(curve.high)], true, at, colour);
    make(svg, "path", { class: "met", d: SHAPES[3](at, y.map(curve.value), 4.4), fill: "var(--paper)", stroke: colour, "stroke-width": 1.6 });
  });
}

// Points that no other is at least as good as on both metrics; empty where a direction is unknown.
function paretoFront(marks, mx, my) {
  if (!mx.direction || !my.direction || mx === my) return [];
  const sx = mx.direction === "higher" ? 1 : -1, sy = my.direction === "higher" ? 1 : -1;
  const worth = (mark) => [sx * mark.point.numbers[state.sx].value, sy * mark.number.value];
  const sorted = [...marks].sort((a, b) => worth(b)[0] - worth(a)[0] || worth(b)[1] - worth(a)[1]);
  let best = -Infinity;
  return sorted.filter((mark) => worth(mark)[1] > best && ((best = worth(mark)[1]), true));
}

function drawDrift() {
  const host = document.getElementById("drift"), metric = DATA.metrics[state.metric], brush = paint(axisNamed(state.colour));
  const rows = [];
  for (const point of DATA.points) {
    const number = point.numbers[state.metric];
    if (!number || hiddenBy(point)) continue;
    number.trials.forEach((trial, at) => {
      const value = number.values[at];
      const shown = state.relative ? (number.value ? (value / number.value - 1) * 100 : 0) : value;
      rows.push({ order: trial + 1, shown, value, point, number, metric, extra: `trial ${trial + 1}: ${withUnit(show(value), metric.unit)}` });
    });
  }
  rows.sort((a, b) => a.order - b.order);
  const width = host.clientWidth, height = 330, left = 62;
  const x = scale([1, DATA.trials.length], left, width - 14, { wanted: width / 90 });
  x.ticks = x.ticks.filter((tick) => Number.isInteger(tick) && tick > 0);
  const y = scale(rows.map((row) => row.shown), height - 40, 10, { log: state.log && !state.relative });
  const yLabel = state.relative ? "% off the point's mean" : titled(metric);
  const svg = frame(host, { width, height, left, x, y, xLabel: "trial, in order of execution", yLabel, label: `${metric.label} per trial in order of execution` });
  if (state.relative) make(svg, "line", { class: "zero", x1: left, x2: width - 14, y1: y.map(0), y2: y.map(0) });
  const marks = rows.filter((row) => y.fits(row.shown)).map((row) => ({ ...row, x: x.map(row.order), y: y.map(row.shown) }));
  stamp(svg, marks, brush, marks.length > 300 ? 2 : 3.2, 0.8);
  const window = Math.max(5, Math.round(rows.length / 12));
  if (state.relative && rows.length >= 10) {
    const every = Math.ceil(marks.length / 150);
    const path = marks.map((mark, at) => {
      if (at % every && at < marks.length - 1) return "";
      const near = marks.slice(Math.max(0, at - window), at + window + 1).map((other) => other.shown).sort((a, b) => a - b);
      return `${at ? "L" : "M"}${mark.x.toFixed(1)} ${y.map(near[near.length >> 1]).toFixed(1)}`;
    });
    make(svg, "path", { d: path.join(""), fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, opacity: 0.75 });
  }
  const failed = DATA.trials.map((trial, at) => [trial, at + 1]).filter(([trial]) => trial.outcome !== "succeeded");
  for (const [trial, order] of failed.slice(0, 300)) make(make(svg, "text", { x: x.map(order), y: height - 44, "text-anchor": "middle", style: "fill:var(--bad)" }, "×"), "title", {}, `trial ${order}: ${trial.outcome}`);
  const middle = state.relative && rows.length >= 10 ? "Line: running median; level means no drift. " : "";
  document.getElementById("drift-note").textContent = middle + (failed.length ? `× marks ${failed.length} trial${failed.length > 1 ? "s" : ""} that enter${failed.length > 1 ? "" : "s"} no number.` : "");
  listen(host, svg, marks, tell, open);
}

function draw() { if (DATA.points.length && DATA.metrics.length) { drawSweep(); drawScatter(); drawDrift(); } }

function choices(id, options, chosen, change) {
  const select = document.getElementById(id);
  if (!select) return;
  for (const [value, text] of options) make(select, "option", { value, selected: value === chosen }, text);
  select.addEventListener("change", () => { change(select.value); draw(); });
}
function toggle(id, key) {
  const box = document.getElementById(id);
  box.checked = state[key];
  box.addEventListener("change", () => { state[key] = box.checked; draw(); });
}

function startCharts() {
  if (!DATA.points.length || !DATA.metrics.length) return;
  const usable = primary.length ? primary : DATA.metrics.map((_, at) => at);
  const named = (list) => list.map((at) => [String(at), titled(DATA.metrics[at])]);
  const everything = DATA.metrics.map((_, at) => at);
  const ordered = [...usable, ...everything.filter((at) => !usable.includes(at))];
  const numeric = AXES.filter((axis) => axis.numeric).sort((a, b) => b.values.length - a.values.length);
  const byName = AXES.filter((axis) => !axis.numeric).sort((a, b) => b.values.length - a.values.length);
  state.metric = usable[0];
  state.x = numeric.length ? numeric[0].name : byName.length === 1 ? byName[0].name : "";
  const others = AXES.filter((axis) => axis.name !== state.x).sort((a, b) => a.numeric - b.numeric || a.values.length - b.values.length);
  const alone = byName.length === 1 && !numeric.length && byName[0].values.length <= 8 ? byName[0].name : "";
  state.colour = others.length ? others[0].name : alone;
  [state.sy, state.sx] = DATA.tradeoff || [usable[0], usable[0]];
  // A ratio, such as recall, reads best along the bottom.
  if (DATA.metrics[state.sy].unit === "1" && DATA.metrics[state.sx].unit !== "1") [state.sx, state.sy] = [state.sy, state.sx];
  choices("metric", named(ordered), String(state.metric), (value) => { state.metric = Number(value); });
  const axes = AXES.map((axis) => [axis.name, axis.title]);
  choices("x-axis", DATA.points.length <= 60 || !axes.length ? [...axes, ["", "each point"]] : axes, state.x, (value) => { state.x = value; });
  choices("colour", [["", "nothing"], ...axes], state.colour, (value) => { state.colour = value; state.hidden.clear(); });
  choices("scatter-x", named(ordered), String(state.sx), (value) => { state.sx = Number(value); });
  choices("scatter-y", named(ordered), String(state.sy), (value) => { state.sy = Number(value); });
  toggle("log", "log");
  toggle("zero", "zero");
  toggle("relative", "relative");
  draw();
  let width = document.body.clientWidth;
  new ResizeObserver(() => { if (document.body.clientWidth !== width) { width = document.body.clientWidth; draw(); } }).observe(document.body);
}
