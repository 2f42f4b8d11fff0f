//! What goes wrong elsewhere, and must not here: the lines that the rules alone answer for.

use super::rules;

rules! {
    fn p01_every_event_names_its_pool "
        pool 1: units=3 flow=hold(50,100)
        ann claims
        pool 2: units=3 flow=order(100)
        bob claims in=2
        ann orders 1
        P1 pays 100 for 2-1  -> #1 bob x1 @100 paid by P1
        P2 pays 1 for 1      -> refund 1 of P2 for #1 amount_mismatch
        close in=2
        events       -> pool_opened, claim_granted, claim_ordered, refund_due
        events in=2  -> pool_opened, claim_granted, claim_paid, pool_closed
    "

    fn p02_numbers_are_never_used_twice "
        pool 1: units=1 flow=order(100)
        ann claims         -> #1 ann x1 @100 ordered until 100
        ann gives up 1
        ann claims         -> #2 ann x1 @100 ordered until 100
        @100               -> #2 ann x1 @100 released pay_expired
        P1 pays 100 for 1  -> regranted #3 ann x1 @100 paid by P1 for #1
        close
        clear
        pool 1: units=1 flow=order(100)  -> no: pool_exists
        pool 1: units=9                  -> no: pool_exists
    "

    fn p07_a_release_happens_once "
        pool 1: units=5 limit=2 flow=order(100)
        ann claims 2    -> #1 ann x2 @100 ordered until 100
        bob claims 2    -> #2 bob x2 @100 ordered until 100
        ann gives up 1  -> #1 ann x2 @100 released gave_up
        ann gives up 1  -> again: #1 ann x2 @100 released gave_up
        shop cancels 1  -> again: #1 ann x2 @100 released gave_up
        @100            -> #2 bob x2 @100 released pay_expired
        bob gives up 2  -> again: #2 bob x2 @100 released pay_expired
        stock           -> 5 of 5 left
        events          -> pool_opened, claim_granted, claim_granted, claim_released, claim_released
    "

    fn p08_a_limit_lives_as_long_as_the_pool "
        pool 1: units=9 limit=1
        pool 2: units=9 limit=1 flow=hold(300000,1800000)
        ann claims       -> #1 ann x1 @100 paid
        bob claims in=2  -> #1 bob x1 @100 held until 300000
        @299999
        bob claims in=2  -> no: already_claimed #1
        bob orders 2-1   -> #1 bob x1 @100 ordered until 2099999
        @300000
        bob claims in=2  -> no: already_claimed #1
        P1 pays 100 for 2-1  -> #1 bob x1 @100 paid by P1
        @99999999999
        ann claims       -> no: already_claimed #1
        bob claims in=2  -> no: already_claimed #1
    "

    fn p09_two_deadlines_give_a_unit_back_once "
        pool 1: units=3 limit=1 flow=hold(50,100)
        ann claims    -> #1 ann x1 @100 held until 50
        @49
        ann orders 1  -> #1 ann x1 @100 ordered until 149
        @50
        stock         -> 2 of 3 left, 1 ordered
        @149          -> #1 ann x1 @100 released pay_expired
        @9999
        stock         -> 3 of 3 left
        ann claims    -> #2 ann x1 @100 held until 10049
        @10049        -> #2 ann x1 @100 released hold_expired
        stock         -> 3 of 3 left
        @99999
        stock         -> 3 of 3 left
        events        -> pool_opened, claim_granted, claim_ordered, claim_released, claim_granted, claim_released
    "

    fn p10_a_claim_can_be_read_the_moment_it_was_granted "
        pool 1: units=3 flow=hold(50,100)
        ann claims  -> #1 ann x1 @100 held until 50
        claim 1     -> #1 ann x1 @100 held until 50
    "

    fn p11_opening_again_never_resets_the_stock "
        pool 1: units=2
        ann claims       -> #1 ann x1 @100 paid
        pool 1: units=2  -> again: 1 of 2 left, 1 paid
        pool 1: units=9  -> no: pool_exists
        stock            -> 1 of 2 left, 1 paid
        restock 3 req=a  -> 4 of 5 left, 1 paid
        restock 3 req=a  -> again: 4 of 5 left, 1 paid
        pool 1: units=2  -> again: 4 of 5 left, 1 paid
        events           -> pool_opened, claim_granted, pool_restocked
    "

    fn p14_a_refusal_leaves_no_trace "
        pool 1: units=1 limit=1 opens=10 closes=100
        ann claims    -> no: not_open_yet until 10
        @10
        ann claims 2  -> no: over_limit 0 of 1
        ann claims    -> #1 ann x1 @100 paid
        ann claims    -> no: already_claimed #1
        bob claims    -> no: sold_out
        @100
        bob claims    -> no: closed
        events        -> pool_opened, claim_granted
    "

    fn p15_stock_never_goes_below_zero "
        pool 1: units=3 limit=3 flow=order(100)
        ann claims 2       -> #1 ann x2 @100 ordered until 100
        bob claims 2       -> no: sold_out
        bob claims 3       -> no: sold_out
        stock              -> 1 of 3 left, 2 ordered
        @100               -> #1 ann x2 @100 released pay_expired
        bob claims 2       -> #2 bob x2 @100 ordered until 200
        P1 pays 200 for 1  -> refund 200 of P1 for #1 late
        stock              -> 1 of 3 left, 2 ordered
    "

    fn p19_a_duplicate_click_uses_no_stock "
        pool 1: units=2 limit=1
        ann claims req=a  -> #1 ann x1 @100 paid
        ann claims req=a  -> again: #1 ann x1 @100 paid
        ann claims req=b  -> no: already_claimed #1
        ann claims        -> no: already_claimed #1
        stock             -> 1 of 2 left, 1 paid
        bob claims        -> #2 bob x1 @100 paid
        ann claims        -> no: already_claimed #1
    "

    fn p20_a_repeat_names_the_very_claim "
        pool 1: units=9 limit=3 flow=order(100)
        ann claims req=a    -> #1 ann x1 @100 ordered until 100
        ann claims req=b    -> #2 ann x1 @100 ordered until 100
        ann claims req=a    -> again: #1 ann x1 @100 ordered until 100
        ann claims req=b    -> again: #2 ann x1 @100 ordered until 100
        ann claims 2 req=b  -> no: request_conflict
        bob claims req=a    -> #3 bob x1 @100 ordered until 100
        P1 pays 100 for 1   -> #1 ann x1 @100 paid by P1
        P1 pays 100 for 2   -> no: payment_conflict
    "

    fn p21_money_after_expiry_is_never_lost "
        pool 1: units=1 flow=order(100)
        ann claims         -> #1 ann x1 @100 ordered until 100
        @100               -> #1 ann x1 @100 released pay_expired
        bob claims         -> #2 bob x1 @100 ordered until 200
        P1 pays 100 for 1  -> refund 100 of P1 for #1 late
        P1 pays 100 for 1  -> again: refund 100 of P1 for #1 late
        @200               -> #2 bob x1 @100 released pay_expired
        P2 pays 100 for 2  -> regranted #3 bob x1 @100 paid by P2 for #2
        P2 pays 100 for 2  -> again: regranted #3 bob x1 @100 paid by P2 for #2
        stock              -> 0 of 1 left, 1 paid
        events             -> pool_opened, claim_granted, claim_released, claim_granted, refund_due, claim_released, claim_granted
    "

    fn p22_claims_of_one_user_are_summed "
        pool 1: units=9 limit=3
        ann claims 2  -> #1 ann x2 @100 paid
        ann claims 2  -> no: over_limit 2 of 3
        stock         -> 7 of 9 left, 2 paid
    "

    fn p23_a_limit_is_per_person_over_all_orders_and_accounts "
        pool 1: units=9 limit=2 by=identity flow=order(100)
        a1 claims as=P     -> #1 a1 x1 @100 ordered until 100
        P1 pays 100 for 1  -> #1 a1 x1 @100 paid by P1
        a2 claims as=P     -> #2 a2 x1 @100 ordered until 100
        a3 claims as=P     -> no: over_limit 2 of 2
        a3 claims          -> no: not_eligible
        @100               -> #2 a2 x1 @100 released pay_expired
        a3 claims as=P     -> #3 a3 x1 @100 ordered until 200
        P2 pays 100 for 2  -> refund 100 of P2 for #2 late
        a1 claims as=P     -> no: over_limit 2 of 2
    "
}
