// Money that has to go back, and money that went.
const refunds = signal(null);
const status = signal('due');
const next = signal(null);

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

function RefundsPage() {
  const choose = (one) => { status.value = one; refunds.value = null; loadRefunds(); };
  const head = [t('order'), t('payment'), { name: t('amount'), num: true }, t('reason'), t('since'), t('actions')];
  const due = status.value === 'due' && may();
  return html`<${Frame}><${Heading} title=${t('refunds')}><${Choice} label=${t('state')} of=${[['due', t('due')], ['settled', t('settled')]]} chosen=${status.value} choose=${choose} /><//>
    <p class="muted intro">${t('refunds_text')}</p>
    <section class="panel">${!refunds.value ? html`<${Loading} />` : html`<${Rows} label=${t('refunds')} head=${due ? head : head.slice(0, -1)} empty=${status.value === 'due' ? t('none_due') : t('none')}
      of=${refunds.value.map((refund) => ({ key: `${refund.sale_id}/${refund.payment_id}`, cells: [
        html`<span class="main digits">${refund.order_id}</span>`, refund.payment_id, money(refund.amount_cents), reasons[refund.reason](), moment(refund.due_at),
        due && html`<${Act} action=${settleOf(refund)} kind="small settle" />`].slice(0, due ? 6 : 5) }))} />`}
      ${next.value && html`<p><button type="button" class="small" onClick=${() => loadRefunds(next.value)}>${t('more')}</button></p>`}</section><//>`;
}

page('refunds', { View: RefundsPage, enter: () => loadRefunds(), menu: { group: 'sales', place: 30, name: () => t('refunds') } });
