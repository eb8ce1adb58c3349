//! PTX: declarations of variables.
//!
//! A variable stands outside of functions or inside of one, where it is none of a call's: `ptxas` makes of
//! `.global .u32 inner;` in an entry a variable `$__inner__10` of the module, whose name nobody knows before.

use crate::{Contents, Place, is_heap, is_message};

/// State spaces of variables.
const SPACES: [&str; 2] = [".global", ".const"];

/// What a text has.
pub(crate) fn contents(text: &str) -> Contents {
    let text = plain(text);
    let mut contents = Contents::default();
    let mut depth = 0_usize;
    let mut statement = String::new();
    for character in text.chars() {
        match character {
            // An initialiser's braces belong to the statement.
            '{' if !statement.contains('=') => {
                depth += 1;
                statement.clear();
            }
            '}' if !statement.contains('=') => {
                depth = depth.saturating_sub(1);
                statement.clear();
            }
            ';' => {
                declared(&statement, depth > 0, &mut contents);
                statement.clear();
            }
            _ => statement.push(character),
        }
    }
    // One that does not end is none that the compiler takes, or was cut off. What comes before the first declaration has
    // no end of its own.
    if depth > 0 || SPACES.iter().any(|space| statement.contains(space)) {
        contents.unread.insert("a text that is cut off".to_owned());
    }
    contents
}

/// A text without comments and without what is quoted.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['/', '"']) {
        plain.push_str(&rest[..at]);
        let (end, length) = match &rest[at..] {
            of if of.starts_with("//") => ("\n", 2),
            of if of.starts_with("/*") => ("*/", 2),
            of if of.starts_with('"') => ("\"", 1),
            _ => ("", 1),
        };
        let behind = &rest[at + length..];
        rest = behind.find(end).map_or("", |found| &behind[found + end.len()..]);
        plain.push(' ');
    }
    plain.push_str(rest);
    plain
}

/// Notes what a statement declares, if it does.
fn declared(statement: &str, is_inside: bool, contents: &mut Contents) {
    let words: Vec<&str> = statement.split_whitespace().collect();
    let has = |word: &str| words.contains(&word);
    if has(".func") {
        let mut names = statement.split(|of: char| !(of.is_alphanumeric() || "_$.".contains(of)));
        contents.has_heap |= !is_inside && names.any(is_heap);
        return;
    }
    let place = match () {
        // An instruction has its space within a word: `ld.global.u32`.
        () if has(".extern") || (is_inside && has(".param")) => return,
        () if has(".global") => Place::Global,
        () if has(".const") => Place::Constant,
        () => return,
    };
    if is_inside {
        contents.unread.insert("a variable inside of a function".to_owned());
        return;
    }
    // What stands before it may be what the text begins with: `.target sm_80, debug`.
    let start = SPACES.iter().filter_map(|space| statement.find(space)).min().unwrap_or(0);
    let statement = &statement[start..];
    let (head, value) = statement.split_once('=').map_or((statement, None), |(head, value)| (head, Some(value)));
    let place = if head.contains(".managed") { Place::Managed } else { place };
    // `.u32 one, two[4]`; a comma in brackets belongs to a vector or an attribute.
    let names: Vec<&str> = head.split(',').map(|one| one.split('[').next().unwrap_or_default()).collect();
    if value.is_some() && (names.len() > 1 || value.is_some_and(|value| value.contains('='))) {
        contents.unread.insert("a list of variables with values".to_owned());
        return;
    }
    for name in names {
        let name = name.split_whitespace().last().unwrap_or_default();
        if name.is_empty() || name.starts_with('.') || name.contains(['(', ')', '%']) {
            contents.unread.insert("a variable without a name".to_owned());
        } else if place == Place::Global
            && has(".b8")
            && value.is_some()
            && !has(".visible")
            && !has(".weak")
            && is_message(name)
        {
            // A text of the compiler's.
        } else {
            contents.add(name, place, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Contents, Gpus, Place};

    fn contents(text: &str) -> Contents {
        Contents::of(format!(".version 8.0\n.target sm_80\n{text}\0").as_bytes(), &Gpus::default())
    }

    #[test]
    fn a_text_without_variables_is_fixed() {
        for none in [
            "",
            ".global .align 1 .b8 $str$1[7] = {97, 98};",
            ".global .align 1 .b8 assertFile_0[3] = {97, 98};",
            "// .global .u32 no;\n.extern .global .u32 other;",
            "/* .const .u32 no; { */ .extern .const .u32 other;",
            ".entry k(.param .u64 .ptr .global .align 4 a) { ld.global.u32 %r1, [%rd1]; }",
            ".extern .func (.param .b64 r) vprintf (.param .b64 a, .param .b64 b);",
        ] {
            assert_eq!(contents(none), Contents::default(), "{none}");
        }
    }

    #[test]
    fn variables_are_found_by_name() {
        for (text, names) in [
            (".visible .global .align 4 .u32 counter;", &["counter"][..]),
            (".global .align 4 .u32 counter = 5;", &["counter"]),
            (".entry k() { ret; }\n.global .b32 after[4];", &["after"]),
            (".global .align 4 .b8 settings[8] = {1, 0, 0, 0, 2, 0, 0, 0};", &["settings"]),
            (".visible .global .align 1 .b8 $str[2] = {97, 98};", &["$str"]),
            ("/* { */ .global .u32 behind;", &["behind"]),
            (".file 1 \"a{b;c\"\n.global .u32 behind;", &["behind"]),
            (".const .u32 c;\n.global .u32 g;\n.const .u32 d;", &["g"]),
            (".global .u32 one, two[4];", &["one", "two"]),
            (".global .attribute(.managed) .align 4 .u32 m;", &["m"]),
            (".target sm_80, debug\n.address_size 64\n.visible .global .u32 first;", &["first"]),
        ] {
            let found = contents(text);
            assert_eq!((found.written().collect::<Vec<_>>(), found.unread.len()), (names.to_vec(), 0), "{text}");
        }
        let managed = contents(".global .attribute(.managed) .align 4 .u32 m;");
        assert_eq!(managed.variables.get("m"), Some(&Place::Managed));
        let constant = contents(".visible .const .align 4 .u32 scale[4] = {1, 2};");
        assert!(constant.is_fixed() && constant.variables.contains_key("scale"));
        assert!(contents(".extern .func (.param .b64 r) malloc (.param .b64 a);").has_heap);
    }

    #[test]
    fn what_has_no_name_that_a_program_knows_is_said() {
        for text in [
            ".entry k() { .global .align 4 .u32 inner; ret; }",
            ".entry k() { .const .align 4 .u32 inner = 3; ret; }",
            ".global .u32 a = 1, b = 2;",
            ".global .u32 ;",
            ".entry k() { ret;",
            ".global .u32 cut",
        ] {
            let found = contents(text);
            assert!(!found.unread.is_empty() && !found.is_fixed(), "{text}: {found:?}");
        }
    }
}
