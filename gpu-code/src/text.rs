//! PTX: declarations of variables, and calls.
//!
//! A variable stands outside of functions or inside of one, where it is none of a call's: `ptxas` makes of
//! `.global .u32 inner;` in an entry a variable `$__inner__10` of the module, whose name nobody knows before.

use std::collections::BTreeSet;

use crate::{Contents, Place, UNKNOWN_STACK, is_heap, is_launch, is_message};

/// State spaces of variables.
const SPACES: [&str; 2] = [".global", ".const"];

/// What a text has.
pub(crate) fn contents(text: &str) -> Contents {
    let text = plain(text);
    let mut contents = Contents::default();
    let mut depth = 0_usize;
    let mut statement = String::new();
    let mut calls = Calls::default();
    for character in text.chars() {
        match character {
            // An initialiser's braces belong to the statement.
            '{' if !statement.contains('=') => {
                if depth == 0 {
                    calls.begins(&statement);
                }
                depth += 1;
                statement.clear();
            }
            '}' if !statement.contains('=') => {
                depth = depth.saturating_sub(1);
                statement.clear();
            }
            ';' => {
                declared(&statement, depth > 0, &mut contents);
                calls.note(&statement, depth > 0);
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
    for kernel in calls.without_a_bound() {
        contents.needs(kernel, UNKNOWN_STACK);
    }
    contents
}

/// What kernels and functions call. A kernel's stack has a bound if it calls functions by name which call nothing, and
/// allocates nothing there: the driver's compiler adds up the rest.
#[derive(Debug, Default)]
struct Calls {
    kernels: Vec<String>,
    functions: BTreeSet<String>,
    /// The kernel that the text is in; `None` for a function.
    kernel: Option<String>,
    unbounded: BTreeSet<String>,
    /// A function may call itself, or somebody whom nobody knows.
    are_all_unbounded: bool,
}

impl Calls {
    /// A body begins after this.
    fn begins(&mut self, head: &str) {
        self.kernel = name_behind(head, ".entry");
        self.kernels.extend(self.kernel.clone());
        self.functions.extend(name_behind(head, ".func"));
    }

    fn note(&mut self, statement: &str, is_inside: bool) {
        if !is_inside {
            let declared = name_behind(statement, ".func");
            self.are_all_unbounded |= declared.as_deref().is_some_and(is_launch);
            self.functions.extend(declared);
            return;
        }
        let is = |word: &str, what: &str| word == what || word.strip_prefix(what).is_some_and(|of| of.starts_with('.'));
        let mut words = statement.split(|of: char| of.is_whitespace() || ":,()".contains(of));
        let has_a_bound = match words.find(|word| ["call", "alloca", "stackrestore"].iter().any(|of| is(word, of))) {
            None => return,
            Some(word) => is(word, "call") && self.kernel.is_some() && self.is_known(statement),
        };
        match &self.kernel {
            _ if has_a_bound => {}
            Some(kernel) => drop(self.unbounded.insert(kernel.clone())),
            None => self.are_all_unbounded = true,
        }
    }

    /// Whether this call is one of a function that was declared, which it has outside of parentheses.
    fn is_known(&self, call: &str) -> bool {
        let mut depth = 0_usize;
        let outside: String = call
            .chars()
            .map(|of| {
                depth += usize::from(of == '(');
                let is_outside = depth == 0;
                depth = depth.saturating_sub(usize::from(of == ')'));
                if is_outside { of } else { ' ' }
            })
            .collect();
        let mut names =
            outside.split([',', ' ', '\t', '\n', '\r']).skip_while(|word| !word.starts_with("call")).skip(1);
        names.find(|word| !word.is_empty()).is_some_and(|name| self.functions.contains(name))
    }

    fn without_a_bound(&self) -> impl Iterator<Item = &str> {
        let is_one = |kernel: &&String| self.are_all_unbounded || self.unbounded.contains(*kernel);
        self.kernels.iter().filter(is_one).map(String::as_str)
    }
}

/// The name of what is declared by this word, behind what it returns.
fn name_behind(head: &str, word: &str) -> Option<String> {
    let (_, behind) = head.split_once(word).filter(|(_, behind)| behind.starts_with([' ', '\t', '\n', '\r', '(']))?;
    let mut behind = behind.trim_start();
    while let Some(rest) = behind.strip_prefix('(') {
        behind = rest.split_once(')')?.1.trim_start();
    }
    // Directives may stand before it.
    let mut words = behind.split(|of: char| of.is_whitespace() || "({;".contains(of));
    words.find(|word| !word.is_empty() && !word.starts_with('.')).map(str::to_owned)
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
    use crate::{Contents, Gpus, Place, UNKNOWN_STACK};

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
    fn stack_has_a_bound_where_calls_are_known_and_call_nothing() {
        let f = ".func (.param .b32 o) f(.param .b32 i) { .reg .b32 %r<4>; st.param.b32 [o], %r1; ret; }";
        for (text, kernels) in [
            (".visible .entry k(.param .u64 p) { .local .b8 a[64]; ret; }".to_owned(), &[][..]),
            (format!("{f} .entry k() {{ {{ .param .b32 x; call.uni (x), f, (x); }} ret; }}"), &[]),
            (format!("{f} .entry k() {{ @%p call (x), f, (x); L: call f; ret; }}"), &[]),
            (
                ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n\
                 .entry k() { call.uni \n(r), \nvprintf, \n(a, b); ret; }"
                    .to_owned(),
                &[],
            ),
            (
                ".extern .func __assertfail(.param .b64 a) .noreturn;.entry k() { call.uni __assertfail, (a); }".into(),
                &[],
            ),
            (format!("{f} .entry k() {{ call (x), %rd1, (x), proto; ret; }} .entry l() {{ ret; }}"), &["k"]),
            (format!("{f} .entry k() {{ call (x), f_table, (x), proto; ret; }}"), &["k"]),
            (".entry k() { alloca.u64 %rd1, %rd2, 8; ret; }".to_owned(), &["k"]),
            (".func g() { call g; ret; } .entry k() { ret; } .visible .entry l() { ret; }".to_owned(), &["k", "l"]),
            (format!("{f} .func g() {{ call (x), f, (x); ret; }} .entry k() {{ ret; }}"), &["k"]),
            (".extern .func cudaLaunchDevice(.param .b64 a);.entry k() { ret; }".to_owned(), &["k"]),
            (".entry k() { bra callee; callee: ret; }".to_owned(), &[]),
        ] {
            let found = contents(&text);
            assert!(found.unread.is_empty(), "{text}: {found:?}");
            assert!(found.stacks.values().all(|bytes| *bytes == UNKNOWN_STACK), "{text}");
            assert_eq!(found.stacks.keys().collect::<Vec<_>>(), kernels, "{text}");
        }
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
