// What `bench trace` takes for a number, whether or not it was published.
const plainRef = (point, metric) => `${point.run}:instance=${point.instance}:${metric.metric}.${metric.stat}`;

// The data of the page, unpacked: columns become points with their numbers. A column of one entry holds it for all.
function unpack(packed) {
  const pick = (column, at) => column[column.length === 1 ? 0 : at];
  const { label, run, target, axes, instance, case: cases, workload, trials: behind } = packed.points;
  const points = label.map((name, at) => {
    const own = {};
    for (const [axis, values] of Object.entries(axes)) { const value = pick(values, at); if (value !== null) own[axis] = value; }
    const words = [name, pick(target, at), pick(run, at), ...Object.entries(own).map(([axis, value]) => `${axis}=${value}`)];
    return {
      label: name, run: pick(run, at), target: pick(target, at), axes: own, search: words.join(" ").toLowerCase().replaceAll("@", ""),
      instance: instance[at], case: pick(cases, at), workload: pick(workload, at), trials: behind[at], numbers: {}, refused: new Set(),
    };
  });
  packed.numbers.forEach((column, metric) => {
    column.value.forEach((value, place) => {
      const point = points[column.at ? column.at[place] : place], values = column.values[place];
      point.numbers[metric] = {
        value, text: column.text[place], spread: pick(column.spread, place), n: pick(column.n, place), stdev: pick(column.stdev, place),
        low: pick(column.low, place), high: pick(column.high, place), doubt: pick(column.doubt, place), min: Math.min(...values), max: Math.max(...values),
        samples: pick(column.samples, place), shaky: pick(column.shaky, place), off: pick(column.off, place), ref: column.ref ? column.ref[place] : plainRef(point, packed.metrics[metric]), query: pick(column.query, place),
        values, trials: pick(column.trials, place) || point.trials,
      };
    });
  });
  // By the metric that has numbers elsewhere, or by the figure itself where none is valid anywhere.
  packed.refused.forEach((figure) => figure.at.forEach((at) => points[at].refused.add(figure.metric ?? figure)));
  const { id, outcome, home } = packed.trials;
  const trials = id.map((name, at) => ({ id: name, outcome: pick(outcome, at), folder: pick(home, at) ? pick(home, at) + name : "" }));
  return { ...packed, points, trials };
}
