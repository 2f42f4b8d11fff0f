// All sales.
const sales = signal(null);
const shown = signal('all');
const currentId = signal(null);

const loadSales = () => load(sales, '/sales?limit=100', (body) => body.sales);

async function loadCurrent() {
  const answer = await api('GET', '/current-sale', { fresh: true });
  if (answer.ok) currentId.value = answer.body.id;
}

function SalesPage() {
  const all = sales.value ?? [];
  const kinds = [['all', t('all')], ...['scheduled', 'open', 'sold_out', 'closed'].map((status) => [status, t('status_' + status)])];
  const of = all.filter((sale) => shown.value === 'all' || sale.status === shown.value);
  return html`<${Frame}><${Heading} title=${t('sales')}>${may() && html`<a class="button primary" href="#/sales/new">${t('new_sale')}</a>`}<//>
    <div class="filters"><${Choice} label=${t('state')} of=${kinds} chosen=${shown.value} choose=${(kind) => { shown.value = kind; }} /></div>
    <section class="panel">${sales.value ? html`<${SaleRows} of=${of} label=${t('sales')} empty=${all.length ? t('none') : t('no_sales')} />` : html`<${Loading} />`}</section><//>`;
}
