//! What a unit costs, and that a price once given stands.

use super::rules;

rules! {
    fn the_price_rises_after_so_many_sold "
        pool 1: units=9 limit=9 price=100 steps=2:150,5:300
        ann claims 1  -> #1 ann x1 @100 paid
        ann claims 1  -> #2 ann x1 @100 paid
        ann claims 1  -> #3 ann x1 @150 paid
        ann claims 2  -> #4 ann x2 @150 paid
        ann claims 1  -> #5 ann x1 @300 paid
    "

    fn a_claim_across_a_step_has_the_price_it_began_with "
        pool 1: units=9 limit=9 price=100 steps=2:150
        ann claims 4  -> #1 ann x4 @100 paid
        ann claims 1  -> #2 ann x1 @150 paid
    "

    fn what_is_released_is_sold_at_the_price_of_what_is_taken_then "
        pool 1: units=9 limit=9 price=100 steps=2:150 flow=order(100)
        ann claims 2       -> #1 ann x2 @100 ordered until 100
        bob claims 1       -> #2 bob x1 @150 ordered until 100
        ann gives up 1     -> #1 ann x2 @100 released gave_up
        cyd claims 1       -> #3 cyd x1 @100 ordered until 100
        P1 pays 150 for 2  -> #2 bob x1 @150 paid by P1
    "

    fn a_restock_does_not_lower_the_price "
        pool 1: units=2 limit=9 price=100 steps=2:150
        ann claims 2       -> #1 ann x2 @100 paid
        restock 5 req=a    -> 5 of 7 left, 2 paid
        ann claims 1       -> #2 ann x1 @150 paid
    "

    fn nothing_can_cost_nothing "
        pool 1: units=2 price=0 flow=order(100)
        ann claims       -> #1 ann x1 @0 paid
        ann orders 1     -> again: #1 ann x1 @0 paid
        ann gives up 1   -> no: already_paid
        @100
        P1 pays 5 for 1  -> refund 5 of P1 for #1 already_paid
        stock            -> 1 of 2 left, 1 paid
    "

    fn a_hold_that_costs_nothing_is_paid_as_it_is_ordered "
        pool 1: units=3 price=0 flow=hold(50,100)
        ann claims      -> #1 ann x1 @0 held until 50
        bob claims      -> #2 bob x1 @0 held until 50
        stock           -> 1 of 3 left, 2 held
        @20
        ann orders 1    -> #1 ann x1 @0 paid
        ann orders 1    -> again: #1 ann x1 @0 paid
        stock           -> 1 of 3 left, 1 held, 1 paid
        @50             -> #2 bob x1 @0 released hold_expired
        @150
        stock           -> 2 of 3 left, 1 paid
        close
        clear           -> 0 of 3 left, cleared
    "

    fn only_the_units_before_the_first_step_cost_nothing "
        pool 1: units=9 limit=9 price=0 steps=2:150 flow=order(100)
        ann claims 1  -> #1 ann x1 @0 paid
        ann claims 2  -> #2 ann x2 @0 paid
        ann claims 1  -> #3 ann x1 @150 ordered until 100
        @100          -> #3 ann x1 @150 released pay_expired
        stock         -> 6 of 9 left, 3 paid
    "
}
