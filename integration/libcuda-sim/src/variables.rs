//! Modules' variables: what a text says of them, and their memory.
//!
//! A module with variables has a range of its own in the copy's pool, so that a fresh copy of the driver has them elsewhere,
//! as with 580.159.04. When a context fails its variables are gone, and their places stay reserved, as with the real
//! driver's ranges in a dead process's map.

use crate::allocations::{self, Owner, Range};
use crate::codes::{Code, Outcome};
use crate::driver::{Driver, Tables};
use crate::ptx::{Module, size};
use crate::vmm;

/// Alignment of variables in bytes, as of allocations.
const ALIGNMENT: usize = 256;

/// A variable of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    /// Its name.
    pub(crate) name: String,
    /// Bytes from the first variable on.
    pub(crate) offset: usize,
    /// What is in it at first.
    pub(crate) bytes: Vec<u8>,
}

impl Variable {
    /// The variables of a text: `.global` and `.const` outside of kernels, with integers as initial values.
    pub(crate) fn all(text: &str) -> Outcome<Vec<Self>> {
        let mut found: Vec<Self> = Vec::new();
        for statement in statements(text) {
            let words: Vec<&str> = statement.split_whitespace().collect();
            let is_variable = words.iter().any(|word| matches!(*word, ".global" | ".const"));
            if !is_variable || words.contains(&".extern") {
                continue;
            }
            let (head, values) = statement.split_once('=').unwrap_or((&statement, ""));
            let single = head.split('[').next().unwrap_or_default();
            let (length, unit) = (size(head)?, size(single)?);
            let name = single.split_whitespace().last().ok_or(Code::INVALID_PTX)?.to_owned();
            let mut bytes = vec![0; length];
            let values = values.trim().trim_start_matches('{').trim_end_matches('}');
            let values = values.split(',').filter(|value| !value.trim().is_empty());
            for (place, value) in bytes.chunks_mut(unit.max(1)).zip(values) {
                let value: i64 = value.trim().parse().map_err(|_| Code::INVALID_PTX)?;
                place.copy_from_slice(value.to_le_bytes().get(..unit).ok_or(Code::INVALID_PTX)?);
            }
            let offset = found.last().map_or(0, |last| (last.offset + last.bytes.len()).next_multiple_of(ALIGNMENT));
            found.push(Self { name, offset, bytes });
        }
        Ok(found)
    }
}

/// What stands outside of kernels, up to each semicolon.
fn statements(text: &str) -> Vec<String> {
    let (mut found, mut statement, mut depth) = (Vec::new(), String::new(), 0_usize);
    for character in text.chars() {
        match character {
            '{' if depth > 0 || !statement.contains('=') => {
                depth += 1;
                statement.clear();
            }
            '}' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            ';' => found.push(std::mem::take(&mut statement)),
            _ => statement.push(character),
        }
    }
    found
}

/// Bytes of the range of a module's variables.
fn length(module: &Module) -> usize {
    let end = module.variables.last().map_or(0, |last| last.offset + last.bytes.len());
    end.next_multiple_of(vmm::GRANULARITY)
}

/// Places a module's variables and gives them their first values.
pub(crate) fn place(tables: &mut Tables, module: &mut Module, device: u32) -> Outcome {
    if module.variables.is_empty() {
        return Ok(());
    }
    let base = vmm::reserve(length(module), 0, 0)?;
    vmm::back(base, length(module))?;
    module.base = base;
    for variable in &module.variables {
        let address = base + variable.offset;
        let owner = Owner::Variable(module.context);
        tables.ranges.0.insert(address, Range::new(variable.bytes.len(), owner, device));
        allocations::fill(address, &variable.bytes, 1);
    }
    Ok(())
}

/// Takes variables out of what can be accessed.
fn hide(tables: &mut Tables, module: &Module) {
    for variable in &module.variables {
        tables.ranges.0.remove(&(module.base + variable.offset));
    }
}

/// Frees a module's variables.
pub(crate) fn free(tables: &mut Tables, module: &Module) {
    if module.base != 0 {
        hide(tables, module);
        // A place that is not given back stays reserved, which harms nobody.
        let _reserved = vmm::release(module.base, length(module));
    }
}

impl Driver {
    /// A context fails, by `fail`, and what was in its variables is gone: at once for whoever looks.
    pub(crate) fn lose_variables(&self, context: usize, fail: impl FnOnce()) {
        let mut tables = self.tables();
        // Once: later another copy of the driver may have the place.
        let is_lost =
            |module: &&std::sync::Arc<Module>| module.context == context && tables.ranges.0.contains_key(&module.base);
        let lost: Vec<_> = tables.modules.values().filter(is_lost).cloned().collect();
        for module in lost {
            hide(&mut tables, &module);
            // What cannot be taken out cannot be accessed all the same.
            let _mapped = vmm::empty(module.base, length(&module));
        }
        fail();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_their_values_are_found() {
        let text = ".version 8.0\n.target sm_80\n.extern .global .u32 other;\n.visible .global .align 4 .u32 table[3];\n\
            .entry k() { .reg .u32 %r<2>; ld.global.u32 %r1, [table]; ret; }\n\
            .const .align 2 .b16 scale[2] = {1, -2};\n.global .u64 one = 7;";
        let module = Module::parse(text.as_bytes(), 7).expect("sound");
        let expected = [
            ("table", 0, vec![0; 12]),
            ("scale", 256, vec![1, 0, 254, 255]),
            ("one", 512, vec![7, 0, 0, 0, 0, 0, 0, 0]),
        ];
        let expected = expected.map(|(name, offset, bytes)| Variable { name: name.to_owned(), offset, bytes });
        assert_eq!(module.variables, expected);
    }
}
