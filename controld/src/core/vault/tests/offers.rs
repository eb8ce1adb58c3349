//! What is offered of a name before it is given, in virtual time.

use super::*;

const NOW: Duration = Duration::from_secs(100);
const NAME: &str = "llm";

/// A vault in which one process has two regions of the name, that one, and two that wait for it.
fn owned() -> (Vault, [RegionId; 2], Caller, Caller, Caller) {
    let mut vault = vault();
    let (owner, first, second) = (caller(1, 1000), caller(2, 1000), caller(3, 1000));
    let ids = [1, 2].map(|key| vault.escrow(&owner, region(key, NAME)).unwrap());
    (vault, ids, owner, first, second)
}

fn sign(vault: &Vault, who: &Caller, lost: Option<&Caller>) -> Option<Sign> {
    vault.sign(who, NAME, |process| lost.is_some_and(|lost| lost.process == process))
}

#[test]
fn nothing_of_a_living_owner_is_offered_but_what_it_leaves_or_is_about_to() {
    let (mut vault, ids, owner, first, _) = owned();
    assert_eq!(sign(&vault, &first, None), None, "it lives");
    assert_eq!(sign(&vault, &first, Some(&owner)), Some(Sign::Lost));
    assert_eq!(sign(&vault, &owner, Some(&owner)), None, "its own");
    vault.ends(first.process);
    assert!(!vault.is_ending(first.process), "who has nothing is not remembered");
    vault.ends(owner.process);
    assert_eq!(sign(&vault, &first, None), Some(Sign::Ends));
    assert_eq!(vault.offer(NOW, &first, NAME, Sign::Ends, 7), Some(ids.to_vec()));
    assert!(vault.is_offered(&first, NAME, 7) && !vault.is_offered(&first, NAME, 8));
    assert_eq!(vault.adopt(&first, NAME), Err(Failure::OWNER_LIVES), "an offer gives nothing");
    vault.ended(NOW, owner.process);
    assert!(!vault.is_ending(owner.process));
    assert_eq!(sign(&vault, &first, None), Some(Sign::Ends));
    assert!(vault.is_offered(&first, NAME, 7), "its end makes it no other memory");
    assert_eq!(vault.adopt(&first, NAME), Ok(ids.to_vec()));
    assert!(!vault.is_offered(&first, NAME, 7), "it is given");
    assert_eq!(vault.offer(NOW, &caller(9, 1000), "nothing", Sign::Ends, 9), None);
}

#[test]
fn no_other_user_is_offered_anything() {
    let (mut vault, _, owner, first, _) = owned();
    vault.ends(owner.process);
    for stranger in [caller(8, 1001), caller(8, 0)] {
        assert_eq!(sign(&vault, &stranger, None), None);
        assert_eq!(vault.offer(NOW, &stranger, NAME, Sign::Ends, 1), None);
    }
    assert!(vault.offer(NOW, &first, NAME, Sign::Ends, 2).is_some());
    assert!(!vault.is_offered(&caller(8, 1001), NAME, 2));
}

#[test]
fn an_offer_is_withdrawn_with_any_change_of_what_it_was_made_of() {
    type Change = fn(&mut Vault, &Caller, &[RegionId; 2]);
    let changes: [(&str, Change); 5] = [
        ("a region is freed", |vault, owner, _| drop(vault.release(owner, 1).unwrap())),
        ("another one comes", |vault, owner, _| assert!(vault.escrow(owner, region(3, NAME)).is_ok())),
        ("one is given anew", |vault, owner, _| assert!(vault.escrow(owner, region(2, NAME)).is_ok())),
        ("one could not be made safe", |vault, _, ids| drop(vault.remove(ids[0]).unwrap())),
        ("it is started again and adopts", |vault, owner, _| {
            vault.ended(NOW, owner.process);
            vault.adopt(&caller(5, 1000), NAME).unwrap();
        }),
    ];
    for (what, change) in changes {
        let (mut vault, ids, owner, first, _) = owned();
        vault.offer(NOW, &first, NAME, Sign::Lost, 7).unwrap();
        change(&mut vault, &owner, &ids);
        assert!(!vault.is_offered(&first, NAME, 7), "{what}");
    }
}

#[test]
fn who_goes_on_in_spite_of_lost_work_is_not_taken_for_ending_again_until_it_is() {
    let (mut vault, ids, owner, first, _) = owned();
    vault.offer(NOW, &first, NAME, Sign::Lost, 7).unwrap();
    vault.release(&owner, 1).unwrap();
    assert_eq!(vault.offer(NOW, &first, NAME, Sign::Lost, 8), None, "it would be mapped and unmapped with each piece");
    assert_eq!(vault.offer(NOW, &first, NAME, Sign::Ends, 9), Some(vec![ids[1]]));
    // The same where its server serves again, or it goes on with another copy of the driver.
    let (mut vault, _, owner, first, _) = owned();
    vault.offer(NOW, &first, NAME, Sign::Lost, 7).unwrap();
    vault.review_offer(&first, NAME, Some(Sign::Lost));
    assert!(vault.is_offered(&first, NAME, 7));
    vault.review_offer(&first, NAME, None);
    assert!(!vault.is_offered(&first, NAME, 7));
    assert_eq!(vault.offer(NOW, &first, NAME, Sign::Lost, 8), None);
    // What is known for certain is not taken back for want of a sign.
    vault.ends(owner.process);
    vault.offer(NOW, &first, NAME, Sign::Ends, 9).unwrap();
    vault.review_offer(&first, NAME, None);
    assert!(vault.is_offered(&first, NAME, 9));
}

#[test]
fn of_two_that_wait_one_has_the_offer_and_the_other_one_after_its_end_or_a_second() {
    let (mut vault, ids, owner, first, second) = owned();
    vault.ends(owner.process);
    vault.offer(NOW, &first, NAME, Sign::Ends, 7).unwrap();
    assert!(vault.is_promised(NOW, &second, NAME) && !vault.is_promised(NOW, &first, NAME));
    assert_eq!(vault.offer(NOW, &second, NAME, Sign::Ends, 8), None);
    assert_eq!(vault.promise_ends(NOW), Some(NOW + Duration::from_secs(1)));
    // Asked for anew it is made anew, as after a lost connection.
    assert!(vault.offer(NOW, &first, NAME, Sign::Ends, 9).is_some());
    assert!(vault.is_offered(&first, NAME, 9) && !vault.is_offered(&first, NAME, 7));
    vault.ended(NOW, first.process);
    assert!(!vault.is_promised(NOW, &second, NAME));
    assert_eq!(vault.offer(NOW, &second, NAME, Sign::Ends, 10), Some(ids.to_vec()));
    let later = NOW + Duration::from_secs(1);
    let third = caller(4, 1000);
    assert!(vault.is_promised(NOW, &third, NAME) && !vault.is_promised(later, &third, NAME), "one that is stopped");
    assert_eq!(vault.promise_ends(later), None);
    assert!(vault.offer(later, &third, NAME, Sign::Ends, 11).is_some());
    assert!(!vault.is_offered(&second, NAME, 10));
}
