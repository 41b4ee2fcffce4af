// Elements, number texts, scales and the frame of a chart. Text only ever enters the page as a text node.
const SVG = "http://www.w3.org/2000/svg";
const THIN = "\u2009";

function make(parent, name, attributes = {}, ...children) {
  const svg = parent === "svg" || (parent && parent.namespaceURI === SVG);
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (key === "style") element.style.cssText = value; // unlike the attribute, allowed by a strict policy
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  if (parent && parent !== "svg") parent.append(element);
  return element;
}
const html = (name, attributes, ...children) => make(null, name, attributes, ...children);

function show(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9 || size < 1e-4) return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e").replaceAll("-", "\u2212");
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  const [whole, rest] = size.toFixed(places).split(".");
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, THIN) : whole;
  const tail = (rest || "").replace(/0+$/, "");
  return (value < 0 ? "\u2212" : "") + (tail ? grouped + "." + tail : grouped);
}
const withUnit = (text, unit) => (!unit || unit === "1" ? text : text + (unit.startsWith("1/") ? unit.slice(1) : THIN + unit));

function brief(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return show(value / 1e9, 3) + "G";
  if (size >= 1e6) return show(value / 1e6, 3) + "M";
  if (size >= 1e4) return show(value / 1e3, 3) + "k";
  return show(value, 4);
}

function niceTicks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) ticks.push(Number((at * step).toPrecision(12)));
  return ticks;
}

