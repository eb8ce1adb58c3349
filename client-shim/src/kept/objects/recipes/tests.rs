//! A recipe goes with what it is of, and is known by the name that its object has for the program.

use std::{
    ffi::CString,
    time::{Duration, Instant},
};

use super::{super::still::Wanted, Image, KINDS, MOST_IMAGE_BYTES, Recipe, Recipes, Setting};

fn module(context: usize) -> Recipe {
    Recipe::Module { context, image: Image::Bytes([0; 10].into()), options: Vec::new() }
}

fn function(module: usize) -> Recipe {
    Recipe::Function { module, name: CString::from(c"increment") }
}

#[test]
fn what_is_made_of_something_goes_with_it() {
    let mut recipes = Recipes::default();
    recipes.keep(1, Recipe::Library { image: Image::File(CString::from(c"a.cubin")), options: Vec::new() });
    recipes.keep(2, Recipe::Kernel { library: 1, name: CString::from(c"k") });
    recipes.keep(3, Recipe::KernelFunction { context: 0xc0, kernel: 2 });
    recipes.keep(4, module(0xc0));
    recipes.keep(5, function(4));
    assert_eq!(recipes.totals(), ([0, 0, 1, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], 10));
    assert!(recipes.forget(1));
    assert_eq!(recipes.totals(), ([0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 10));
    assert!(!recipes.forget(3), "it went with the kernel");
    recipes.forget_context(0xc0);
    assert_eq!(recipes.totals(), ([0; KINDS.len()], 0));
}

#[test]
fn what_the_driver_does_not_destroy_is_as_it_was() {
    let mut recipes = Recipes::default();
    recipes.keep(4, module(0xc0));
    recipes.keep(5, function(4));
    recipes.set(5, Setting::Cache(None), 3);
    let taken = recipes.take(4);
    assert_eq!(recipes.totals(), ([0; KINDS.len()], 0));
    recipes.put_back(taken);
    assert_eq!(recipes.totals(), ([0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 10));
    assert_eq!(recipes.settings.len(), 1);
}

/// It may have ended its own when it looked meanwhile.
#[test]
fn what_the_driver_does_not_destroy_is_another_one_to_a_spare_copy() {
    let mut recipes = Recipes::default();
    recipes.keep(4, module(0xc0));
    recipes.keep(5, function(4));
    recipes.keep(6, Recipe::Event { context: 0xc0, flags: 0 });
    let last = recipes.number_of(6);
    let taken = recipes.take(4);
    let changes = recipes.changes();
    recipes.put_back(taken);
    assert!(recipes.number_of(4) > last && recipes.number_of(5) > recipes.number_of(4));
    assert!(recipes.changes() > changes && recipes.number_of(6) == last);
}

#[test]
fn a_handle_given_out_again_is_another_object() {
    let mut recipes = Recipes::default();
    recipes.keep(4, module(0xc0));
    recipes.keep(5, function(4));
    recipes.keep_first(5, || unreachable!("it is known"));
    recipes.keep(4, Recipe::Event { context: 0xc0, flags: 0 });
    assert_eq!(recipes.totals(), ([0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0));
}

#[test]
fn the_last_value_of_a_setting_is_kept_with_what_it_was_set_on() {
    let mut recipes = Recipes::default();
    recipes.keep(4, module(0xc0));
    recipes.keep(5, function(4));
    recipes.set(5, Setting::Attribute(8, None), 1);
    recipes.set(5, Setting::Attribute(8, None), 2);
    recipes.set(5, Setting::Cache(None), 3);
    recipes.set(0xc0, Setting::Limit(0), 4096);
    recipes.set(0xc1, Setting::Limit(0), 4096);
    assert_eq!(recipes.settings.get(&(5, Setting::Attribute(8, None))), Some(&2));
    recipes.forget(4);
    assert_eq!(recipes.settings.len(), 2);
    recipes.forget_context(0xc0);
    assert_eq!(recipes.settings.into_keys().collect::<Vec<_>>(), [(0xc1, Setting::Limit(0))]);
}

#[test]
fn a_stream_that_gets_anothers_attributes_has_no_others() {
    let mut recipes = Recipes::default();
    for (of, setting, value) in
        [(1, Setting::StreamAttribute(1, 0), 5), (2, Setting::StreamAttribute(8, 0), 6), (2, Setting::Limit(0), 7)]
    {
        recipes.set(of, setting, value);
    }
    recipes.copy_attributes(2, 1);
    recipes.copy_attributes(1, 1);
    let all: Vec<_> = recipes.all_settings();
    let expected =
        [(1, Setting::StreamAttribute(1, 0), 5), (2, Setting::Limit(0), 7), (2, Setting::StreamAttribute(1, 0), 5)];
    assert_eq!(all, expected);
}

#[test]
fn images_are_kept_within_bounds() {
    let mut recipes = Recipes { image_bytes: MOST_IMAGE_BYTES - 9, ..Recipes::default() };
    assert!(!recipes.keep(4, module(0xc0)));
    assert!(recipes.keep(5, Recipe::Event { context: 0xc0, flags: 0 }));
}

/// How long it may take is there to end a hang: with a look at all others it takes minutes.
#[test]
fn one_is_destroyed_without_a_look_at_all_others() {
    const MANY: usize = 200_000;
    const CONTEXT: usize = 0xc0;
    let mut recipes = Recipes::default();
    for handle in 1..=MANY {
        recipes.keep(handle * 16, Recipe::Event { context: CONTEXT, flags: 0 });
        recipes.set(handle * 16, Setting::Limit(0), 1);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    for handle in (1..=MANY).rev() {
        assert!(recipes.forget(handle * 16));
        assert!(Instant::now() < deadline, "{} are left", handle - 1);
    }
    assert_eq!((recipes.totals(), recipes.settings.len()), (([0; KINDS.len()], 0), 0));
}

/// A spare copy that has followed what has this number looks at no variable again.
#[test]
fn what_variables_have_has_another_number_when_it_may_be_something_else() {
    let mut recipes = Recipes::default();
    let image = b".version 8.0\n.target sm_80\n.global .u32 v;\n\0".to_vec();
    recipes.keep(1, Recipe::Module { context: 0xc0, image: Image::Bytes(image.into()), options: Vec::new() });
    recipes.keep(2, Recipe::Event { context: 0xc0, flags: 0 });
    let read = |recipes: &mut Recipes| {
        let wanted = Wanted::of(&recipes.in_order(), &[0xc0]);
        let variables: Vec<_> = wanted.variables.keys().map(|name| (name.clone(), vec![1])).collect();
        assert_eq!(variables.len(), 1);
        assert!(recipes.is_still(wanted.read(7, variables, Vec::new()), recipes.changes()));
        recipes.still_number()
    };
    let first = read(&mut recipes);
    recipes.forget(2);
    assert_eq!((recipes.still_number(), recipes.still(7).is_some()), (first, true), "an event has no variables");
    let again = read(&mut recipes);
    recipes.rename(|handle| handle + 0x1000);
    let renamed = recipes.still_number();
    let names: Vec<_> = recipes.still(7).iter().flat_map(|still| &still.variables).map(|(name, _)| name.of).collect();
    assert_eq!(names, [0x1001]);
    recipes.forget(0x1001);
    let forgotten = recipes.still_number();
    assert!(first < again && again < renamed && renamed < forgotten, "{first}, {again}, {renamed}, {forgotten}");
    assert!(recipes.still(7).is_some_and(|still| still.variables.is_empty()));
}

#[test]
fn what_was_set_on_an_address_goes_with_the_memory_whatever_the_context_is_called() {
    let mut recipes = Recipes::default();
    let of = |address| Setting::PointerAttribute(6, address);
    for (context, setting) in [(0xc0, of(0x1000)), (0xc1, of(0x1800)), (0xc0, of(0x2000)), (0xc0, Setting::Limit(1))] {
        recipes.set(context, setting, 1);
    }
    recipes.rename(|context| context + 0x100);
    recipes.forget_addresses(&(0x1000..0x2000));
    assert_eq!(recipes.all_settings(), [(0x1c0, Setting::Limit(1), 1), (0x1c0, of(0x2000), 1)]);
    recipes.forget_addresses(&(0x1000..0x2000));
    recipes.set(0x1c0, of(0x1000), 1);
    recipes.forget_addresses(&(0x1000..0x3000));
    assert_eq!(recipes.all_settings(), [(0x1c0, Setting::Limit(1), 1)]);
}
