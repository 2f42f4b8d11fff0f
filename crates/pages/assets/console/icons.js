// Small drawings, as lines on a field of 20 by 20.
const icons = {
  overview: 'M3 11l4-5 4 4 6-7M3 17h14',
  sales: 'M3 8V5h14v3a2 2 0 0 0 0 4v3H3v-3a2 2 0 0 0 0-4zM8 5v10',
  orders: 'M5 3h10v14l-2.5-1.5L10 17l-2.5-1.5L5 17zM8 7h4M8 10h4',
  refunds: 'M4 8h9a3.5 3.5 0 0 1 0 7H8M4 8l3-3M4 8l3 3',
  reviews: 'M10 4c4 0 7 6 7 6s-3 6-7 6-7-6-7-6 3-6 7-6zM10 8a2 2 0 1 0 0 4 2 2 0 0 0 0-4z',
  audit: 'M10 3l6 2v5c0 4-3 6-6 7-3-1-6-3-6-7V5zM7.5 10l2 2 3.5-4',
  activity: 'M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM10 6v4l3 2',
  nodes: 'M4 4h12v5H4zM4 11h12v5H4zM7 6.5h.01M7 13.5h.01',
  sessions: 'M10 4a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM4 17c0-3 3-5 6-5s6 2 6 5',
  settings: 'M4 6h7M15 6h1M4 14h1M9 14h7M13 4v4M7 12v4',
};

const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 20 20" aria-hidden="true"><path d=${icons[name] ?? 'M6 10h8'} /></svg>`;
