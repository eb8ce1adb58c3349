//! Modules of a program at rest: which are kept as they are, and why others begin anew.

use std::{collections::BTreeMap, ffi::CString};

use super::{Name, Still, Wanted, anew};
use crate::kept::objects::recipes::{Image, Recipe};

const CONTEXT: usize = 0xc0;
const OTHER: usize = 0xd0;

const PLAIN: &str = ".version 8.0\n.target sm_80\n.entry k() { ret; }\n\0";
const VARIABLE: &str = ".version 8.0\n.target sm_80\n.global .u32 v;\n.const .u32 c;\n\0";
const CONSTANT: &str = ".version 8.0\n.target sm_80\n.const .u32 c;\n\0";
const HEAP: &str = ".version 8.0\n.target sm_80\n.extern .func (.param .b64 r) malloc (.param .b64 a);\n\0";
const MANAGED: &str = ".version 8.0\n.target sm_80\n.global .attribute(.managed) .u32 m;\n\0";
const INNER: &str = ".version 8.0\n.target sm_80\n.entry k() { .global .u32 i; ret; }\n\0";

fn image(text: &str) -> Image {
    Image::Bytes(text.as_bytes().to_vec().into())
}

fn module(text: &str) -> Recipe {
    Recipe::Module { context: CONTEXT, image: image(text), options: Vec::new() }
}

fn library(text: &str) -> Recipe {
    Recipe::Library { image: image(text), options: Vec::new() }
}

fn asked(of: usize, is_of_library: bool) -> Recipe {
    Recipe::Variable { context: CONTEXT, of, is_of_library, name: CString::from(c"c"), size: 4 }
}

fn name(context: usize, of: usize, is_of_library: bool, name: &str) -> Name {
    Name { context, of, is_of_library, name: CString::new(name).expect("a name") }
}

fn anew_of(recipes: &[(usize, Recipe)], still: Option<&Still>) -> Vec<(usize, String)> {
    anew(recipes, still).into_iter().collect()
}

/// All that is wanted, with a byte in each.
fn all_read(recipes: &[(usize, Recipe)]) -> Still {
    let wanted = Wanted::of(recipes, &[CONTEXT, OTHER]);
    let read = wanted.variables.keys().map(|name| (name.clone(), vec![1])).collect();
    wanted.read(7, read, Vec::new())
}

#[test]
fn what_kernels_can_write_is_read_in_each_context_that_has_it() {
    let recipes = [(1, module(VARIABLE)), (2, library(VARIABLE)), (3, module(PLAIN)), (4, module(CONSTANT))];
    let wanted = Wanted::of(&recipes, &[CONTEXT, OTHER]);
    let expected =
        [(name(CONTEXT, 1, false, "v"), 1), (name(CONTEXT, 2, true, "v"), 2), (name(OTHER, 2, true, "v"), 2)];
    assert_eq!(wanted.variables, BTreeMap::from(expected));
    assert!(wanted.missing.is_empty());
}

#[test]
fn what_the_program_has_the_address_of_is_read_too() {
    let of_library = Recipe::LibraryModule { context: CONTEXT, library: 2 };
    let recipes =
        [(1, module(CONSTANT)), (2, library(CONSTANT)), (3, of_library), (8, asked(1, false)), (9, asked(3, false))];
    let wanted = Wanted::of(&recipes, &[CONTEXT]);
    let expected = [(name(CONTEXT, 1, false, "c"), 1), (name(CONTEXT, 3, false, "c"), 2)];
    assert_eq!(wanted.variables, BTreeMap::from(expected), "a library's module counts for the library");
}

#[test]
fn whatever_was_not_read_begins_anew_by_name() {
    let recipes = [
        (1, module(VARIABLE)),
        (2, module(PLAIN)),
        (3, module(CONSTANT)),
        (4, module(HEAP)),
        (5, module(MANAGED)),
        (6, module(INNER)),
    ];
    let why: BTreeMap<usize, String> = anew(&recipes, None);
    assert_eq!(why.keys().copied().collect::<Vec<_>>(), [1, 4, 5, 6]);
    assert_eq!(why[&1], "written since it was last at rest");
    assert_eq!(why[&6], "a variable inside of a function");
    let still = all_read(&recipes);
    assert_eq!(
        anew_of(&recipes, Some(&still)),
        [(4, "the device's heap"), (5, "managed memory"), (6, "a variable inside of a function")]
            .map(|(of, why)| (of, why.to_owned()))
    );
    assert!(!still.is_whole());
    let file = [(1, Recipe::Library { image: Image::File(CString::from(c"f")), options: Vec::new() })];
    assert_eq!(anew(&file, Some(&all_read(&file))).len(), 1);
    assert_eq!(anew(&file, Some(&Still::default())).len(), 1, "though it was loaded later");
    assert_eq!(anew(&[(1, module(CONSTANT)), (9, asked(1, false))], None).len(), 1, "somebody may write it");
}

#[test]
fn what_was_loaded_since_is_as_in_its_image_if_nothing_has_run() {
    let still = all_read(&[(1, module(VARIABLE))]);
    assert!(anew(&[(1, module(VARIABLE)), (2, module(VARIABLE))], Some(&still)).is_empty());
    assert_eq!(anew(&[(1, module(VARIABLE)), (2, module(VARIABLE))], None).len(), 2);
}

#[test]
fn what_could_not_be_found_is_missing_and_follows_its_handle() {
    let recipes = [(1, module(VARIABLE)), (2, module(VARIABLE))];
    let wanted = Wanted::of(&recipes, &[CONTEXT]);
    let read = vec![(name(CONTEXT, 1, false, "v"), vec![1])];
    let mut still = wanted.read(7, read, vec![(2, "variable v is not found".to_owned())]);
    assert_eq!(anew_of(&recipes, Some(&still)), [(2, "variable v is not found".to_owned())]);
    still.rename(|handle| handle + 0x100);
    let recipes = [(0x101, module(VARIABLE)), (0x102, module(VARIABLE))];
    assert_eq!(anew(&recipes, Some(&still)).into_keys().collect::<Vec<_>>(), [0x102]);
    assert_eq!(still.variables[0].0, name(CONTEXT + 0x100, 0x101, false, "v"));
    still.forget(0x102);
    assert!(anew(&recipes, Some(&still)).is_empty(), "another one has the handle, loaded since");
    still.forget(CONTEXT + 0x100);
    assert!(still.variables.is_empty(), "they have gone with their context");
}
