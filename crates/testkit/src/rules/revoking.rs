//! A paid order that the shop takes back: its units are sold again, its payment goes back, once.

use super::rules;

rules! {
    fn what_is_revoked_is_sold_again_and_its_money_goes_back_once "
        pool 1: units=2 limit=2 flow=order(100)
        ann claims 2       -> #1 ann x2 @100 ordered until 100
        shop revokes 1     -> no: not_paid
        P1 pays 200 for 1  -> #1 ann x2 @100 paid by P1
        bob claims         -> no: sold_out
        stock              -> 0 of 2 left, 2 paid
        @10
        shop revokes 1     -> #1 ann x2 @100 released revoked by P1
        @20
        shop revokes 1     -> again: #1 ann x2 @100 released revoked by P1
        stock              -> 2 of 2 left
        P1 pays 200 for 1  -> again: refund 200 of P1 for #1 revoked
        P1 pays 100 for 1  -> no: payment_conflict
        shop cancels 1     -> again: #1 ann x2 @100 released revoked by P1
        ann orders 1       -> no: released
        bob claims         -> #2 bob x1 @100 ordered until 120
        @500               -> #2 bob x1 @100 released pay_expired
        stock              -> 2 of 2 left
        claim 1            -> #1 ann x2 @100 released revoked by P1
    "

    fn more_money_for_what_was_revoked_buys_nothing "
        pool 1: units=3 flow=order(100)
        ann claims         -> #1 ann x1 @100 ordered until 100
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        shop revokes 1     -> #1 ann x1 @100 released revoked by P1
        P2 pays 100 for 1  -> refund 100 of P2 for #1 already_paid
        P3 pays 7 for 1    -> refund 7 of P3 for #1 already_paid
        stock              -> 3 of 3 left
    "

    fn whose_order_was_revoked_may_buy_again_where_that_is_allowed "
        pool 1: units=3 flow=order(100)
        pool 2: units=3 flow=order(100) reclaim=never
        ann claims         -> #1 ann x1 @100 ordered until 100
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        shop revokes 1     -> #1 ann x1 @100 released revoked by P1
        ann claims         -> #2 ann x1 @100 ordered until 100
        ann claims in=2    -> #1 ann x1 @100 ordered until 100
        P2 pays 100 for 2-1 -> #1 ann x1 @100 paid by P2
        shop revokes 2-1   -> #1 ann x1 @100 released revoked by P2
        ann claims in=2    -> no: released
    "

    fn an_order_that_a_late_payment_bought_anew_is_revoked_under_its_own_number "
        pool 1: units=3 flow=hold(50,100)
        ann claims         -> #1 ann x1 @100 held until 50
        shop revokes 1     -> no: not_paid
        ann orders 1       -> #1 ann x1 @100 ordered until 100
        @200               -> #1 ann x1 @100 released pay_expired
        P1 pays 100 for 1  -> regranted #2 ann x1 @100 paid by P1 for #1
        shop revokes 1     -> no: released
        shop revokes 2     -> #2 ann x1 @100 released revoked by P1 for #1
        P1 pays 100 for 1  -> again: refund 100 of P1 for #1 revoked
        P2 pays 100 for 1  -> refund 100 of P2 for #1 already_paid
        P3 pays 100 for 2  -> refund 100 of P3 for #2 already_paid
        stock              -> 3 of 3 left
    "

    fn where_no_payment_paid_there_is_nothing_to_give_back "
        pool 1: units=3
        pool 2: units=3 price=0 flow=order(100)
        ann claims         -> #1 ann x1 @100 paid
        shop revokes 1     -> no: not_paid
        shop revokes 9     -> no: no_such_claim
        ann claims in=2    -> #1 ann x1 @0 paid
        shop revokes 2-1   -> no: not_paid
        close in=2         -> 2 of 3 left, 1 paid, closed
        clear in=2         -> 0 of 3 left, cleared
        shop revokes 2-1   -> no: cleared
    "

    fn a_portion_that_is_revoked_is_the_next_to_be_had "
        pool 1: portions=5,7 flow=order(100)
        ann claims         -> #1 ann x1 @5 portion 0 ordered until 100
        P1 pays 5 for 1    -> #1 ann x1 @5 portion 0 paid by P1
        shop revokes 1     -> #1 ann x1 @5 portion 0 released revoked by P1
        bob claims         -> #2 bob x1 @5 portion 0 ordered until 100
    "

    fn a_revoked_order_is_no_reason_to_keep_a_sale "
        pool 1: units=3 flow=order(100)
        ann claims         -> #1 ann x1 @100 ordered until 100
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        close              -> 2 of 3 left, 1 paid, closed
        shop revokes 1     -> #1 ann x1 @100 released revoked by P1
        stock              -> 3 of 3 left, closed
        clear              -> 0 of 3 left, cleared
        shop revokes 1     -> no: cleared
    "
}
