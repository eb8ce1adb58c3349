//! Code: modules and libraries with their images, functions and variables.

mod image;
pub(crate) mod libraries;
pub(crate) mod modules;
pub(crate) mod variables;
pub(crate) mod written;

pub(crate) use image::{Variables, variables as variables_of};
