// What the shell said about this page, its words, and how numbers and times are written.
const facts = JSON.parse(document.getElementById('facts').textContent);
const { words } = facts;
const locale = facts.lang === 'zh' ? 'zh-CN' : 'en';

function t(name, blanks = {}) {
  return (words[name] ?? name).replace(/\{(\w+)\}/g, (_, blank) => blanks[blank]);
}

const home = `/${facts.lang}/`;
const path = (rest) => home + rest;
const other = facts.lang === 'zh' ? { lang: 'en', tag: 'en', name: 'English' } : { lang: 'zh', tag: 'zh-CN', name: '中文' };

const asMoney = new Intl.NumberFormat(locale, { style: 'currency', currency: facts.currency, currencyDisplay: 'narrowSymbol' });
const asNumber = new Intl.NumberFormat(locale);
const asTime = new Intl.DateTimeFormat(locale, { dateStyle: 'medium', timeStyle: 'medium' });
const asMoment = new Intl.DateTimeFormat(locale, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const money = (cents) => asMoney.format(cents / 100);
const number = (count) => asNumber.format(count);
const when = (text) => asTime.format(new Date(text));
const moment = (text) => asMoment.format(new Date(text));

const two = (value) => String(value).padStart(2, '0');

// Whole days, hours, minutes and seconds until something; the last second counts until it is over.
function partsOf(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  return [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
}

// 1:02:03, and days in words before it.
function duration(ms) {
  const [days, hours, minutes, seconds] = partsOf(ms);
  const clock = `${two(minutes)}:${two(seconds)}`;
  const long = hours || days ? `${two(hours)}:${clock}` : clock;
  return days ? `${t('days', { n: days })} ${long}` : long;
}
