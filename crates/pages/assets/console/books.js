// Refunds, the audit, nodes, who is signed in, and the settings.
const refunds = signal([]);
const refundStatus = signal('due');
const report = signal(null);
const nodes = signal(null);
const sessions = signal([]);

async function loadRefunds() {
  const answer = await api('GET', `/admin/refunds?status=${refundStatus.value}`, { fresh: true });
  if (answer.ok) refunds.value = answer.body.refunds; else problem.value = answer.body;
}

const reasons = { late: () => t('c_reason_late'), already_paid: () => t('c_reason_already_paid'), amount_mismatch: () => t('c_reason_amount_mismatch'), claim_lost: () => t('c_reason_claim_lost'), revoked: () => t('c_reason_revoked') };

function RefundsPage() {
  const settle = (refund) => `/admin/refunds/${refund.sale_id}/${encodeURIComponent(refund.payment_id)}/settle`;
  const show = (status) => async () => { refundStatus.value = status; await loadRefunds(); };
  return html`<${Frame}><h1>${t('c_refunds')}</h1>
    <div class="row"><button aria-pressed=${refundStatus.value === 'due'} class=${refundStatus.value === 'due' ? 'primary' : ''} onClick=${show('due')}>${t('c_due')}</button>
      <button aria-pressed=${refundStatus.value === 'settled'} class=${refundStatus.value === 'settled' ? 'primary' : ''} onClick=${show('settled')}>${t('c_settled')}</button></div>
    <section class="panel"><${Rows} head=${[t('c_order'), t('c_payment'), t('c_amount'), t('c_reason'), t('c_since'), t('c_actions')]} of=${refunds.value.map((refund) => html`<tr key=${`${refund.sale_id}/${refund.payment_id}`}>
      <td class="digits">${refund.order_id}</td><td>${refund.payment_id}</td><td class="digits">${money(refund.amount_cents)}</td><td>${reasons[refund.reason]()}</td><td>${when(refund.due_at)}</td>
      <td>${refund.status === 'due' && may() && html`<button disabled=${changing.value} onClick=${async () => { await act('settle', 'POST', settle(refund), {}); await loadRefunds(); }}>${t('c_settle')}</button><${Curl} method="POST" where=${settle(refund)} body=${{}} />`}</td></tr>`)} /></section><//>`;
}

function AuditPage() {
  const of = report.value;
  return html`<${Frame}><h1>${t('c_audit')}</h1><p>${t('c_audit_intro')}</p>
    <p><button class="primary" disabled=${changing.value} onClick=${async () => { report.value = null; const answer = await act('audit', 'GET', '/admin/audit'); if (answer?.ok) report.value = answer.body; }}>${t('c_run_audit')}</button></p>
    <${Curl} method="GET" where="/admin/audit" />
    ${of && html`<section class="panel"><h2 class=${of.ok ? 'ok' : 'wrong'}>${t(of.ok ? 'c_books_agree' : 'c_books_differ')}</h2>
      <p>${t('c_audit_text', { claims: number(of.claims), orders: number(of.orders), ms: number(of.took_ms) })}</p>
      ${!of.ok && html`<pre tabindex="0">${JSON.stringify(of, null, 2)}</pre>`}</section>`}<//>`;
}

async function loadNodes() {
  const answer = await api('GET', '/admin/nodes', { fresh: true });
  if (answer.ok) nodes.value = answer.body; else problem.value = answer.body;
}

function NodesPage() {
  const of = nodes.value || { nodes: [], workers: [] };
  return html`<${Frame}><h1>${t('c_nodes')}</h1>
    <section class="panel"><${Rows} head=${[t('c_number'), t('c_name'), t('c_logs')]} of=${of.nodes.map((node) => html`<tr key=${node.number}><td class="digits">${node.number}</td><td>${node.name} ${node.answers && html`<span class="muted">${t('c_answers')}</span>`}</td><td>${node.logs.join(', ')}</td></tr>`)} /></section>
    <section class="panel"><${Rows} head=${[t('c_worker'), t('c_failures'), t('c_trouble')]} of=${of.workers.map((worker) => html`<tr key=${worker.name}><td>${worker.name}</td><td class="digits">${number(worker.failures)}</td><td class=${worker.trouble ? 'wrong' : 'ok'}>${worker.trouble || t('c_fine')}</td></tr>`)} /></section><//>`;
}

async function loadSessions() {
  const answer = await api('GET', '/admin/sessions', { fresh: true });
  if (answer.ok) sessions.value = answer.body.sessions; else problem.value = answer.body;
}

const roles = { buyer: () => t('c_role_buyer'), viewer: () => t('c_role_viewer'), admin: () => t('c_role_admin') };
const hows = { token: () => t('c_how_token'), link: () => t('c_how_link'), sandbox: () => t('c_how_sandbox') };

function SessionsPage() {
  return html`<${Frame}><h1>${t('c_sessions')}</h1><section class="panel"><${Rows} head=${[t('c_user'), t('c_role'), t('c_how'), t('c_since'), t('c_until'), t('c_actions')]} of=${sessions.value.map((one) => html`<tr key=${one.session_id}>
    <td>${one.user_id}</td><td>${roles[one.role]()}</td><td>${hows[one.how]()}</td><td>${when(one.created_at)}</td><td>${when(one.expires_at)}</td>
    <td>${may() && html`<button disabled=${changing.value} onClick=${async () => { await act('end', 'DELETE', `/admin/sessions/${one.session_id}`, {}); await loadSessions(); }}>${t('c_end')}</button>`}</td></tr>`)} /></section><//>`;
}

const settings = signal([]);

async function loadSettings() {
  const answer = await api('GET', '/admin/settings', { fresh: true });
  if (answer.ok) settings.value = answer.body.settings; else problem.value = answer.body;
}

function SettingsPage() {
  return html`<${Frame}><h1>${t('c_settings')}</h1><p>${t('c_settings_text')}</p><section class="panel"><${Rows} head=${[t('c_key'), t('c_value'), t('c_source')]} of=${settings.value.map((one) => html`<tr key=${one.key}>
    <td>${one.key}</td><td class="digits">${one.value ?? html`<span class="muted">${t('c_hidden')}</span>`}</td><td class="muted">${one.source}</td></tr>`)} /></section><//>`;
}
