// What the shell said about this page, its words, and how numbers and times are written.
const facts = JSON.parse(document.getElementById('facts').textContent);
const words = Object.assign({}, ...facts.words);
const locale = facts.lang === 'zh' ? 'zh-CN' : 'en';

function t(name, blanks = {}) {
  return (words[name] ?? name).replace(/\{(\w+)\}/g, (_, blank) => blanks[blank]);
}

const home = `/${facts.lang}/`;
const path = (rest) => home + rest;
const asMoney = new Intl.NumberFormat(locale, { style: 'currency', currency: facts.currency, currencyDisplay: 'narrowSymbol' });
const asNumber = new Intl.NumberFormat(locale);
const asTime = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'medium' });
const money = (cents) => asMoney.format(cents / 100);
const number = (count) => asNumber.format(count);
const when = (text) => asTime.format(new Date(text));

// 1:02:03, and days in words before it.
function duration(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const two = (value) => String(value).padStart(2, '0');
  const [days, hours] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24];
  const clock = `${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  const long = hours || days ? `${two(hours)}:${clock}` : clock;
  return days ? `${t('days', { n: days })} ${long}` : long;
}
