//! Code: modules and libraries with their images, functions and variables.

pub(crate) mod enumerated;
pub(crate) mod files;
mod image;
pub(crate) mod libraries;
pub(crate) mod modules;
pub(crate) mod reading;
pub(crate) mod stacks;
pub(crate) mod variables;

pub(crate) use super::objects::still;

use std::collections::BTreeMap;

use super::objects::{
    recipes,
    recipes::{Image, Recipe},
};
use crate::process::settings;

/// How many modules and libraries there are, how many of them have variables that kernels can write, and what of their
/// images could not be looked into: a member of the report, in JSON. Where nothing is recovered nobody looks.
pub(super) fn report() -> String {
    let all =
        if settings::is_replaying() { recipes(|recipes| recipes.in_order()).unwrap_or_default() } else { Vec::new() };
    let (mut images, mut with_variables, mut unread) = (0, 0, BTreeMap::<String, u64>::new());
    for (_, recipe) in &all {
        let (Recipe::Module { image, .. } | Recipe::Library { image, .. }) = recipe else { continue };
        images += 1;
        match image {
            Image::Bytes(code) => {
                with_variables += u64::from(code.contents().written().next().is_some());
                code.contents().unread.iter().for_each(|why| *unread.entry(why.clone()).or_default() += 1);
            }
            Image::File(_) => *unread.entry("a file".to_owned()).or_default() += 1,
        }
    }
    // Names from images may have anything in them.
    let plain =
        |text: &str| text.replace(|of: char| !of.is_ascii_graphic() && of != ' ', "?").replace(['"', '\\'], "'");
    let unread: Vec<String> = unread.iter().map(|(why, count)| format!(r#""{}":{count}"#, plain(why))).collect();
    format!(r#"{{"images":{images},"with_variables":{with_variables},"unread":{{{}}}}}"#, unread.join(","))
}
