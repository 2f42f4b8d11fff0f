// Who is signed in.
const sessions = signal(null);
const hows = { token: () => t('how_token'), link: () => t('how_link'), sandbox: () => t('how_sandbox') };
const loadSessions = () => load(sessions, '/admin/sessions', (body) => body.sessions);
const endOf = (one) => ({ title: t('end_session'), text: t('end_session_text', { user: one.user_id }), method: 'DELETE', where: `/admin/sessions/${one.session_id}`, body: {}, danger: true, after: loadSessions });

function SessionsPage() {
  const head = [t('user'), t('role'), t('how'), t('since'), t('until'), t('actions')];
  return html`<${Frame}><${Heading} title=${t('sessions')} /><p class="muted intro">${t('sessions_text')}</p>
    <section class="panel">${!sessions.value ? html`<${Loading} />` : html`<${Rows} label=${t('sessions')} head=${may() ? head : head.slice(0, -1)} of=${sessions.value.map((one) => ({ key: one.session_id, cells: [
      html`<span class="main">${one.user_id}</span>`, roles[one.role]?.() ?? one.role, hows[one.how]?.() ?? one.how, moment(one.created_at), moment(one.expires_at),
      html`<${Act} action=${endOf(one)} kind="small end-session" />`].slice(0, may() ? 6 : 5) }))} />`}</section><//>`;
}

page('sessions', { View: SessionsPage, enter: loadSessions, menu: { group: 'machine', place: 80, name: () => t('sessions') } });
