// What this server works by, and who said so.
const settings = signal(null);

function SettingsPage() {
  return html`<${Frame}><${Heading} title=${t('settings')} /><p class="muted intro">${t('settings_text')}</p>
    <section class="panel">${!settings.value ? html`<${Loading} />` : html`<${Rows} label=${t('settings')} head=${[t('key'), t('value'), t('source')]} of=${settings.value.map((one) => ({ key: one.key, cells: [
      html`<code class="main">${one.key}</code>`, one.value === null ? html`<span class="muted">${t('hidden')}</span>` : one.value === '' ? html`<span class="muted">–</span>` : html`<code>${one.value}</code>`, html`<span class="muted">${one.source}</span>`] }))} />`}</section><//>`;
}

page('settings', { View: SettingsPage, enter: () => load(settings, '/admin/settings', (body) => body.settings), menu: { group: 'machine', place: 90, name: () => t('settings') } });
