//! Why not, and which reason is given when several are true.

use super::rules;

rules! {
    fn a_pool_that_was_never_opened_has_nothing "
        ann claims              -> no: no_such_pool
        ann orders 1            -> no: no_such_claim
        ann gives up 1          -> no: no_such_claim
        P1 pays 100 for 1       -> no: no_such_claim
        P1 returns 100 for 1    -> no: no_such_claim
        restock 1 req=a         -> no: no_such_pool
        close                   -> no: no_such_pool
        clear                   -> no: no_such_pool
        stock                   -> nothing
        claim 1                 -> nothing
    "

    fn a_window_begins_at_its_first_and_ends_before_its_last_millisecond "
        pool 1: units=9 opens=100 closes=200
        @99
        ann claims  -> no: not_open_yet until 100
        @100
        ann claims  -> #1 ann x1 @100 paid
        @199
        bob claims  -> #2 bob x1 @100 paid
        @200
        cyd claims  -> no: closed
    "

    fn not_open_yet_is_said_before_anything_else "
        pool 1: units=1 limit=1 by=identity opens=100 closes=200
        ann claims 9  -> no: not_open_yet until 100
        close
        ann claims 9  -> no: not_open_yet until 100
    "

    fn closed_is_said_before_eligibility_limit_and_stock "
        pool 1: units=1 limit=1 by=identity closes=200
        ann claims as=A    -> #1 ann x1 @100 paid
        close
        ann claims 9       -> no: closed
        ann claims 9 as=A  -> no: closed
        bob claims as=B    -> no: closed
    "

    fn eligibility_is_said_before_limit_and_stock "
        pool 1: units=1 limit=1 by=identity
        ann claims as=A  -> #1 ann x1 @100 paid
        ann claims       -> no: not_eligible
        ann claims 9     -> no: not_eligible
        ann claims as=A  -> no: already_claimed #1
    "

    fn the_limit_is_said_before_the_stock "
        pool 1: units=2 limit=2
        pool 2: units=1 limit=1
        ann claims 2       -> #1 ann x2 @100 paid
        ann claims 1       -> no: over_limit 2 of 2
        bob claims 3       -> no: over_limit 0 of 2
        bob claims 1       -> no: sold_out
        ann claims in=2    -> #1 ann x1 @100 paid
        ann claims in=2    -> no: already_claimed #1
        bob claims 2 in=2  -> no: over_limit 0 of 1
        bob claims in=2    -> no: sold_out
    "

    fn a_cleared_pool_says_so_to_everybody "
        pool 1: units=1 limit=1 by=identity opens=100
        close
        clear
        ann claims            -> no: cleared
        ann claims as=A req=a -> no: cleared
    "

    fn less_than_asked_is_not_given "
        pool 1: units=3 limit=3
        ann claims 2  -> #1 ann x2 @100 paid
        bob claims 2  -> no: sold_out
        bob claims 1  -> #2 bob x1 @100 paid
        stock         -> 0 of 3 left, 3 paid
    "

    fn somebody_elses_claim_does_not_exist_for_you "
        pool 1: units=3 flow=hold(50,100)
        ann claims      -> #1 ann x1 @100 held until 50
        bob orders 1    -> no: no_such_claim
        bob gives up 1  -> no: no_such_claim
        bob orders 7    -> no: no_such_claim
        shop orders 1   -> #1 ann x1 @100 ordered until 100
        shop cancels 1  -> #1 ann x1 @100 released cancelled
    "
}
