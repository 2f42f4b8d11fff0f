// What a sale came to: #/report/ID. The same as CSV and as a page to print.
const report = signal(null);

const loadReport = (id) => load(report, `/admin/sales/${encodeURIComponent(id)}/report`);
const fileOf = (id, format) => `/api/v1/admin/sales/${encodeURIComponent(id)}/report?format=${format}&lang=${facts.lang}`;
const asPercent = new Intl.NumberFormat(locale, { style: 'percent', maximumFractionDigits: 1 });
const seconds = (ms) => (ms < 60_000 ? `${asTenths.format(ms / 1000)} s` : duration(ms));

let columns = { of: null };
function columnsOf(points) {
  if (columns.of === points) return columns;
  const times = points.map((one) => Date.parse(one.at) / 1000);
  const column = (name) => points.map((one) => one[name]);
  columns = { of: points, answers: [times, column('granted'), column('refused'), column('paid')], left: [times, column('left')] };
  return columns;
}

function Part({ name, children }) {
  return html`<h2>${name}</h2><${Figures}>${children}<//>`;
}

function Plots({ of }) {
  const { answers, left } = columnsOf(of.timeline.points);
  if (!of.timeline.points.length) return null;
  return html`<div class="grid"><${Plot} name="report-answers" whole title=${t('plot_answers')} data=${answers} lines=${[line(t('line_granted'), '--c1', { fill: true, width: 2 }), line(t('line_refused'), '--c3'), line(t('line_paid'), '--c6')]} />
    <${Plot} name="report-left" whole title=${t('plot_left')} data=${left} lines=${[line(t('line_left'), '--c2', { fill: true, width: 2 })]} /></div>`;
}

function Sums({ of }) {
  const { units, money: cash, speed, answers } = of;
  const count = (name, value, unit) => html`<${Figure} name=${name} value=${number(value)} unit=${unit} />`;
  const sum = (name, cents, many) => html`<${Figure} name=${name} value=${money(cents)} unit=${many > 0 && `× ${number(many)}`} />`;
  const time = (name, ms, none = '–') => html`<${Figure} name=${name} value=${ms == null ? none : seconds(ms)} />`;
  return html`<${Part} name=${t('report_units')}>${count(t('sold'), units.sold, t('of', { n: number(units.stock) }))}${count(t('paid'), units.paid)}${count(t('ordered'), units.ordered)}${count(t('held'), units.held)}
      ${count(t('released_units'), units.released)}${count(t('returned_units'), units.returned)}${count(t('left'), units.left)}<//>
    <${Part} name=${t('report_money')}>${sum(t('earned'), cash.earned_cents)}${sum(t('received'), cash.paid_cents, cash.payments)}${sum(t('refunded'), cash.refunded_cents, cash.refunds)}${sum(t('refund_due'), cash.due_cents, cash.refunds_due)}<//>
    <${Part} name=${t('report_speed')}>${time(t('sold_out_after'), speed.sold_out_after_ms, t('not_sold_out'))}${count(t('peak_granted'), speed.peak_granted_per_sec)}${count(t('peak_claims'), speed.peak_claims_per_sec)}${time(t('half_paid'), speed.paid_within?.half_ms)}<//>
    <${Part} name=${t('report_answers')}>${count(t('asked'), answers.asked)}${count(t('answers_granted'), answers.granted, `${asTenths.format(answers.granted_percent)} %`)}${count(t('buyers'), answers.buyers)}${count(t('answers_failed'), answers.failed)}<//>`;
}

function ReportPage({ rest: [id] }) {
  const of = report.value;
  if (!of || of.sale.id !== id) return html`<${Frame}><${Heading} title=${t('report')} />${!problem.value && html`<${Loading} />`}<//>`;
  return html`<${Frame}><p class="crumbs"><a href=${`#/sales/${id}`}>${of.sale.title}</a></p>
    <${Heading} title=${t('report_of', { title: of.sale.title })}><a class="button" href=${fileOf(id, 'csv')} download=${`report-${id}.csv`}>${t('report_csv')}</a><a class="button" href=${fileOf(id, 'html')} download=${`report-${id}.html`}>${t('report_html')}</a><//>
    <p class="muted intro">${t('as_of', { time: when(of.as_of) })} ${!of.up_to_date && t('behind')}</p>
    <${Plots} of=${of} /><${Sums} of=${of} />
    <section class="panel"><h2>${t('why_refused')}</h2><${Rows} label=${t('why_refused')} empty=${t('nobody_refused')} head=${[t('code'), { name: t('times_count'), num: true }, { name: t('share_of'), num: true }]}
      of=${of.refusals.map((one) => ({ key: one.code, cells: [html`<code class="main">${one.code}</code>`, number(one.count), asPercent.format(one.percent / 100)] }))} /></section>
    <${Curl} method="GET" where=${`/admin/sales/${id}/report`} /><//>`;
}

page('report', { View: ReportPage, title: () => t('report'), enter: ([id]) => { if (report.value?.sale.id !== id) report.value = null; return loadReport(id); } });
