//! Money that arrives: it pays, or buys anew, or goes back. Each payment once.

use super::rules;

rules! {
    fn the_same_payment_again_is_the_same_payment "
        pool 1: units=3 limit=2 flow=order(100)
        ann claims 2       -> #1 ann x2 @100 ordered until 100
        P1 pays 200 for 1  -> #1 ann x2 @100 paid by P1
        @500
        P1 pays 200 for 1  -> again: #1 ann x2 @100 paid by P1
        P1 pays 999 for 1  -> no: payment_conflict
        stock              -> 1 of 3 left, 2 paid
    "

    fn a_second_payment_goes_back "
        pool 1: units=3 flow=order(100)
        ann claims         -> #1 ann x1 @100 ordered until 100
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        P2 pays 100 for 1  -> refund 100 of P2 for #1 already_paid
        P2 pays 100 for 1  -> again: refund 100 of P2 for #1 already_paid
        P3 pays 7 for 1    -> refund 7 of P3 for #1 already_paid
        P1 pays 100 for 1  -> again: #1 ann x1 @100 paid by P1
    "

    fn money_for_what_was_paid_at_once_goes_back "
        pool 1: units=3
        ann claims         -> #1 ann x1 @100 paid
        P1 pays 100 for 1  -> refund 100 of P1 for #1 already_paid
    "

    fn another_amount_goes_back_and_leaves_the_order_open "
        pool 1: units=3 limit=2 flow=order(100)
        ann claims 2       -> #1 ann x2 @100 ordered until 100
        P1 pays 199 for 1  -> refund 199 of P1 for #1 amount_mismatch
        P2 pays 201 for 1  -> refund 201 of P2 for #1 amount_mismatch
        P1 pays 199 for 1  -> again: refund 199 of P1 for #1 amount_mismatch
        P1 pays 200 for 1  -> no: payment_conflict
        claim 1            -> #1 ann x2 @100 ordered until 100
        P3 pays 200 for 1  -> #1 ann x2 @100 paid by P3
    "

    fn a_payment_belongs_to_one_order "
        pool 1: units=3 flow=order(100)
        ann claims         -> #1 ann x1 @100 ordered until 100
        bob claims         -> #2 bob x1 @100 ordered until 100
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        P1 pays 100 for 2  -> no: payment_conflict
        P2 pays 1 for 2    -> refund 1 of P2 for #2 amount_mismatch
        P2 pays 100 for 1  -> no: payment_conflict
        P1 pays 100 for 9  -> no: payment_conflict
        P9 pays 100 for 9  -> no: no_such_claim
        claim 2            -> #2 bob x1 @100 ordered until 100
    "

    fn the_last_moment_to_pay_is_before_the_deadline "
        pool 1: units=2 flow=order(100)
        ann claims         -> #1 ann x1 @100 ordered until 100
        bob claims         -> #2 bob x1 @100 ordered until 100
        @99
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        @100               -> #2 bob x1 @100 released pay_expired
        P2 pays 100 for 2  -> regranted #3 bob x1 @100 paid by P2 for #2
        stock              -> 0 of 2 left, 2 paid
    "

    fn late_money_buys_anew_once "
        pool 1: units=2 flow=order(100)
        ann claims req=a   -> #1 ann x1 @100 ordered until 100
        @100               -> #1 ann x1 @100 released pay_expired
        @150
        P1 pays 100 for 1  -> regranted #2 ann x1 @100 paid by P1 for #1
        P1 pays 100 for 1  -> again: regranted #2 ann x1 @100 paid by P1 for #1
        P2 pays 100 for 1  -> refund 100 of P2 for #1 already_paid
        P3 pays 100 for 2  -> refund 100 of P3 for #2 already_paid
        P1 pays 100 for 2  -> no: payment_conflict
        claim 1            -> #1 ann x1 @100 released pay_expired
        ann claims req=a   -> again: #1 ann x1 @100 released pay_expired
        ann claims         -> no: already_claimed #2
        ann gives up 2     -> no: already_paid
        stock              -> 1 of 2 left, 1 paid
    "

    fn late_money_keeps_the_price_it_was_asked_for "
        pool 1: units=9 limit=9 price=100 steps=1:150 flow=order(100)
        ann claims 2       -> #1 ann x2 @100 ordered until 100
        @100               -> #1 ann x2 @100 released pay_expired
        bob claims 2       -> #2 bob x2 @100 ordered until 200
        P1 pays 300 for 1  -> refund 300 of P1 for #1 amount_mismatch
        P2 pays 200 for 1  -> regranted #3 ann x2 @100 paid by P2 for #1
    "

    fn late_money_goes_back_when_there_is_too_little_left "
        pool 1: units=2 limit=2 flow=order(100)
        ann claims 2       -> #1 ann x2 @100 ordered until 100
        @100               -> #1 ann x2 @100 released pay_expired
        bob claims 1       -> #2 bob x1 @100 ordered until 200
        P1 pays 200 for 1  -> refund 200 of P1 for #1 late
        bob gives up 2
        P1 pays 200 for 1  -> again: refund 200 of P1 for #1 late
        P2 pays 200 for 1  -> regranted #3 ann x2 @100 paid by P2 for #1
    "

    fn late_money_goes_back_when_the_limit_is_used_meanwhile "
        pool 1: units=9 limit=2 flow=order(100)
        ann claims 2       -> #1 ann x2 @100 ordered until 100
        @100               -> #1 ann x2 @100 released pay_expired
        ann claims 1       -> #2 ann x1 @100 ordered until 200
        P1 pays 200 for 1  -> refund 200 of P1 for #1 late
        P2 pays 100 for 2  -> #2 ann x1 @100 paid by P2
    "

    fn late_money_counts_the_person_not_the_account "
        pool 1: units=9 limit=1 by=identity flow=order(100)
        ann claims as=A    -> #1 ann x1 @100 ordered until 100
        @100               -> #1 ann x1 @100 released pay_expired
        amy claims as=A    -> #2 amy x1 @100 ordered until 200
        P1 pays 100 for 1  -> refund 100 of P1 for #1 late
        amy gives up 2
        P2 pays 100 for 1  -> regranted #3 ann x1 @100 paid by P2 for #1
        amy claims as=A    -> no: over_limit 1 of 1
        ann claims as=A    -> no: already_claimed #3
    "

    fn where_a_release_keeps_the_quota_late_money_uses_it "
        pool 1: units=9 limit=2 flow=order(100) reclaim=never
        ann claims 1       -> #1 ann x1 @100 ordered until 100
        @100               -> #1 ann x1 @100 released pay_expired
        ann claims 1       -> #2 ann x1 @100 ordered until 200
        ann claims 1       -> no: over_limit 2 of 2
        P1 pays 100 for 1  -> regranted #3 ann x1 @100 paid by P1 for #1
        ann claims 1       -> no: over_limit 2 of 2
        P2 pays 100 for 2  -> #2 ann x1 @100 paid by P2
        stock              -> 7 of 9 left, 2 paid
    "

    fn money_for_a_claim_given_up_buys_it_anew "
        pool 1: units=1 flow=order(100)
        ann claims         -> #1 ann x1 @100 ordered until 100
        shop cancels 1     -> #1 ann x1 @100 released cancelled
        P1 pays 100 for 1  -> regranted #2 ann x1 @100 paid by P1 for #1
    "

    fn late_money_is_taken_by_a_closed_pool_too "
        pool 1: units=1 flow=order(100) closes=50
        ann claims         -> #1 ann x1 @100 ordered until 100
        @100               -> #1 ann x1 @100 released pay_expired
        close
        P1 pays 100 for 1  -> regranted #2 ann x1 @100 paid by P1 for #1
    "

    fn a_hold_cannot_be_paid_before_or_after_it_ran_out "
        pool 1: units=1 flow=hold(50,100)
        ann claims         -> #1 ann x1 @100 held until 50
        P1 pays 100 for 1  -> no: not_ordered
        @50                -> #1 ann x1 @100 released hold_expired
        P1 pays 100 for 1  -> no: not_ordered
    "

    fn a_cleared_pool_owes_back_what_still_comes "
        pool 1: units=3 flow=order(100)
        ann claims             -> #1 ann x1 @100 ordered until 100
        P0 pays 1 for 1        -> refund 1 of P0 for #1 amount_mismatch
        P1 pays 100 for 1      -> #1 ann x1 @100 paid by P1
        P2 returns 100 for 1   -> no: pool_in_use
        close
        P2 returns 100 for 1   -> no: pool_in_use
        clear
        P2 pays 100 for 1      -> no: cleared
        P2 returns 100 for 1   -> refund 100 of P2 for #1 late
        P2 returns 100 for 1   -> again: refund 100 of P2 for #1 late
        P2 returns 100 for 2   -> no: payment_conflict
        P0 returns 1 for 1     -> again: refund 1 of P0 for #1 amount_mismatch
    "

    // What paid before the clearing is in the records, where the caller looks first; a caller
    // who does not is still told the same thing twice, never owed twice.
    fn a_cleared_pool_remembers_every_refund_it_owes "
        pool 1: units=3 flow=order(100)
        ann claims            -> #1 ann x1 @100 ordered until 100
        P1 pays 100 for 1     -> #1 ann x1 @100 paid by P1
        close
        clear
        P1 returns 100 for 1  -> refund 100 of P1 for #1 late
        P1 returns 100 for 1  -> again: refund 100 of P1 for #1 late
    "

    fn a_payment_counts_once_in_each_sale "
        pool 1: units=5 flow=order(100)
        pool 2: units=5 flow=order(100)
        ann claims           -> #1 ann x1 @100 ordered until 100
        ann claims in=2      -> #1 ann x1 @100 ordered until 100
        P1 pays 100 for 1    -> #1 ann x1 @100 paid by P1
        P1 pays 100 for 2-1  -> #1 ann x1 @100 paid by P1
    "
}
