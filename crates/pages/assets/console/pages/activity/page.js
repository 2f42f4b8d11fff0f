// Who did what, when.
const actions = signal(null);
const next = signal(null);
const user = signal({ user: '' });

async function loadActions(before) {
  const question = new URLSearchParams({ limit: '50' });
  if (user.value.user.trim()) question.set('user', user.value.user.trim());
  if (before) question.set('before', before);
  const answer = await api('GET', `/admin/actions?${question}`, { fresh: true });
  if (!answer.ok) { problem.value = answer.body; return; }
  actions.value = before ? [...actions.value, ...answer.body.actions] : answer.body.actions;
  next.value = answer.body.next_before ?? null;
}

function Result({ of }) {
  if (of.status === null) return html`<span class="muted">${t('unanswered')}</span>`;
  return html`<span class=${of.status < 400 ? 'ok' : 'wrong'}>${of.status}${of.code && ` ${of.code}`}</span>`;
}

function ActivityPage() {
  return html`<${Frame}><${Heading} title=${t('activity')}><form class="search inline" onSubmit=${(event) => { event.preventDefault(); loadActions(); }}>
      <${Field} name="user" label=${t('all_users')} values=${user} onChange=${() => loadActions()} /></form><//>
    <p class="muted intro">${t('activity_text')}</p>
    <section class="panel">${!actions.value ? html`<${Loading} />` : html`<${Rows} label=${t('activity')} head=${[t('since'), t('user'), t('call'), t('thing'), t('result'), t('note')]}
      of=${actions.value.map((one) => ({ key: one.id, cells: [when(one.at), html`<span class="main">${one.user_id}</span>`, html`<code>${one.method} ${one.route}</code>`, one.thing ?? '–', html`<${Result} of=${one} />`, one.note ?? '–'] }))} />`}
      ${next.value && html`<p><button type="button" class="small" onClick=${() => loadActions(next.value)}>${t('more')}</button></p>`}</section><//>`;
}

page('activity', { View: ActivityPage, enter: () => loadActions(), menu: { group: 'books', place: 60, name: () => t('activity') } });
