//! Pre-cut portions: a claim takes the next one whole, and not a cent is lost.

use qiang_core::{Event, State};

use super::script::check;

#[test]
fn the_next_portion_is_taken_whole() {
    check(
        "
        pool 1: portions=7,1,5
        ann claims  -> #1 ann x1 @7 portion 0 paid
        bob claims  -> #2 bob x1 @1 portion 1 paid
        bob claims  -> no: already_claimed #2
        stock       -> 1 of 3 left, 2 paid
        cyd claims  -> #3 cyd x1 @5 portion 2 paid
        dan claims  -> no: sold_out
        ",
    );
}

#[test]
fn one_portion_at_a_time() {
    check(
        "
        pool 1: portions=7,1,5 limit=2
        ann claims 3  -> no: over_limit 0 of 2
        ann claims 2  -> no: over_limit 0 of 1
        ann claims    -> #1 ann x1 @7 portion 0 paid
        ann claims 2  -> no: over_limit 1 of 2
        ann claims    -> #2 ann x1 @1 portion 1 paid
        ann claims    -> no: over_limit 2 of 2
        ",
    );
}

#[test]
fn a_portion_given_back_is_the_next_to_go() {
    check(
        "
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
        ",
    );
}

#[test]
fn late_money_buys_a_portion_of_the_same_value_only() {
    check(
        "
        pool 1: portions=7,7,5 flow=order(100)
        ann claims       -> #1 ann x1 @7 portion 0 ordered until 100
        @100             -> #1 ann x1 @7 portion 0 released pay_expired
        bob claims       -> #2 bob x1 @7 portion 0 ordered until 200
        P1 pays 7 for 1  -> regranted #3 ann x1 @7 portion 1 paid by P1 for #1
        @200             -> #2 bob x1 @7 portion 0 released pay_expired
        cyd claims       -> #4 cyd x1 @7 portion 0 ordered until 300
        P2 pays 7 for 2  -> refund 7 of P2 for #2 late
        ",
    );
}

#[test]
fn taken_and_left_are_always_what_was_funded() {
    let cut = [7_i64, 1, 5, 9];
    let table = check(
        "
        pool 1: portions=7,1,5,9 flow=hold(50,100)
        ann claims
        bob claims
        cyd claims
        bob gives up 2
        ann orders 1
        P1 pays 7 for 1
        @50  -> #3 cyd x1 @5 portion 2 released hold_expired
        dan claims  -> #4 dan x1 @1 portion 1 held until 100
        ",
    );
    let mut owners = [None; 4];
    for event in &table.events {
        let Event::Claim(claim) = event else { continue };
        let place = claim.portion.expect("a claim on portions has one") as usize;
        assert_eq!(claim.unit_price.get(), cut[place], "a portion is taken whole");
        if claim.state == State::Released {
            assert_eq!(owners[place].take(), Some(claim.id.number));
        } else if claim.version == 1 {
            assert_eq!(owners[place].replace(claim.id.number), None, "a portion has one owner");
        }
    }
    let taken: i64 = (0..4).filter(|place| owners[*place].is_some()).map(|place| cut[place]).sum();
    let left: i64 = (0..4).filter(|place| owners[*place].is_none()).map(|place| cut[place]).sum();
    assert_eq!((taken, left), (8, 14));
}
