//! Pools whose ids were made by qiang: the same as others, until they are cleared. Then nothing is left.

super::rules! {
    fn a_cleared_pool_with_a_made_id_was_never_there "
        pool m1: units=3 flow=order(100)
        ann claims req=a in=m1  -> #1 ann x1 @100 ordered until 100
        P1 pays 100 for m1-1
        P2 pays 100 for m1-1    -> refund 100 of P2 for #1 already_paid
        restock 1 req=a in=m1
        clear in=m1             -> no: pool_in_use
        close in=m1
        clear in=m1             -> 0 of 4 left, cleared
        clear in=m1             -> no: no_such_pool
        close in=m1             -> no: no_such_pool
        restock 1 req=a in=m1   -> no: no_such_pool
        ann claims req=a in=m1  -> no: no_such_pool
        ann orders m1-1         -> no: no_such_claim
        ann gives up m1-1       -> no: no_such_claim
        P1 pays 100 for m1-1    -> no: no_such_claim
        P2 pays 100 for m1-1    -> no: no_such_claim
        P3 returns 100 for m1-1 -> no: no_such_claim
        stock in=m1             -> nothing
        claim m1-1              -> nothing
        events in=m1            -> pool_opened, claim_granted, claim_paid, refund_due, pool_restocked, pool_closed, pool_cleared
    "

    fn it_takes_no_other_with_it "
        pool m1: units=1 flow=hold(50,100)
        pool m2: units=1 flow=hold(50,100)
        pool 1: units=1 flow=hold(50,100)
        ann claims in=m1
        ann claims in=m2
        ann claims in=1
        ann gives up m1-1
        close in=m1
        clear in=m1      -> 0 of 1 left, cleared
        stock in=m2      -> 0 of 1 left, 1 held
        stock in=1       -> 0 of 1 left, 1 held
        @50              -> #1 ann x1 @100 released hold_expired; #1 ann x1 @100 released hold_expired
        bob claims in=m2 -> #2 bob x1 @100 held until 100
        bob claims in=1  -> #2 bob x1 @100 held until 100
    "

    fn a_packet_with_a_made_id_is_forgotten_too "
        packet m1: portions=7,1,5
        ann grabs in=m1  -> #1 ann x1 @7 portion 0 paid
        bob grabs in=m1
        close in=m1
        clear in=m1      -> 0 of 3 left worth 0, cleared
        cyd grabs in=m1  -> no: no_such_pool
        stock in=m1      -> nothing
        events in=m1     -> pool_opened, claim_granted, claim_granted, pool_closed, pool_cleared
    "
}
