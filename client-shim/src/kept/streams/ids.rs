//! The numbers by which a program tells streams apart; what is told of them is noted with those of contexts.

use std::ffi::c_ulonglong;

use crate::{
    cuda::{call::Bypass, functions::Function, names, types::CUstream},
    kept::{
        objects::{
            current::of_streams,
            ids::{self, Object},
        },
        work::progress,
    },
};

/// After `cuStreamGetId`.
pub(crate) fn id(function: &Function, stream: CUstream, id: *mut c_ulonglong) -> Result<(), Bypass> {
    let current = names::name_of(of_streams()?);
    let (name, of) = progress::named(stream, function.is_per_thread(), current);
    ids::corrected(Object::Stream(name), of, id)
}
