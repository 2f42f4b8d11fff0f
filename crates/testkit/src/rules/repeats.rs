//! Asking again with the same request id is not asking twice, whatever happened in between.

use super::rules;

rules! {
    fn the_first_answer_comes_again "
        pool 1: units=3 limit=1 flow=order(100)
        ann claims req=a  -> #1 ann x1 @100 ordered until 100
        @5
        ann claims req=a  -> again: #1 ann x1 @100 ordered until 100
        ann claims req=b  -> no: already_claimed #1
        ann claims        -> no: already_claimed #1
        stock             -> 2 of 3 left, 1 ordered
    "

    fn after_the_last_unit_went "
        pool 1: units=2 limit=2
        ann claims req=a  -> #1 ann x1 @100 paid
        bob claims        -> #2 bob x1 @100 paid
        ann claims        -> no: sold_out
        ann claims req=a  -> again: #1 ann x1 @100 paid
    "

    fn after_the_pool_closed "
        pool 1: units=2 closes=50
        pool 2: units=2
        ann claims req=a       -> #1 ann x1 @100 paid
        ann claims req=a in=2  -> #1 ann x1 @100 paid
        @50
        ann claims req=a       -> again: #1 ann x1 @100 paid
        close in=2
        ann claims req=a in=2  -> again: #1 ann x1 @100 paid
    "

    fn after_the_claim_was_ordered_paid_or_released "
        pool 1: units=3 limit=3 flow=hold(50,100)
        ann claims req=a   -> #1 ann x1 @100 held until 50
        ann orders 1       -> #1 ann x1 @100 ordered until 100
        ann claims req=a   -> again: #1 ann x1 @100 ordered until 100
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        ann claims req=a   -> again: #1 ann x1 @100 paid by P1
        ann claims req=b   -> #2 ann x1 @100 held until 50
        ann gives up 2     -> #2 ann x1 @100 released gave_up
        ann claims req=b   -> again: #2 ann x1 @100 released gave_up
        ann claims req=c   -> #3 ann x1 @100 held until 50
        @50                -> #3 ann x1 @100 released hold_expired
        ann claims req=c   -> again: #3 ann x1 @100 released hold_expired
    "

    fn another_quantity_is_another_request "
        pool 1: units=9 limit=9
        ann claims 2 req=a  -> #1 ann x2 @100 paid
        ann claims 3 req=a  -> no: request_conflict
        close
        ann claims 3 req=a  -> no: request_conflict
        ann claims 2 req=a  -> again: #1 ann x2 @100 paid
    "

    fn a_refusal_is_not_remembered "
        pool 1: units=1 limit=1 flow=order(100) opens=10
        ann claims req=a    -> no: not_open_yet until 10
        @10
        bob claims          -> #1 bob x1 @100 ordered until 110
        ann claims req=a    -> no: sold_out
        ann claims 2 req=a  -> no: over_limit 0 of 1
        bob gives up 1
        ann claims req=a    -> #2 ann x1 @100 ordered until 110
    "

    fn everybody_has_request_ids_of_their_own "
        pool 1: units=9 limit=1 by=identity
        ann claims req=a as=A  -> #1 ann x1 @100 paid
        bob claims req=a as=B  -> #2 bob x1 @100 paid
        amy claims req=a as=A  -> no: over_limit 1 of 1
        ann claims req=a       -> again: #1 ann x1 @100 paid
    "

    fn ids_that_run_together_stay_apart "
        pool 1: units=9 limit=9
        ab claims req=c  -> #1 ab x1 @100 paid
        a claims req=bc  -> #2 a x1 @100 paid
        ab claims req=c  -> again: #1 ab x1 @100 paid
        a claims req=bc  -> again: #2 a x1 @100 paid
    "

    fn a_second_order_or_release_is_the_first_one "
        pool 1: units=3 flow=hold(50,100)
        ann claims         -> #1 ann x1 @100 held until 50
        @5
        ann orders 1       -> #1 ann x1 @100 ordered until 105
        @6
        ann orders 1       -> again: #1 ann x1 @100 ordered until 105
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        ann orders 1       -> again: #1 ann x1 @100 paid by P1
        bob claims         -> #2 bob x1 @100 held until 56
        bob gives up 2     -> #2 bob x1 @100 released gave_up
        shop cancels 2     -> again: #2 bob x1 @100 released gave_up
        stock              -> 2 of 3 left, 1 paid
    "
}
