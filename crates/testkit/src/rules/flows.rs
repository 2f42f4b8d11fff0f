//! The ways of a claim after its grant, and deadlines to the millisecond.

use super::rules;

rules! {
    fn instant_is_paid_at_once_and_for_good "
        pool 1: units=3
        ann claims         -> #1 ann x1 @100 paid
        ann orders 1       -> again: #1 ann x1 @100 paid
        ann gives up 1     -> no: already_paid
        @99999999
        stock              -> 2 of 3 left, 1 paid
    "

    fn an_order_is_paid_in_time "
        pool 1: units=3 flow=order(100)
        @10
        ann claims         -> #1 ann x1 @100 ordered until 110
        ann orders 1       -> again: #1 ann x1 @100 ordered until 110
        @109
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        @110
        claim 1            -> #1 ann x1 @100 paid by P1
        ann gives up 1     -> no: already_paid
    "

    fn an_order_runs_out_exactly_at_its_time "
        pool 1: units=3 flow=order(100)
        @10
        ann claims 1  -> #1 ann x1 @100 ordered until 110
        @109
        stock         -> 2 of 3 left, 1 ordered
        @110          -> #1 ann x1 @100 released pay_expired
        stock         -> 3 of 3 left
        @111
        ann orders 1  -> no: released
    "

    fn a_hold_is_ordered_then_paid "
        pool 1: units=3 flow=hold(50,100)
        ann claims         -> #1 ann x1 @100 held until 50
        P1 pays 100 for 1  -> no: not_ordered
        @49
        ann orders 1       -> #1 ann x1 @100 ordered until 149
        @50
        claim 1            -> #1 ann x1 @100 ordered until 149
        @148
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        @149
        stock              -> 2 of 3 left, 1 paid
    "

    fn a_hold_without_an_order_runs_out_exactly_at_its_time "
        pool 1: units=3 flow=hold(50,100)
        ann claims         -> #1 ann x1 @100 held until 50
        @49
        @50                -> #1 ann x1 @100 released hold_expired
        ann orders 1       -> no: released
        P1 pays 100 for 1  -> no: not_ordered
        stock              -> 3 of 3 left
    "

    fn an_ordered_hold_runs_out_at_the_second_time_only "
        pool 1: units=3 flow=hold(50,100)
        ann claims    -> #1 ann x1 @100 held until 50
        @30
        ann orders 1  -> #1 ann x1 @100 ordered until 130
        @50
        @129
        @130          -> #1 ann x1 @100 released pay_expired
        @500
        stock         -> 3 of 3 left
    "

    fn what_was_given_up_does_not_run_out_as_well "
        pool 1: units=3 limit=3 flow=hold(50,100)
        ann claims 2    -> #1 ann x2 @100 held until 50
        ann gives up 1  -> #1 ann x2 @100 released gave_up
        stock           -> 3 of 3 left
        @50
        stock           -> 3 of 3 left
        ann claims 2    -> #2 ann x2 @100 held until 100
        ann orders 2    -> #2 ann x2 @100 ordered until 150
        ann gives up 2  -> #2 ann x2 @100 released gave_up
        @1000
        stock           -> 3 of 3 left
    "

    fn several_run_out_in_the_order_of_their_deadlines "
        pool 1: units=9 flow=order(100)
        pool 2: units=9 flow=hold(20,100)
        ann claims       -> #1 ann x1 @100 ordered until 100
        @30
        bob claims       -> #2 bob x1 @100 ordered until 130
        @80
        cyd claims in=2  -> #1 cyd x1 @100 held until 100
        dan claims in=2  -> #2 dan x1 @100 held until 100
        @131  -> #1 ann x1 @100 released pay_expired; #1 cyd x1 @100 released hold_expired; #2 dan x1 @100 released hold_expired; #2 bob x1 @100 released pay_expired
    "

    fn a_claim_outlives_the_closing_of_its_pool "
        pool 1: units=9 flow=hold(50,100) closes=40
        ann claims         -> #1 ann x1 @100 held until 50
        bob claims         -> #2 bob x1 @100 held until 50
        @40
        close              -> 7 of 9 left, 2 held, closed
        ann orders 1       -> #1 ann x1 @100 ordered until 140
        @50                -> #2 bob x1 @100 released hold_expired
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
    "
}
