// Plots. One place for each, the same at every drawing, so that a plot stays and only its data changes.
// The cursor of one plot is the cursor of all.
const hovered = signal(null);
const span = signal(300);
const asClock = new Intl.DateTimeFormat(locale, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const asMinute = new Intl.DateTimeFormat(locale, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const asShort = new Intl.NumberFormat(locale, { notation: 'compact', maximumFractionDigits: 1 });
const asTenths = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });
const PLOT_HEIGHT = 168;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const line = (label, token, { fill = false, width = 1.5 } = {}) => ({ label, token, fill, width });

// From 0 to a little above the highest, and never flat.
const upTo = (plot, low, high) => [0, high > 0 ? high * 1.08 : 1];

// The last minutes, or everything there is.
const reach = (place) => (of, low, high) => (place.whole ? [low, Math.max(high, low + 1)] : [high - span.value, high]);

function drawPlot(element, lines, place) {
  const axis = {
    stroke: () => colour('--soft'), grid: { stroke: () => colour('--line'), width: 1 }, ticks: { show: false },
    font: '11px system-ui, sans-serif', gap: 6,
  };
  const size = () => ({ width: Math.max(160, element.clientWidth), height: PLOT_HEIGHT });
  const plot = new uPlot({
    ...size(),
    padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, sync: { key: 'all' }, points: { size: 6 } },
    scales: { x: { range: reach(place) }, y: { range: upTo } },
    series: [{}, ...lines.map((one) => ({
      label: one.label, width: one.width, points: { show: false }, spanGaps: false,
      stroke: () => colour(one.token), fill: one.fill ? () => `${colour(one.token)}22` : undefined,
    }))],
    axes: [
      { ...axis, size: 26, space: 72, values: (of, at) => at.map((second) => (!place.whole && span.value > 120 ? asMinute : asClock).format(second * 1000)) },
      { ...axis, size: 46, space: 36, values: (of, at) => at.map((value) => asShort.format(value)) },
    ],
    hooks: { setCursor: [(of) => { hovered.value = of.cursor.left >= 0 && of.cursor.idx != null ? of.data[0][of.cursor.idx] : null; }] },
  }, place.data, element);
  const resize = new ResizeObserver(() => plot.setSize(size()));
  resize.observe(element);
  return { plot, end() { resize.disconnect(); plot.destroy(); } };
}

const places = new Map();
function placeOf(name, lines, whole) {
  const signature = lines.map((one) => one.label + one.token).join();
  if (places.get(name)?.signature !== signature) {
    const place = { signature, whole, data: [[], ...lines.map(() => [])], put(element) {
      place.drawn?.end();
      place.drawn = element && drawPlot(element, lines, place);
    } };
    places.set(name, place);
  }
  return places.get(name);
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => places.forEach((place) => place.drawn?.plot.redraw()));

// A plot with its name, and what each line says: under the cursor, or at last.
function Plot({ name, title, lines, data, format = number, note, whole = false }) {
  const place = placeOf(name, lines, whole);
  if (place.data !== data) {
    place.data = data;
    place.drawn?.plot.setData(data);
  }
  const times = data[0];
  const at = hovered.value === null ? times.length - 1 : times.indexOf(hovered.value);
  const said = lines.map((one, place) => {
    const value = data[place + 1][at];
    return value == null ? '–' : format(value);
  });
  const words = lines.map((one, place) => `${one.label} ${said[place]}`).join(', ');
  return html`<section class="panel plot-panel"><h2>${title}${note && html` <span class="muted">${note}</span>`}</h2>
    <ul class="legend">${lines.map((one, place) => html`<li key=${one.label}><span class=${`dot ${one.token.slice(2)}`}></span>${one.label} <b class="digits">${said[place]}</b></li>`)}</ul>
    <div class="plot" key=${place.signature} ref=${place.put} role="img" aria-label=${`${title}: ${words}`}></div></section>`;
}

const spanNames = { 60: () => t('span_60'), 300: () => t('span_300'), 600: () => t('span_600') };
function setSpan(seconds) {
  span.value = seconds;
  places.forEach((place) => place.drawn?.plot.setData(place.data));
}

const Spans = () => html`<${Choice} label=${t('span')} of=${Object.keys(spanNames).map((seconds) => [Number(seconds), spanNames[seconds]()])} chosen=${span.value} choose=${setSpan} />`;
