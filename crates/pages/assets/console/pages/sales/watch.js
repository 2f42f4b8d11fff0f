// One sale, second by second: what the samples remember of it, and what is seen while the page is open.
const seen = signal({ id: null, points: [] });

const pointOf = (at, its) => ({ at, available: its.available, held: its.held, ordered: its.ordered, paid: its.paid });

// Called with each state of the sale that this page has loaded.
function watchSale(its) {
  const known = seen.value.id === its.id ? seen.value.points : [];
  const at = Math.round(serverNow() / 1000);
  const remembered = samples.value.flatMap((one) => {
    const stock = one.sales.find((other) => other.sale_id === its.id);
    return stock ? [pointOf(Math.round(timeOf(one) / 1000), stock)] : [];
  });
  const all = new Map([...remembered, ...known, pointOf(at, its)].map((one) => [one.at, one]));
  seen.value = { id: its.id, points: [...all.values()].sort((a, b) => a.at - b.at).slice(-SHOWN) };
}

let saleColumns = { of: null };
function columnsOfSale(points) {
  if (saleColumns.of === points) return saleColumns;
  const times = points.map((one) => one.at);
  const taken = points.map((one, place) => {
    const before = points[place - 1];
    return before ? Math.max(0, before.available - one.available) / (one.at - before.at) : null;
  });
  saleColumns = {
    of: points,
    units: [times, ...['available', 'held', 'ordered', 'paid'].map((name) => points.map((one) => one[name]))],
    taken: [times, taken],
  };
  return saleColumns;
}

function SalePlots({ of }) {
  if (seen.value.id !== of.id) return null;
  const { units, taken } = columnsOfSale(seen.value.points);
  return html`<div class="heading"><h2>${t('live')}</h2><${Spans} /></div><${Stale} /><div class="grid">
    <${Plot} name="units" title=${t('units_now')} data=${units}
      lines=${[line(t('left'), '--c1', { fill: true, width: 2 }), line(t('held'), '--c5'), line(t('ordered'), '--c2'), line(t('paid'), '--c6')]} />
    <${Plot} name="taken" title=${t('taken')} data=${taken} format=${(value) => asTenths.format(value)} lines=${[line(t('taken_units'), '--c1', { fill: true })]} />
  </div>`;
}
