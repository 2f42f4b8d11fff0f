// Do all books agree, and did they before?
const audits = signal(null);
const next = signal(null);
const opened = signal(null);

async function loadAudits(before) {
  const answer = await api('GET', `/admin/audits?limit=20${before ? `&before=${encodeURIComponent(before)}` : ''}`, { fresh: true });
  if (!answer.ok) { problem.value = answer.body; return; }
  audits.value = before ? [...audits.value, ...answer.body.audits] : answer.body.audits;
  next.value = answer.body.next_before ?? null;
}

async function runAudit() {
  const answer = await change({ method: 'POST', where: '/admin/audits', body: {} });
  if (!answer?.ok) return;
  done.value = '';
  opened.value = answer.body.id;
  await loadAudits();
}

const results = { agree: () => t('books_agree'), differ: () => t('books_differ'), unfinished: () => t('unfinished') };
const hows = { asked: () => t('how_asked'), repair: () => t('how_repair'), by_itself: () => t('how_by_itself') };
const isFine = (one) => one.result === 'agree';

function Found({ of }) {
  const figure = (name, value, unit) => html`<${Figure} name=${name} value=${number(value)} unit=${unit} />`;
  return html`<section class=${`panel verdict ${isFine(of) ? 'ok' : 'wrong'}`}><h2>${results[of.result]()}</h2><p class="muted">${when(of.at)}${of.error && ` · ${of.error}`}</p>
    <${Figures}>${figure(t('audit_sales'), of.sales)}${figure(t('audit_claims'), of.claims)}${figure(t('audit_orders'), of.orders)}${figure(t('audit_payments'), of.payments)}
      ${figure(t('audit_refunds'), of.refunds)}${figure(t('differences'), of.difference_count)}${figure(t('took'), of.took_ms, 'ms')}<//>
    ${of.differences.length > 0 && html`<${Rows} label=${t('differences')} head=${[t('about'), t('book'), t('difference')]}
      of=${of.differences.map((one, at) => ({ key: at, cells: [html`<span class="main digits">${one.claim_id ?? one.sale_id}</span>`, one.book, one.what] }))} />`}</section>`;
}

function History({ of }) {
  return html`<section class="panel"><h2>${t('history')}</h2><${Rows} label=${t('history')} head=${[t('since'), t('result'), t('how_run'), { name: t('audit_claims'), num: true }, { name: t('differences'), num: true }, { name: t('took'), num: true }]}
    of=${of.map((one) => ({ key: one.id, cells: [html`<button type="button" class="link" aria-pressed=${opened.value === one.id} onClick=${() => { opened.value = one.id; }}>${moment(one.at)}</button>`,
      html`<span class=${isFine(one) ? 'ok' : 'wrong'}>${results[one.result]()}</span>`, `${hows[one.how]()}${one.user_id ? ` · ${one.user_id}` : ''}`, number(one.claims), number(one.difference_count), `${number(one.took_ms)} ms`] }))} />
    ${next.value && html`<p><button type="button" class="small" onClick=${() => loadAudits(next.value)}>${t('more')}</button></p>`}</section>`;
}

function AuditPage() {
  const all = audits.value;
  const shown = all?.find((one) => one.id === opened.value) ?? all?.[0];
  return html`<${Frame}><${Heading} title=${t('audit')}>${may() && html`<button class="primary" id="run-audit" disabled=${changing.value} onClick=${runAudit}>${changing.value ? t('comparing') : t('run_audit')}</button>`}<//>
    <p class="muted intro">${t('audit_text')}</p>${!all ? html`<${Loading} />` : html`${shown && html`<${Found} of=${shown} />`}<${History} of=${all} />`}
    ${may() && html`<${Curl} method="POST" where="/admin/audits" body=${{}} />`}<//>`;
}

page('audit', { View: AuditPage, enter: () => loadAudits(), menu: { group: 'books', place: 50, name: () => t('audit') } });
