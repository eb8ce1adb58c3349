//! Modules from PTX text: which kernels are in it and what arguments they take. A fat binary is taken for the text in it.

use crate::codes::{Code, Outcome};
use crate::variables::Variable;
use remps_gpu_code::{ELF, FAT, fat};
use std::collections::BTreeMap;

/// Longest text that is read.
const MAX_TEXT: usize = 16 << 20;

/// A loaded module.
#[derive(Debug)]
pub(crate) struct Module {
    /// Handle of the context it was loaded in.
    pub(crate) context: usize,
    /// Kernels by name, each with the sizes of its arguments in bytes.
    pub(crate) kernels: BTreeMap<String, Vec<usize>>,
    /// Variables in the order of the text.
    pub(crate) variables: Vec<Variable>,
    /// Where they are, in the context; 0 if there are none.
    pub(crate) base: usize,
}

impl Module {
    /// Reads an image's text.
    ///
    /// # Errors
    /// `NO_BINARY_FOR_GPU` for a compiled image, `INVALID_PTX` for what is no PTX.
    pub(crate) fn parse(image: &[u8], context: usize) -> Outcome<Self> {
        if image.starts_with(&ELF) {
            return Err(Code::NO_BINARY_FOR_GPU);
        }
        if image.starts_with(&FAT) {
            let part = fat::parts(image).and_then(|parts| parts.into_iter().find(|part| part.kind == fat::TEXT));
            let text = part.and_then(|part| part.unpacked().ok()).ok_or(Code::NO_BINARY_FOR_GPU)?;
            let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            return Self::parse(&text[..end], context);
        }
        let text = std::str::from_utf8(image).map_err(|_| Code::INVALID_PTX)?;
        let text = without_comments(text);
        if !text.contains(".version") || !text.contains(".target") {
            return Err(Code::INVALID_PTX);
        }
        let mut kernels = BTreeMap::new();
        for entry in text.split(".entry").skip(1) {
            let head = entry.split('{').next().unwrap_or_default();
            let (name, arguments) = match head.split_once('(') {
                Some((name, rest)) => (name, rest.split_once(')').ok_or(Code::INVALID_PTX)?.0),
                None => (head, ""),
            };
            let sizes =
                arguments.split(',').filter(|text| !text.trim().is_empty()).map(size).collect::<Outcome<_>>()?;
            kernels.insert(name.trim().to_owned(), sizes);
        }
        Ok(Self { context, kernels, variables: Variable::all(&text)?, base: 0 })
    }

    /// How many bytes an image has that begins so, if it is no text: of a cubin nothing more is looked at.
    pub(crate) fn length(start: [u8; 16]) -> Option<usize> {
        if start.starts_with(&ELF) {
            return Some(start.len());
        }
        let parts = u64::from_le_bytes(start[8..].try_into().unwrap_or_default());
        let header = usize::from(u16::from_le_bytes([start[6], start[7]]));
        start.starts_with(&FAT).then_some(header.saturating_add(usize::try_from(parts).ok()?))
    }

    /// The longest text that is looked at for its end.
    pub(crate) const fn max_text() -> usize {
        MAX_TEXT
    }
}

/// Size in bytes of `.param .u64 name` and its like.
pub(crate) fn size(argument: &str) -> Outcome<usize> {
    let kind = argument
        .split_whitespace()
        .find(|word| word.starts_with('.') && word.len() > 2 && word[2..].bytes().all(|byte| byte.is_ascii_digit()));
    let bits: usize = kind.and_then(|word| word[2..].parse().ok()).ok_or(Code::INVALID_PTX)?;
    let count = match argument.split_once('[') {
        Some((_, rest)) => rest.split(']').next().and_then(|text| text.trim().parse().ok()).ok_or(Code::INVALID_PTX)?,
        None => 1,
    };
    Ok(bits / 8 * count)
}

fn without_comments(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        result.push_str(&rest[..at]);
        rest = rest[at + 2..].split_once("*/").map_or("", |(_, after)| after);
    }
    result.push_str(rest);
    result.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_and_their_arguments_are_found() {
        let text = "// .entry no\n.version 8.0\n.target sm_80\n/* .entry\n neither */\n\
            .visible .entry spin(\n .param .u64 spin_ns\n)\n{ ret; }\n.entry trap() { trap; }\n.entry bare { ret; }\n\
            .entry many(.param .u32 a, .param .align 8 .b8 b[16], .param .f64 c) {}";
        let module = Module::parse(text.as_bytes(), 7).expect("sound");
        let kernels: Vec<_> = module.kernels.iter().map(|(name, sizes)| (name.as_str(), sizes.as_slice())).collect();
        assert_eq!(kernels, [("bare", &[][..]), ("many", &[4, 16, 8]), ("spin", &[8]), ("trap", &[])]);
    }

    #[test]
    fn what_is_no_ptx_is_refused() {
        assert_eq!(Module::parse(b"hello", 0).err(), Some(Code::INVALID_PTX));
        assert_eq!(Module::parse(b"\x7fELF", 0).err(), Some(Code::NO_BINARY_FOR_GPU));
        assert_eq!(Module::parse(b".version .target .entry x(", 0).err(), Some(Code::INVALID_PTX));
    }
}
