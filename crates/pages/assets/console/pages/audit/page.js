// Do all books agree?
const report = signal(null);

async function runAudit() {
  report.value = null;
  const answer = await change({ method: 'GET', where: '/admin/audit' });
  if (answer?.ok) { report.value = answer.body; done.value = ''; }
}

function Report({ of }) {
  return html`<section class=${`panel verdict ${of.ok ? 'ok' : 'wrong'}`}><h2>${of.ok ? t('books_agree') : t('books_differ')}</h2>
    <${Figures}><${Figure} name=${t('audit_sales')} value=${number(of.sales)} /><${Figure} name=${t('audit_claims')} value=${number(of.claims)} /><${Figure} name=${t('audit_orders')} value=${number(of.orders)} />
      <${Figure} name=${t('audit_payments')} value=${number(of.payments)} /><${Figure} name=${t('audit_refunds')} value=${number(of.refunds)} /><${Figure} name=${t('differences')} value=${number(of.difference_count)} />
      <${Figure} name=${t('took')} value=${number(of.took_ms)} unit="ms" /><//>
    ${of.differences.length > 0 && html`<${Rows} label=${t('differences')} head=${[t('about'), t('book'), t('difference')]}
      of=${of.differences.map((one, at) => ({ key: at, cells: [html`<span class="main digits">${one.claim_id ?? one.sale_id}</span>`, one.book, one.what] }))} />`}</section>`;
}

function AuditPage() {
  return html`<${Frame}><${Heading} title=${t('audit')}><button class="primary" id="run-audit" disabled=${changing.value} onClick=${runAudit}>${changing.value ? t('comparing') : t('run_audit')}</button><//>
    <p class="muted intro">${t('audit_text')}</p>${report.value && html`<${Report} of=${report.value} />`}<${Curl} method="GET" where="/admin/audit" /><//>`;
}

page('audit', { View: AuditPage, menu: { group: 'books', place: 50, name: () => t('audit') } });
