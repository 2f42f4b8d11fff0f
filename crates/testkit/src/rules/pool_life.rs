//! A pool as a whole: opened once, restocked by deltas, closed, cleared, and never again.

use super::rules;

rules! {
    fn opening_again_with_the_same_terms_changes_nothing "
        pool 1: units=3 price=5  -> 3 of 3 left
        ann claims               -> #1 ann x1 @5 paid
        pool 1: units=3 price=5  -> again: 2 of 3 left, 1 paid
        close
        pool 1: units=3 price=5  -> again: 2 of 3 left, 1 paid, closed
    "

    fn opening_with_other_terms_is_refused "
        pool 1: units=3
        pool 1: units=4          -> no: pool_exists
        pool 1: units=3 limit=2  -> no: pool_exists
        pool 1: units=3 price=1  -> no: pool_exists
        stock                    -> 3 of 3 left
    "

    fn a_cleared_pool_is_never_opened_again "
        pool 1: units=3
        close
        clear            -> 0 of 3 left, cleared
        pool 1: units=3  -> no: pool_exists
        pool 1: units=9  -> no: pool_exists
    "

    fn a_restock_counts_once "
        pool 1: units=1 limit=9
        ann claims 1       -> #1 ann x1 @100 paid
        ann claims 1       -> no: sold_out
        restock 2 req=a    -> 2 of 3 left, 1 paid
        restock 2 req=a    -> again: 2 of 3 left, 1 paid
        restock 3 req=a    -> no: request_conflict
        ann claims 2       -> #2 ann x2 @100 paid
        restock 2 req=a    -> again: 0 of 3 left, 3 paid
        restock 1 req=b    -> 1 of 4 left, 3 paid
        restock 2 req=a    -> again: 1 of 4 left, 3 paid
    "

    fn a_restock_before_the_opening_is_fine "
        pool 1: units=1 opens=100
        restock 2 req=a  -> 3 of 3 left
    "

    fn a_closed_pool_is_not_restocked "
        pool 1: units=1 closes=100
        pool 2: units=1
        restock 2 req=a       -> 3 of 3 left
        restock 2 req=a in=2  -> 3 of 3 left
        @99
        restock 1 req=b       -> 4 of 4 left
        @100
        restock 1 req=c       -> no: closed
        restock 2 req=a       -> again: 4 of 4 left
        close in=2
        restock 1 req=c in=2  -> no: closed
        restock 2 req=a in=2  -> again: 3 of 3 left, closed
        restock 9 req=a in=2  -> no: request_conflict
    "

    fn a_pool_holds_no_more_than_it_can_count "
        pool 1: units=2147483647
        restock 2 req=a           -> no: cannot_restock
        restock 4294967295 req=a  -> no: cannot_restock
        restock 1 req=a           -> 2147483648 of 2147483648 left
        restock 1 req=b           -> no: cannot_restock
    "

    fn portions_are_not_restocked "
        pool 1: portions=5,5
        restock 1 req=a  -> no: cannot_restock
    "

    fn closing_is_for_good "
        pool 1: units=2
        ann claims  -> #1 ann x1 @100 paid
        @5
        close       -> 1 of 2 left, 1 paid, closed
        @6
        close       -> again: 1 of 2 left, 1 paid, closed
        bob claims  -> no: closed
    "

    fn a_pool_with_open_claims_is_not_cleared "
        pool 1: units=3 flow=hold(50,100)
        clear              -> no: pool_in_use
        ann claims         -> #1 ann x1 @100 held until 50
        bob claims         -> #2 bob x1 @100 held until 50
        close
        clear              -> no: pool_in_use
        ann orders 1
        @50                -> #2 bob x1 @100 released hold_expired
        clear              -> no: pool_in_use
        P1 pays 100 for 1  -> #1 ann x1 @100 paid by P1
        clear              -> 0 of 3 left, cleared
        clear              -> again: 0 of 3 left, cleared
    "

    fn a_pool_that_ran_out_of_time_can_be_cleared "
        pool 1: units=3 closes=100
        @99
        clear  -> no: pool_in_use
        @100
        clear  -> 0 of 3 left, cleared
    "

    fn a_cleared_pool_stays_cleared_whatever_is_asked "
        pool 1: units=3 limit=2 closes=100
        restock 1 req=a    -> 4 of 4 left
        ann claims req=a   -> #1 ann x1 @100 paid
        @100
        clear              -> 0 of 4 left, cleared
        close              -> again: 0 of 4 left, cleared
        restock 1 req=a    -> again: 0 of 4 left, cleared
        restock 1 req=b    -> no: closed
        ann claims req=a   -> no: cleared
        ann orders 1       -> no: cleared
        ann gives up 1     -> no: cleared
        bob gives up 1     -> no: cleared
        P1 pays 100 for 1  -> no: cleared
        claim 1            -> nothing
        stock              -> 0 of 4 left, cleared
    "
}
