// Which processes there are, what they do, and how the engine is.
const nodes = signal(null);
const health = signal(null);

// Health is asked where balancers ask it; a 503 is an answer like any other.
async function loadHealth() {
  try {
    const answer = await fetch('/readyz', { cache: 'no-store' });
    health.value = await answer.json();
  } catch { health.value = null; }
}

const loadNodes = () => Promise.all([load(nodes, '/admin/nodes'), loadHealth()]);
const scopes = { all: () => t('serving_all'), some: () => t('serving_some'), none: () => t('serving_none') };

function Health({ of }) {
  const part = (name, trouble) => html`<div><dt>${name}</dt><dd class=${trouble ? 'wrong' : 'ok'}>${trouble ?? t('fine')}</dd></div>`;
  return html`<section class=${`panel verdict ${of.ready ? 'ok' : 'wrong'}`}><h2>${of.ready ? t('ready') : t('not_ready')}</h2>
    <dl class="pairs">${part(t('engine'), of.engine)}${part(t('database'), of.database)}<div><dt>${t('deciding')}</dt><dd>${scopes[of.serving]?.() ?? of.serving}</dd></div></dl></section>`;
}

function NodesPage() {
  const of = nodes.value;
  return html`<${Frame}><${Heading} title=${t('nodes')} />${health.value && html`<${Health} of=${health.value} />`}
    ${!of ? html`<${Loading} />` : html`<section class="panel"><h2>${t('processes')}</h2><${Rows} label=${t('processes')} head=${[t('node_name'), { name: t('node_number'), num: true }, t('node_logs')]}
      of=${of.nodes.map((node) => ({ key: node.number, cells: [html`<span><span class="main">${node.name}</span>${node.answers && html` <span class="pill">${t('answers')}</span>`}</span>`, node.number, node.logs.join(', ') || t('leader_alone')] }))} /></section>
    <section class="panel"><h2>${t('workers')}</h2><${Rows} label=${t('workers')} head=${[t('worker'), { name: t('failures'), num: true }, t('trouble')]}
      of=${of.workers.map((worker) => ({ key: worker.name, cells: [html`<span class="main">${worker.name}</span>`, number(worker.failures), html`<span class=${worker.trouble ? 'wrong' : 'ok'}>${worker.trouble ?? t('fine')}</span>`] }))} /></section>`}<//>`;
}

let turn = 0;
page('nodes', {
  View: NodesPage, enter: loadNodes, menu: { group: 'machine', place: 70, name: () => t('nodes') },
  every() { turn += 1; return turn % 5 === 0 ? loadNodes() : null; },
});