function logTicks(low, high, wanted) {
  const decades = Math.log10(high / low);
  if (decades < 0.7) return niceTicks(low, high, wanted);
  const steps = decades > wanted ? [1] : decades > 1.6 ? [1, 2, 5] : [1, 1.5, 2, 3, 5, 7];
  const every = Math.max(1, Math.ceil(decades / wanted));
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    if (power % every) continue;
    for (const step of steps) {
      const tick = Number((step * 10 ** power).toPrecision(12));
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

// A scale maps a value to a pixel; `values`, when few, are the ticks themselves (the points of a swept axis).
function scale(values, from, to, { log = false, zero = false, wanted = 6, own = null } = {}) {
  const usable = values.filter((value) => Number.isFinite(value) && (!log || value > 0));
  let low = Math.min(...extent(usable)), high = Math.max(...extent(usable));
  if (zero && !log) { low = Math.min(0, low); high = Math.max(0, high); }
  if (low === high) { const room = Math.abs(low) * 0.1 || 1; low = log ? low / 1.3 : low - room; high = log ? high * 1.3 : high + room; }
  const f = log ? Math.log : (value) => value;
  const room = (f(high) - f(low)) * 0.05;
  const a = f(low) - (zero && low === 0 ? 0 : room), b = f(high) + (zero && high === 0 ? 0 : room);
  const back = log ? Math.exp : (value) => value;
  const map = (value) => from + ((f(value) - a) / (b - a)) * (to - from);
  const ticks = own || (log ? logTicks(back(a), back(b), wanted) : niceTicks(back(a), back(b), wanted));
  return { map, ticks, fits: (value) => Number.isFinite(value) && (!log || value > 0) };
}
function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return low === Infinity ? [0, 1] : [low, high];
}

const SHAPES = [
  (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  (x, y, r) => `M${x - r * 0.9} ${y - r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}z`,
  (x, y, r) => `M${x} ${y - r * 1.2}l${r * 1.15} ${r * 2}h${-r * 2.3}z`,
  (x, y, r) => `M${x} ${y - r * 1.3}l${r * 1.3} ${r * 1.3}l${-r * 1.3} ${r * 1.3}l${-r * 1.3} ${-r * 1.3}z`,
  (x, y, r) => `M${x} ${y + r * 1.2}l${r * 1.15} ${-r * 2}h${-r * 2.3}z`,
  (x, y, r) => `M${x - r * 1.3} ${y - r * 0.45}h${r * 0.85}v${-r * 0.85}h${r * 0.9}v${r * 0.85}h${r * 0.85}v${r * 0.9}h${-r * 0.85}v${r * 0.85}h${-r * 0.9}v${-r * 0.85}h${-r * 0.85}z`,
];
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [190, 200, 40]];

// Which colour and shape a point has, by one axis: eight at most by name, a ramp for longer numeric axes.
function paint(axis) {
  const values = axis ? axis.values : [];
  const index = new Map(values.map((value, at) => [String(value), at]));
  const ramp = axis && axis.numeric && values.length > 8;
  return {
    ramp,
    colour(value) {
      const at = index.get(String(value)) ?? 0;
      if (!ramp) return at < 8 ? `var(--c${at})` : "var(--faint)";
      const place = (at / (values.length - 1)) * (RAMP.length - 1), left = Math.min(RAMP.length - 2, Math.floor(place));
      return `rgb(${RAMP[left].map((part, i) => Math.round(part + (RAMP[left + 1][i] - part) * (place - left))).join()})`;
    },
    shape: (value) => SHAPES[ramp ? 0 : (index.get(String(value)) ?? 0) % SHAPES.length],
  };
}

// An empty chart: grid, axes, labels. Returns where to draw.
function frame(host, { width, height, left, right = 14, top = 10, bottom = 40, x, y, xLabel, yLabel, rows, label }) {
  const svg = make("svg", "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0, "aria-label": label });
  const clear = (ticks, gap) => {
    let last = -Infinity;
    return ticks.filter(([place]) => Math.abs(place - last) >= gap && ((last = place), true));
  };
  if (y) for (const [at, tick] of clear(y.ticks.map((tick) => [y.map(tick), tick]).sort((a, b) => a[0] - b[0]), 15)) {
    make(svg, "line", { class: "grid", x1: left, x2: width - right, y1: at, y2: at });
    make(svg, "text", { x: left - 7, y: at + 4, "text-anchor": "end" }, brief(tick));
  }
  if (rows) for (const row of rows) {
    make(svg, "line", { class: "grid", x1: left, x2: width - right, y1: row.y, y2: row.y });
    make(make(svg, "text", { class: "name", x: left - 8, y: row.y + 4, "text-anchor": "end" }, clip(row.name, left)), "title", {}, row.name);
  }
  const widest = Math.max(...x.ticks.map((tick) => brief(tick).length), 1) * 7 + 8;
  for (const [at, tick] of clear(x.ticks.map((tick) => [x.map(tick), tick]).sort((a, b) => a[0] - b[0]), widest)) {
    if (rows) make(svg, "line", { class: "grid", x1: at, x2: at, y1: top, y2: height - bottom });
    make(svg, "line", { class: "axis", x1: at, x2: at, y1: height - bottom, y2: height - bottom + 4 });
    make(svg, "text", { x: at, y: height - bottom + 17, "text-anchor": "middle" }, brief(tick));
  }
  make(svg, "line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom });
  make(svg, "text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, xLabel);
  if (yLabel) make(svg, "text", { x: 0, y: 0, transform: `translate(11 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yLabel);
  host.replaceChildren(svg);
  return svg;
}
const clip = (text, width) => { const room = Math.max(6, Math.floor((width - 12) / 6.6)); return text.length > room ? text.slice(0, room - 1) + "…" : text; };

// Faint dots, thousands of them, as one path: a zero-length stroke with round ends is a dot.
function dots(svg, places, colour, size = 4) {
  if (!places.length) return;
  make(svg, "path", { d: places.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join(""), stroke: colour, "stroke-width": size, "stroke-linecap": "round", opacity: 0.38, fill: "none" });
}

// Marks, batched into one path per colour: ten thousand of them stay quick.
function stamp(svg, marks, brush, size, opacity = 1) {
  const batches = new Map();
  for (const mark of marks) {
    const value = mark.point.axes[state.colour], colour = brush.colour(value);
    if (!batches.has(colour)) batches.set(colour, []);
    batches.get(colour).push(brush.shape(value)(round(mark.x), round(mark.y), size));
  }
  for (const [colour, shapes] of batches) make(svg, "path", { d: shapes.join(""), fill: colour, opacity });
}
const round = (value) => Math.round(value * 10) / 10;

// Hover, keyboard and click on the marks of a chart: the nearest mark within reach is told and can be opened.
function listen(host, svg, marks, tell, open) {
  const tip = html("div", { class: "tip", hidden: true, role: "status" });
  const ring = make(svg, "circle", { r: 8, fill: "none", stroke: "var(--ink)", "stroke-width": 1.5, visibility: "hidden" });
  host.append(tip);
  let current = -1;
  const ordered = marks.map((mark, at) => [mark, at]).sort((a, b) => a[0].x - b[0].x || a[0].y - b[0].y).map(([, at]) => at);
  const leave = () => { current = -1; tip.hidden = true; ring.setAttribute("visibility", "hidden"); };
  const enter = (at) => {
    current = at;
    const mark = marks[at];
    tip.replaceChildren(...tell(mark));
    tip.hidden = false;
    ring.setAttribute("cx", mark.x); ring.setAttribute("cy", mark.y); ring.setAttribute("visibility", "visible");
    const beside = mark.x + 14 + tip.offsetWidth > host.clientWidth ? mark.x - tip.offsetWidth - 14 : mark.x + 14;
    tip.style.left = `${Math.max(0, Math.min(beside, host.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, mark.y - tip.offsetHeight - 10)}px`;
  };
  const nearest = (event) => {
    const box = svg.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = -1, reach = 34 * 34;
    marks.forEach((mark, at) => {
      const gap = (mark.x - x) ** 2 + (mark.y - y) ** 2;
      if (gap < reach) { reach = gap; best = at; }
    });
    return best;
  };
  svg.addEventListener("pointermove", (event) => { const at = nearest(event); if (at < 0) leave(); else if (at !== current) enter(at); });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("blur", leave);
  svg.addEventListener("click", (event) => { const at = nearest(event); if (at >= 0) open(marks[at]); });
  svg.addEventListener("keydown", (event) => {
    const turn = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (turn && ordered.length) {
      event.preventDefault();
      const place = ordered.indexOf(current);
      enter(ordered[place < 0 ? 0 : (place + turn + ordered.length) % ordered.length]);
    } else if (event.key === "Enter" && current >= 0) { event.preventDefault(); open(marks[current]); }
    else if (event.key === "Escape") leave();
  });
}
