//! How much one buyer may have: for the life of the pool, over all claims, over all accounts.

use super::rules;

rules! {
    fn one_each "
        pool 1: units=5 limit=1
        ann claims    -> #1 ann x1 @100 paid
        ann claims    -> no: already_claimed #1
        ann claims 2  -> no: already_claimed #1
        bob claims 2  -> no: over_limit 0 of 1
        bob claims    -> #2 bob x1 @100 paid
        stock         -> 3 of 5 left, 2 paid
    "

    fn several_each_are_added_up "
        pool 1: units=9 limit=3
        ann claims 2  -> #1 ann x2 @100 paid
        ann claims 2  -> no: over_limit 2 of 3
        ann claims 1  -> #2 ann x1 @100 paid
        ann claims 1  -> no: over_limit 3 of 3
        bob claims 4  -> no: over_limit 0 of 3
        bob claims 3  -> #3 bob x3 @100 paid
        ann claims 4294967295 -> no: over_limit 3 of 3
    "

    fn accounts_of_one_person_count_together "
        pool 1: units=9 limit=2 by=identity
        ann claims as=A   -> #1 ann x1 @100 paid
        amy claims as=A   -> #2 amy x1 @100 paid
        ann claims as=A   -> no: over_limit 2 of 2
        anna claims as=A  -> no: over_limit 2 of 2
        bob claims as=B   -> #3 bob x1 @100 paid
        ann claims as=B   -> #4 ann x1 @100 paid
        bob claims as=B   -> no: over_limit 2 of 2
    "

    fn one_per_person_never_names_the_claim_of_the_other_account "
        pool 1: units=9 limit=1 by=identity
        ann claims as=A  -> #1 ann x1 @100 paid
        amy claims as=A  -> no: over_limit 1 of 1
        ann claims as=A  -> no: already_claimed #1
    "

    fn identities_mean_nothing_where_accounts_are_counted "
        pool 1: units=9 limit=1
        ann claims as=A  -> #1 ann x1 @100 paid
        amy claims as=A  -> #2 amy x1 @100 paid
        ann claims as=B  -> no: already_claimed #1
    "

    fn a_name_is_not_an_identity "
        pool 1: units=9 limit=1 by=identity
        ann claims as=bob  -> #1 ann x1 @100 paid
        bob claims as=ann  -> #2 bob x1 @100 paid
    "

    fn what_was_given_back_may_be_had_again "
        pool 1: units=2 limit=1 flow=order(100)
        ann claims      -> #1 ann x1 @100 ordered until 100
        ann claims      -> no: already_claimed #1
        ann gives up 1  -> #1 ann x1 @100 released gave_up
        ann claims      -> #2 ann x1 @100 ordered until 100
        ann claims      -> no: already_claimed #2
    "

    fn quantities_come_back_whole "
        pool 1: units=9 limit=3 flow=order(100)
        ann claims 2    -> #1 ann x2 @100 ordered until 100
        ann claims 1    -> #2 ann x1 @100 ordered until 100
        ann gives up 1  -> #1 ann x2 @100 released gave_up
        ann claims 3    -> no: over_limit 1 of 3
        ann claims 2    -> #3 ann x2 @100 ordered until 100
        stock           -> 6 of 9 left, 3 ordered
    "

    fn never_again_after_a_release_where_that_is_the_rule "
        pool 1: units=3 limit=1 flow=order(100) reclaim=never
        pool 2: units=9 limit=3 flow=order(100) reclaim=never
        ann claims           -> #1 ann x1 @100 ordered until 100
        ann gives up 1       -> #1 ann x1 @100 released gave_up
        stock                -> 3 of 3 left
        ann claims           -> no: released
        ann claims 2 in=2    -> #1 ann x2 @100 ordered until 100
        ann gives up 2-1     -> #1 ann x2 @100 released gave_up
        ann claims 2 in=2    -> no: over_limit 2 of 3
        ann claims 1 in=2    -> #2 ann x1 @100 ordered until 100
        ann claims 1 in=2    -> no: over_limit 3 of 3
    "

    fn a_release_by_one_account_frees_the_person "
        pool 1: units=3 limit=1 by=identity flow=hold(50,50)
        ann claims as=A  -> #1 ann x1 @100 held until 50
        amy claims as=A  -> no: over_limit 1 of 1
        ann gives up 1   -> #1 ann x1 @100 released gave_up
        amy claims as=A  -> #2 amy x1 @100 held until 50
        ann claims as=A  -> no: over_limit 1 of 1
    "

    fn pools_do_not_know_each_other "
        pool 1: units=1
        pool 2: units=1
        ann claims in=1 req=a  -> #1 ann x1 @100 paid
        ann claims in=2 req=a  -> #1 ann x1 @100 paid
    "
}
