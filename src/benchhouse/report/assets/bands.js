// The first chart of a large sweep: what all points at one value of an axis come to, instead of each of them.
const SPLIT = 6, MOST_BANDS = 48;

function quartiles(values) {
  const ordered = [...values].sort((a, b) => a - b);
  const at = (share) => {
    const place = share * (ordered.length - 1), low = Math.floor(place), high = Math.min(low + 1, ordered.length - 1);
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low);
  };
  return { n: ordered.length, min: ordered[0], low: at(0.25), median: at(0.5), high: at(0.75), max: ordered[ordered.length - 1] };
}

// One series a colour where the axis that colours has few values, else one of all points; in each a summary a place.
function summaries(points, axis, colourAxis, brush) {
  const series = new Map();
  for (const point of points) {
    const key = colourAxis ? String(point.axes[colourAxis.name]) : "", place = point.axes[axis.name];
    if (place === undefined) continue;
    if (!series.has(key)) series.set(key, { key, colour: colourAxis ? brush.colour(point.axes[colourAxis.name]) : "var(--c0)", places: new Map() });
    const { places } = series.get(key);
    if (!places.has(place)) places.set(place, []);
    places.get(place).push(point.numbers[state.metric].value);
  }
  return [...series.values()].map(({ key, colour, places }) => ({ key, colour, places: [...places].map(([place, values]) => ({ place, ...quartiles(values) })) }));
}

function tellBand({ band, axis, key, metric }) {
  return [
    html("b", {}, withUnit(show(band.median), metric.unit)), ` median ${metric.label}`,
    html("span", { class: "soft" }, `${axis.title}=${band.place}${key ? ", " + key : ""}: ${band.n} point${band.n === 1 ? "" : "s"}`),
    html("span", { class: "soft" }, `middle half ${show(band.low)} to ${show(band.high)}, all ${show(band.min)} to ${show(band.max)}`),
    html("span", { class: "soft" }, "click: these points in the table"),
  ];
}
function openBand({ band, axis }) {
  const filter = document.getElementById("filter");
  filter.value = `${axis.title}=${band.place}`;
  filter.dispatchEvent(new Event("input"));
  document.getElementById("points-section").scrollIntoView();
}

function drawBands(chart) {
  const { axis, metric, notes } = chart;
  const colourAxis = axisNamed(state.colour), split = colourAxis && colourAxis !== axis && colourAxis.values.length <= SPLIT ? colourAxis : null;
  legend(document.getElementById("sweep-legend"), split, chart.brush);
  const series = summaries(chart.points, axis, split, chart.brush);
  notes.push(`Line or tick: median of the points there. Bar or band: the middle half of them${split && axis.numeric ? "" : "; thin: all"}. A click filters the table.`);
  const marks = axis.numeric ? bandsAlong(chart, series) : bandRows(chart, series);
  return marks.map((mark) => ({ ...mark, axis, metric }));
}

function bandsAlong({ host, metric, axis }, series) {
  const width = host.clientWidth, height = width < 560 ? 300 : 380, left = 62;
  const { x, geometric } = along(axis, left, width);
  const y = scale(series.flatMap((one) => one.places.flatMap((band) => [band.min, band.max])), height - 40, 10, { log: state.log, zero: state.zero });
  const label = `${metric.label} along ${axis.title}; arrow keys walk its values, Enter shows their points in the table`;
  const svg = frame(host, { width, height, left, x, y, xLabel: axis.title + (geometric ? ", log scale" : ""), yLabel: titled(metric), label });
  const marks = [];
  for (const { key, colour, places } of series) {
    const line = places.filter((band) => y.fits(band.min)).sort((a, b) => a.place - b.place);
    const spot = (band, name) => `${round(x.map(band.place))} ${round(y.map(band[name]))}`;
    const area = (low, high, opacity) => make(svg, "path", { d: `M${line.map((band) => spot(band, high)).join("L")}L${[...line].reverse().map((band) => spot(band, low)).join("L")}Z`, fill: colour, opacity });
    if (!line.length) continue;
    if (series.length === 1) area("min", "max", 0.12);
    area("low", "high", 0.22);
    make(svg, "path", { d: "M" + line.map((band) => spot(band, "median")).join("L"), fill: "none", stroke: colour, "stroke-width": 1.8 });
    for (const band of line) marks.push({ x: x.map(band.place), y: y.map(band.median), band, key });
    make(svg, "path", { d: line.map((band) => SHAPES[0](round(x.map(band.place)), round(y.map(band.median)), 2.6)).join(""), fill: colour });
  }
  return marks;
}

function bandRows({ host, metric, axis, notes }, series) {
  const best = new Map();
  for (const { places } of series) for (const band of places) {
    const worth = (metric.direction === "lower" ? 1 : -1) * band.median;
    best.set(band.place, Math.min(worth, best.get(band.place) ?? Infinity));
  }
  const names = [...best.keys()].sort((a, b) => best.get(a) - best.get(b)).slice(0, MOST_BANDS);
  if (best.size > MOST_BANDS) notes.push(`The ${extreme(metric)} ${MOST_BANDS} of ${best.size} values are drawn; the table below holds all.`);
  const width = host.clientWidth, longest = Math.max(...names.map((name) => String(name).length), 1);
  const left = Math.min(longest * 6.8 + 16, width * 0.34), step = 11, row = Math.max(28, series.length * step + 14), height = 10 + names.length * row + 40;
  const x = scale(series.flatMap((one) => one.places.flatMap((band) => [band.min, band.max])), left, width - 14, { log: state.log, zero: state.zero, wanted: (width - left) / 80 });
  const rows = names.map((name, at) => ({ name: String(name), y: 10 + row * (at + 0.5) }));
  const svg = frame(host, { width, height, left, x, rows, xLabel: titled(metric), label: `${metric.label} by ${axis.title}` });
  const marks = [];
  series.forEach(({ key, colour, places }, at) => {
    for (const band of places) {
      const place = names.indexOf(band.place);
      if (place < 0 || !x.fits(band.min)) continue;
      const level = rows[place].y + (at - (series.length - 1) / 2) * step;
      make(svg, "path", { d: `M${round(x.map(band.min))} ${level}H${round(x.map(band.max))}`, stroke: colour, "stroke-width": 1.2, opacity: 0.6 });
      make(svg, "path", { d: `M${round(x.map(band.low))} ${level}H${round(x.map(band.high))}`, stroke: colour, "stroke-width": 7, opacity: 0.45 });
      make(svg, "path", { d: `M${round(x.map(band.median))} ${level - 5}v10`, stroke: colour, "stroke-width": 2.2 });
      marks.push({ x: x.map(band.median), y: level, band, key });
    }
  });
  return marks;
}
