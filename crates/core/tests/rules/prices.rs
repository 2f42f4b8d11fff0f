//! What a unit costs, and that a price once given stands.

use super::script::check;

#[test]
fn the_price_rises_after_so_many_sold() {
    check(
        "
        pool 1: units=9 limit=9 price=100 steps=2:150,5:300
        ann claims 1  -> #1 ann x1 @100 paid
        ann claims 1  -> #2 ann x1 @100 paid
        ann claims 1  -> #3 ann x1 @150 paid
        ann claims 2  -> #4 ann x2 @150 paid
        ann claims 1  -> #5 ann x1 @300 paid
        ",
    );
}

#[test]
fn a_claim_across_a_step_has_the_price_it_began_with() {
    check(
        "
        pool 1: units=9 limit=9 price=100 steps=2:150
        ann claims 4  -> #1 ann x4 @100 paid
        ann claims 1  -> #2 ann x1 @150 paid
        ",
    );
}

#[test]
fn what_is_released_is_sold_at_the_price_of_what_is_taken_then() {
    check(
        "
        pool 1: units=9 limit=9 price=100 steps=2:150 flow=order(100)
        ann claims 2       -> #1 ann x2 @100 ordered until 100
        bob claims 1       -> #2 bob x1 @150 ordered until 100
        ann gives up 1     -> #1 ann x2 @100 released gave_up
        cyd claims 1       -> #3 cyd x1 @100 ordered until 100
        P1 pays 150 for 2  -> #2 bob x1 @150 paid by P1
        ",
    );
}

#[test]
fn a_restock_does_not_lower_the_price() {
    check(
        "
        pool 1: units=2 limit=9 price=100 steps=2:150
        ann claims 2       -> #1 ann x2 @100 paid
        restock 5 req=a    -> 5 of 7 left, 2 paid
        ann claims 1       -> #2 ann x1 @150 paid
        ",
    );
}

#[test]
fn nothing_can_cost_nothing() {
    check(
        "
        pool 1: units=2 price=0 flow=order(100)
        ann claims       -> #1 ann x1 @0 ordered until 100
        P1 pays 0 for 1  -> #1 ann x1 @0 paid by P1
        ",
    );
}
