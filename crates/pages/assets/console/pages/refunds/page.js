// Money that has to go back, and money that went.
const refunds = signal(null);
const status = signal('due');
const next = signal(null);
const chosen = signal(new Set());

// What one call takes.
const MOST_AT_ONCE = 100;

const reasons = { late: () => t('reason_late'), already_paid: () => t('reason_already_paid'), amount_mismatch: () => t('reason_amount_mismatch'), claim_lost: () => t('reason_claim_lost'), revoked: () => t('reason_revoked') };

async function loadRefunds(after) {
  const answer = await api('GET', `/admin/refunds?status=${status.value}${after ? `&after=${encodeURIComponent(after)}` : ''}`, { fresh: true });
  if (!answer.ok) { problem.value = answer.body; return; }
  refunds.value = after ? [...refunds.value, ...answer.body.refunds] : answer.body.refunds;
  next.value = answer.body.next_after ?? null;
}

const settleOf = (refund) => ({
  title: t('settle'), text: t('settle_text', { amount: money(refund.amount_cents) }), method: 'POST', body: {},
  where: `/admin/refunds/${refund.sale_id}/${encodeURIComponent(refund.payment_id)}/settle`, after: () => loadRefunds(),
});

// Marks for the many: which refunds were sent together.
const keyOf = (refund) => `${refund.sale_id}/${refund.payment_id}`;
const isChosen = (refund) => chosen.value.has(keyOf(refund));
function choose(refunds, on) {
  const after = new Set(chosen.value);
  refunds.forEach((refund) => (on ? after.add(keyOf(refund)) : after.delete(keyOf(refund))));
  chosen.value = after;
}

function settleMany(all) {
  return {
    title: t('settle_many', { n: number(all.length) }), text: t('settle_text', { amount: money(all.reduce((sum, refund) => sum + refund.amount_cents, 0)) }), method: 'POST', where: '/admin/refunds/settle',
    body: { refunds: all.map(({ sale_id, payment_id }) => ({ sale_id, payment_id })) }, after: () => { chosen.value = new Set(); return loadRefunds(); },
  };
}

function Many({ of }) {
  const marked = of.filter(isChosen).slice(0, MOST_AT_ONCE);
  return html`<div class="many"><label><input type="checkbox" class="all" checked=${marked.length > 0 && of.every(isChosen)} onChange=${(event) => choose(of, event.target.checked)} /> ${t('all_of_them')}</label>
    ${marked.length > 0 && html`<${Act} action=${settleMany(marked)} kind="small primary settle-many" />`}</div>`;
}

function RefundsPage() {
  const turn = (one) => { status.value = one; refunds.value = null; chosen.value = new Set(); loadRefunds(); };
  const head = [t('order'), t('payment'), { name: t('amount'), num: true }, t('reason'), t('since'), t('actions')];
  const due = status.value === 'due' && may();
  return html`<${Frame}><${Heading} title=${t('refunds')}><${Choice} label=${t('state')} of=${[['due', t('due')], ['settled', t('settled')]]} chosen=${status.value} choose=${turn} /><//>
    <p class="muted intro">${t('refunds_text')}</p>
    <section class="panel">${due && refunds.value?.length > 1 && html`<${Many} of=${refunds.value} />`}${!refunds.value ? html`<${Loading} />` : html`<${Rows} label=${t('refunds')} head=${due ? head : head.slice(0, -1)} empty=${status.value === 'due' ? t('none_due') : t('none')}
      of=${refunds.value.map((refund) => ({ key: `${refund.sale_id}/${refund.payment_id}`, cells: [
        due ? html`<label class="mark-one"><input type="checkbox" checked=${isChosen(refund)} onChange=${(event) => choose([refund], event.target.checked)} /> <span class="main digits">${refund.order_id}</span></label>` : html`<span class="main digits">${refund.order_id}</span>`, refund.payment_id, money(refund.amount_cents), reasons[refund.reason](), moment(refund.due_at),
        due && html`<${Act} action=${settleOf(refund)} kind="small settle" />`].slice(0, due ? 6 : 5) }))} />`}
      ${next.value && html`<p><button type="button" class="small" onClick=${() => loadRefunds(next.value)}>${t('more')}</button></p>`}</section><//>`;
}

page('refunds', { View: RefundsPage, enter: () => loadRefunds(), menu: { group: 'sales', place: 30, name: () => t('refunds') } });
