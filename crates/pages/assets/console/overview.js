// The shop at a glance.
const perSecond = (sample, count) => (count * 1000) / Math.max(1, sample.covers_ms);
const STOCK_COLOURS = ['--c1', '--c2', '--c3', '--c4', '--c5', '--c6', '--c7', '--c8'];

// The columns of all plots, made once for each new sample.
let columns = { of: null };
function columnsOf(all) {
  if (columns.of === all) return columns;
  const column = (read) => all.map(read);
  const times = column((one) => timeOf(one) / 1000);
  const ms = (name) => column((one) => (one[name] === null ? null : one[name] / 1000));
  const rate = (name) => column((one) => perSecond(one, one[name]));
  const ids = [...new Set(all.flatMap((one) => one.sales.map((its) => its.sale_id)))].slice(-STOCK_COLOURS.length);
  const left = (id) => column((one) => one.sales.find((its) => its.sale_id === id)?.available ?? null);
  columns = {
    of: all, ids,
    claims: [times, rate('granted'), rate('sold_out'), rate('refused'), rate('failed')],
    latency: [times, ms('p50_us'), ms('p99_us'), ms('p999_us')],
    stock: [times, ...ids.map(left)],
    lag: [times, column((one) => one.lag_events)],
    memory: [times, column((one) => one.memory_bytes / 1e6)],
    processor: [times, column((one) => one.processor_percent)],
  };
  return columns;
}

const nameOf = (id) => (sales.value || []).find((one) => one.id === id)?.title || id;
const asMs = (value) => `${asTenths.format(value)} ms`;

function Figure({ name, value, unit }) {
  return html`<div><dt>${name}</dt><dd class="digits">${value}${unit && html` <small>${unit}</small>`}</dd></div>`;
}

function OverviewPage() {
  const all = samples.value;
  const last = all.at(-1);
  const of = columnsOf(all);
  const claims = last && perSecond(last, last.granted + last.replayed + last.sold_out + last.refused + last.failed);
  const running = (sales.value || []).filter((sale) => sale.status !== 'closed');
  return html`<${Frame}><div class="heading"><h1>${t('c_overview')}</h1><${Spans} /></div>
    <${Stale} />
    <dl class="figures">
      <${Figure} name=${t('c_claims')} value=${last ? number(Math.round(claims)) : '–'} />
      <${Figure} name=${t('c_p99')} value=${last?.p99_us == null ? '–' : asTenths.format(last.p99_us / 1000)} unit=${last?.p99_us != null && 'ms'} />
      <${Figure} name=${t('c_lag')} value=${last?.lag_events == null ? '–' : number(last.lag_events)} />
      <${Figure} name=${t('c_memory')} value=${last ? number(Math.round(last.memory_bytes / 1e6)) : '–'} unit=${last && 'MB'} />
      <${Figure} name=${t('c_processor')} value=${last ? number(Math.round(last.processor_percent)) : '–'} unit=${last && '%'} />
      <${Figure} name=${t('c_nodes')} value=${last ? number(last.nodes) : '–'} />
    </dl>
    <div class="grid">
      <${Plot} name="claims" title=${t('c_claims')} data=${of.claims} format=${(value) => number(Math.round(value))}
        lines=${[line(t('c_granted'), '--c1', { fill: true, width: 2 }), line(t('c_sold_out'), '--c2'), line(t('c_refused'), '--c3'), line(t('c_failed'), '--c4')]} />
      <${Plot} name="latency" title=${t('c_latency')} data=${of.latency} format=${asMs}
        lines=${[line('p50', '--c1'), line('p99', '--c2'), line('p99.9', '--c4')]} />
      ${of.ids.length > 0 && html`<${Plot} name="stock" title=${t('c_stock_left')} data=${of.stock}
        lines=${of.ids.map((id, place) => line(nameOf(id), STOCK_COLOURS[place], { fill: of.ids.length === 1, width: 2 }))} />`}
      <${Plot} name="lag" title=${t('c_lag')} note=${t('c_lag_note')} data=${of.lag} lines=${[line(t('c_events'), '--c5', { fill: true })]} />
      <${Plot} name="memory" title=${t('c_memory')} data=${of.memory} format=${(value) => `${asTenths.format(value)} MB`} lines=${[line(t('c_resident'), '--c6', { fill: true })]} />
      <${Plot} name="processor" title=${t('c_processor')} note=${t('c_percent')} data=${of.processor} format=${(value) => `${number(Math.round(value))} %`} lines=${[line(t('c_used'), '--c3', { fill: true })]} />
    </div>
    <section class="panel"><h2>${t('running')}</h2><${SaleRows} of=${running} /></section><//>`;
}
