//! Pre-cut portions: a claim takes the next one whole, and not a cent is lost.

use super::rules;

rules! {
    fn the_next_portion_is_taken_whole "
        pool 1: portions=7,1,5
        ann claims  -> #1 ann x1 @7 portion 0 paid
        bob claims  -> #2 bob x1 @1 portion 1 paid
        bob claims  -> no: already_claimed #2
        stock       -> 1 of 3 left worth 5, 2 paid
        cyd claims  -> #3 cyd x1 @5 portion 2 paid
        dan claims  -> no: sold_out
    "

    fn one_portion_at_a_time "
        pool 1: portions=7,1,5 limit=2
        ann claims 3  -> no: over_limit 0 of 2
        ann claims 2  -> no: over_limit 0 of 1
        ann claims    -> #1 ann x1 @7 portion 0 paid
        ann claims 2  -> no: over_limit 1 of 2
        ann claims    -> #2 ann x1 @1 portion 1 paid
        ann claims    -> no: over_limit 2 of 2
    "

    fn a_portion_given_back_is_the_next_to_go "
        pool 1: portions=7,1,5,9 flow=order(100)
        ann claims      -> #1 ann x1 @7 portion 0 ordered until 100
        bob claims      -> #2 bob x1 @1 portion 1 ordered until 100
        cyd claims      -> #3 cyd x1 @5 portion 2 ordered until 100
        bob gives up 2  -> #2 bob x1 @1 portion 1 released gave_up
        ann gives up 1  -> #1 ann x1 @7 portion 0 released gave_up
        dan claims      -> #4 dan x1 @7 portion 0 ordered until 100
        eve claims      -> #5 eve x1 @1 portion 1 ordered until 100
        fay claims      -> #6 fay x1 @9 portion 3 ordered until 100
        gus claims      -> no: sold_out
    "

    fn late_money_buys_a_portion_of_the_same_value_only "
        pool 1: portions=7,7,5 flow=order(100)
        ann claims       -> #1 ann x1 @7 portion 0 ordered until 100
        @100             -> #1 ann x1 @7 portion 0 released pay_expired
        bob claims       -> #2 bob x1 @7 portion 0 ordered until 200
        P1 pays 7 for 1  -> regranted #3 ann x1 @7 portion 1 paid by P1 for #1
        @200             -> #2 bob x1 @7 portion 0 released pay_expired
        cyd claims       -> #4 cyd x1 @7 portion 0 ordered until 300
        P2 pays 7 for 2  -> refund 7 of P2 for #2 late
    "

    fn taken_and_left_are_always_what_was_funded "
        pool 1: portions=7,1,5,9 flow=hold(50,100)  -> 4 of 4 left worth 22
        ann claims
        bob claims
        cyd claims
        stock            -> 1 of 4 left worth 9, 3 held
        bob gives up 2
        stock            -> 2 of 4 left worth 10, 2 held
        ann orders 1
        P1 pays 7 for 1
        @50              -> #3 cyd x1 @5 portion 2 released hold_expired
        stock            -> 3 of 4 left worth 15, 1 paid
        dan claims       -> #4 dan x1 @1 portion 1 held until 100
        stock            -> 2 of 4 left worth 14, 1 held, 1 paid
        @100             -> #4 dan x1 @1 portion 1 released hold_expired
        close            -> 3 of 4 left worth 15, 1 paid, closed
        clear            -> 0 of 4 left worth 0, cleared
    "
}
