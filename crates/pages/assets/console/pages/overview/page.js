// The shop at a glance.
const sales = signal([]);
const perSecond = (sample, count) => (count * 1000) / Math.max(1, sample.covers_ms);
const STOCK_COLOURS = ['--c1', '--c2', '--c5', '--c6', '--c7', '--c8', '--c3', '--c4'];

const loadSales = () => load(sales, '/sales?limit=100', (body) => body.sales);

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

const nameOf = (id) => sales.value.find((one) => one.id === id)?.title || id;
const asMs = (value) => `${asTenths.format(value)} ms`;
const round = (value) => number(Math.round(value));

function Now({ of }) {
  const value = (read) => (of && read(of) != null ? read(of) : null);
  const shown = (name, known, unit, write = round) => html`<${Figure} name=${name} value=${known === null ? '–' : write(known)} unit=${known !== null && unit} />`;
  const claims = value((one) => perSecond(one, one.granted + one.replayed + one.sold_out + one.refused + one.failed));
  return html`<${Figures}>${shown(t('claims_second'), claims)}
    ${shown(t('p99'), value((one) => one.p99_us), 'ms', (us) => asTenths.format(us / 1000))}
    ${shown(t('lag'), value((one) => one.lag_events))}
    ${shown(t('memory'), value((one) => one.memory_bytes / 1e6), 'MB')}
    ${shown(t('processor'), value((one) => one.processor_percent), '%')}
    ${shown(t('nodes_up'), value((one) => one.nodes))}<//>`;
}

function OverviewPage() {
  const of = columnsOf(samples.value);
  const on = sales.value.filter((sale) => sale.status !== 'closed' && sale.status !== 'cleared');
  return html`<${Frame}><${Heading} title=${t('overview')}><${Spans} /><//>
    <${Stale} /><${Now} of=${samples.value.at(-1)} />
    <div class="grid">
      <${Plot} name="claims" title=${t('claims_second')} data=${of.claims} format=${round}
        lines=${[line(t('granted'), '--c1', { fill: true, width: 2 }), line(t('sold_out'), '--c2'), line(t('refused'), '--c3'), line(t('failed'), '--c4')]} />
      <${Plot} name="latency" title=${t('latency')} data=${of.latency} format=${asMs}
        lines=${[line('p50', '--c1'), line('p99', '--c2'), line('p99.9', '--c4')]} />
      ${of.ids.length > 0 && html`<${Plot} name="stock" title=${t('stock_left')} data=${of.stock}
        lines=${of.ids.map((id, place) => line(nameOf(id), STOCK_COLOURS[place], { fill: of.ids.length === 1, width: 2 }))} />`}
      <${Plot} name="lag" title=${t('lag')} note=${t('lag_note')} data=${of.lag} lines=${[line(t('events'), '--c5', { fill: true })]} />
      <${Plot} name="memory" title=${t('memory')} data=${of.memory} format=${(value) => `${asTenths.format(value)} MB`} lines=${[line(t('in_use'), '--c6', { fill: true })]} />
      <${Plot} name="processor" title=${t('processor')} note=${t('one_core')} data=${of.processor} format=${(value) => `${round(value)} %`} lines=${[line(t('used'), '--c3', { fill: true })]} />
    </div>
    <section class="panel"><h2>${t('on_now')}</h2><${SaleRows} of=${on} label=${t('on_now')} empty=${t('none_on')} /></section><//>`;
}

page('overview', { View: OverviewPage, enter: loadSales, every: loadSales, menu: { place: 0, name: () => t('overview') } });
