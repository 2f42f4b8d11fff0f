//! Packets: pools of portions that nobody orders or pays, and that are no sales.

use super::rules;

rules! {
    fn a_portion_is_taken_and_kept "
        packet 1: portions=7,1,5  -> 3 of 3 left worth 13
        ann grabs                 -> #1 ann x1 @7 portion 0 paid
        ann grabs                 -> no: already_claimed #1
        bob grabs req=a           -> #2 bob x1 @1 portion 1 paid
        bob grabs req=a           -> again: #2 bob x1 @1 portion 1 paid
        stock                     -> 1 of 3 left worth 5, 2 paid
        cyd grabs                 -> #3 cyd x1 @5 portion 2 paid
        dan grabs                 -> no: sold_out
        close                     -> 0 of 3 left worth 0, 3 paid, closed
        clear                     -> 0 of 3 left worth 0, cleared
    "

    fn a_packet_is_no_sale_and_a_sale_no_packet "
        packet 1: portions=7,1
        pool 2: units=3
        ann claims       -> no: no_such_pool
        ann grabs in=2   -> no: no_such_pool
        ann grabs        -> #1 ann x1 @7 portion 0 paid
        ann claims in=2  -> #1 ann x1 @100 paid
        pool 1: portions=7,1  -> no: pool_exists
        close
        clear
        ann claims       -> no: no_such_pool
        ann grabs        -> no: cleared
    "

    fn a_portion_is_never_an_order "
        packet 1: portions=7,1
        ann grabs             -> #1 ann x1 @7 portion 0 paid
        ann orders 1          -> no: no_such_claim
        ann gives up 1        -> no: no_such_claim
        shop cancels 1        -> no: no_such_claim
        P1 pays 7 for 1       -> no: no_such_claim
        P1 returns 7 for 1    -> no: no_such_claim
        restock 1 req=a       -> no: cannot_restock
        close
        clear
        P1 pays 7 for 1       -> no: no_such_claim
        P1 returns 7 for 1    -> no: no_such_claim
        events                -> pool_opened, claim_granted, pool_closed, pool_cleared
    "
}
