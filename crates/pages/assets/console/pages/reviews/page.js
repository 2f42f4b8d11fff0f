// Paid orders that a person has to look at.
const reviews = signal(null);
const status = signal('pending');

const loadReviews = () => load(reviews, `/admin/reviews?status=${status.value}`, (body) => body.reviews);
const endOf = (review) => ({ title: t('end_review'), text: t('end_review_text'), method: 'POST', where: `/admin/reviews/${review.order_id}/end`, body: {}, after: loadReviews });

function ReviewsPage() {
  const choose = (one) => { status.value = one; reviews.value = null; loadReviews(); };
  const pending = status.value === 'pending' && may();
  const head = [t('order'), t('first_order'), t('payment'), t('paid_at'), t('actions')];
  return html`<${Frame}><${Heading} title=${t('reviews')}><${Choice} label=${t('state')} of=${[['pending', t('to_review')], ['ended', t('reviewed')]]} chosen=${status.value} choose=${choose} /><//>
    <p class="muted intro">${t('reviews_text')}</p>
    <section class="panel">${!reviews.value ? html`<${Loading} />` : html`<${Rows} label=${t('reviews')} head=${pending ? head : head.slice(0, -1)} empty=${status.value === 'pending' ? t('none_to_review') : t('none')}
      of=${reviews.value.map((review) => ({ key: review.order_id, cells: [
        html`<span class="main digits">${review.order_id}</span>`, review.first_order_id, review.payment_id, moment(review.paid_at),
        pending && html`<${Act} action=${endOf(review)} kind="small end-review" />`].slice(0, pending ? 5 : 4) }))} />`}</section><//>`;
}

page('reviews', { View: ReviewsPage, enter: loadReviews, menu: { group: 'sales', place: 40, name: () => t('reviews') } });
