// All sales: running, soon, over.
const sales = signal(null);
const images = signal(new Set());
const demo = signal(null);

async function loadSales() {
  const answer = await api('GET', '/sales?limit=100');
  if (answer.ok) { sales.value = answer.body.sales; problem.value = null; } else if (!sales.value) problem.value = answer.body;
  watch((sales.value || []).flatMap((sale) => [sale.opens_at, sale.closes_at]));
}

async function loadImages() {
  const answer = await api('GET', '/sale-images');
  if (answer.ok) images.value = new Set(answer.body.images.map((image) => image.sale_id));
}

const isOver = (sale) => sale.status === 'closed' || (sale.closes_at && Date.parse(sale.closes_at) <= now.value);
const isSoon = (sale) => !isOver(sale) && Date.parse(sale.opens_at) > now.value;
const statusOf = (sale) => (isOver(sale) ? 'closed' : isSoon(sale) ? 'scheduled' : sale.available > 0 ? 'open' : 'sold_out');

function Card({ sale }) {
  const status = statusOf(sale);
  return html`<li class="card"><a href=${path(`sales/${sale.id}`)}>
    <${Picture} src=${images.value.has(sale.id) && `/api/v1/sales/${sale.id}/image`} title=${sale.title} />
    <div class="about"><h3>${sale.title}</h3>
      <p class="price digits">${money(sale.price_cents)}</p>
      <p class="line"><${Pill} status=${status} /> <span class="digits muted">${
        status === 'scheduled' ? duration(Date.parse(sale.opens_at) - now.value)
        : status === 'open' ? t('left', { n: number(sale.available) }) : ''}</span></p>
    </div></a></li>`;
}

function Group({ name, of }) {
  return of.length > 0 && html`<section><h2>${name}</h2><ul class="cards">${of.map((sale) => html`<${Card} key=${sale.id} sale=${sale} />`)}</ul></section>`;
}

function ListPage() {
  if (!sales.value) return html`<${Frame}><h1>${t('sales')}</h1><${Problem} of=${problem.value} />${!problem.value && html`<p class="muted">${t('loading')}</p>`}<//>`;
  if (!sales.value.length) return html`<${Frame}><${Empty} /><//>`;
  const all = sales.value;
  return html`<${Frame}><h1>${t('sales')}</h1><${Problem} of=${problem.value} />
    <${Group} name=${t('running')} of=${all.filter((sale) => !isOver(sale) && !isSoon(sale))} />
    <${Group} name=${t('soon')} of=${all.filter(isSoon).sort((a, b) => a.opens_at.localeCompare(b.opens_at))} />
    <${Group} name=${t('over')} of=${all.filter(isOver)} /><//>`;
}

async function openDemo() {
  demo.value = 'busy';
  const answer = await api('POST', '/admin/demo', { body: {} });
  if (answer.ok) location.assign(path(`sales/${answer.body.sale_id}`));
  else { problem.value = answer.body; demo.value = null; }
}

function Empty() {
  return html`<div class="empty"><span class="mark big" aria-hidden="true">抢</span>
    <h1>${t('empty_title')}</h1><p>${t('empty_text')}</p>
    <${Problem} of=${problem.value} />
    ${facts.sandbox && html`<button class="primary" disabled=${demo.value} onClick=${openDemo}>${t(demo.value ? 'demo_busy' : 'demo')}</button>
    <p class="muted">${t('demo_text')}</p>`}
    <p><a href=${path('console')}>${t('empty_console')}</a> · <a href="/docs/">${t('empty_docs')}</a></p></div>`;
}

function startList() {
  loadSales();
  loadImages();
  poll(() => 4000, loadSales);
}
