//! The manual pages against the program: the same options, the same commands, a page for each command of ours, and no
//! complaint of `mandoc`.

use integration::under_test::Skipped;
use remps_controld::parts::cli::{LOCAL_COMMANDS, OPTIONS};
use remps_proto::admin::CommandName;
use std::path::PathBuf;
use std::process::Command;

/// The page with all commands. Those of ours have pages of their own, to which it refers.
const MAIN: &str = "nvidia-cuda-mps-control";
/// Its sections with commands: the vendor's, ours, and ours that need no daemon.
const SECTIONS: [&str; 3] = ["COMMANDS", "COMMANDS OF REMPS", "COMMANDS WITHOUT THE DAEMON"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../man")
}

/// The text of a page of section 1.
fn page(name: &str) -> String {
    let path = folder().join(format!("{name}.1"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The items of a section's list with the lines below each.
fn entries(section: &str) -> Vec<(String, Vec<String>)> {
    let text = page(MAIN);
    let lines = text.lines().skip_while(|line| *line != format!(".Sh {section}")).skip(1);
    let mut entries: Vec<(String, Vec<String>)> = Vec::new();
    for line in lines.take_while(|line| !line.starts_with(".Sh ")) {
        if let Some(item) = line.strip_prefix(".It ") {
            entries.push((item.to_owned(), Vec::new()));
        } else if let Some((_, below)) = entries.last_mut() {
            below.push(line.to_owned());
        }
    }
    entries
}

/// The items of a section's list, as a reader sees them.
fn items(section: &str) -> Vec<String> {
    entries(section).into_iter().map(|(item, _)| shown(&item)).collect()
}

/// What `mandoc` makes of an item's macros.
fn shown(item: &str) -> String {
    let mut text = String::new();
    let mut close_at_end = false;
    let mut glue = true;
    for word in item.split(' ') {
        let (piece, glue_after) = match word {
            "Ic" | "Ar" | "Cm" => continue,
            "Ns" => {
                glue = true;
                continue;
            }
            "Fl" => ("-", true),
            "Op" => {
                close_at_end = true;
                ("[", true)
            }
            "Oo" => ("[", true),
            "Oc" => {
                text.push(']');
                continue;
            }
            "," => {
                text.push(',');
                continue;
            }
            other => (other, false),
        };
        if !glue {
            text.push(' ');
        }
        text.push_str(piece);
        glue = glue_after;
    }
    if close_at_end {
        text.push(']');
    }
    text
}

#[test]
fn the_page_has_every_spelling_of_every_option() {
    let mut in_page: Vec<String> =
        items("OPTIONS").iter().flat_map(|item| item.split(", ")).map(str::to_owned).collect();
    let mut in_program: Vec<String> = OPTIONS
        .iter()
        .flat_map(|spec| {
            let letters = spec.letters.iter().map(|letter| format!("-{letter}"));
            letters.chain(spec.words.iter().map(|word| (*word).to_owned()))
        })
        .collect();
    in_page.sort();
    in_program.sort();
    assert_eq!(in_page, in_program);
}

#[test]
fn the_page_has_every_command_with_its_arguments() {
    let in_program: Vec<String> =
        CommandName::ALL.iter().map(|name| format!("{name} {}", name.arguments()).trim_end().to_owned()).collect();
    let [vendors, ours, _] = SECTIONS.map(items);
    assert_eq!([vendors, ours].concat(), in_program);
}

#[test]
fn the_page_has_every_command_of_ours_with_its_arguments() {
    let in_program: Vec<String> =
        LOCAL_COMMANDS.iter().map(|spec| format!("{} {}", spec.name, spec.arguments)).collect();
    let [_, _, local] = SECTIONS.map(items);
    assert_eq!(local, in_program);
}

/// The options that a synopsis has, as `--json`.
fn options(item: &str) -> impl Iterator<Item = &str> {
    let words = item.split([' ', '[', ']', '|']);
    words.filter(|word| word.starts_with('-') && *word != "--")
}

#[test]
fn each_command_of_ours_has_a_page_with_its_options_and_examples() {
    let [_, ours, local] = SECTIONS.map(entries);
    for (item, below) in ours.into_iter().chain(local) {
        let referred = below.iter().find_map(|line| line.strip_prefix(".Xr ")?.split(' ').next());
        let text = page(referred.unwrap_or_else(|| panic!("{item}: the page refers to no other one")));
        let synopsis = shown(&item);
        for option in options(&synopsis) {
            let option = format!("Fl {}", option.strip_prefix('-').unwrap_or_default());
            assert!(text.contains(&option), "{synopsis}: its page has no {option}");
        }
        let (_, examples) = text.split_once("\n.Sh EXAMPLES\n").unwrap_or_else(|| panic!("{synopsis}: no examples"));
        let examples = examples.split("\n.Sh ").next().unwrap_or_default();
        let name = synopsis.split(' ').next().unwrap_or_default();
        assert!(examples.contains(name), "{synopsis}: its page has no example of it");
    }
}

#[test]
fn the_page_names_the_release_of_each_newer_command() {
    let text = page(MAIN);
    let oldest = remps_proto::admin::Personality::ALL[0];
    for name in CommandName::ALL.iter().filter(|name| name.since() > oldest) {
        let start = text.find(&format!(".It Ic {name}")).expect("an item of the page");
        let item = text[start..].lines().skip(1).take_while(|line| !line.starts_with(".It")).collect::<Vec<_>>();
        let since = format!("since driver {}", name.since());
        assert!(item.join(" ").to_lowercase().contains(&since), "{name}: the page does not say {since:?}");
    }
}

#[test]
fn mandoc_has_nothing_to_complain_about() {
    let pages = std::fs::read_dir(folder()).expect("the folder is there").flatten().map(|entry| entry.path());
    for page in pages {
        // The pages that they refer to are not installed where they are tested, which is a matter of style to mandoc.
        let output = match Command::new("mandoc").args(["-Tlint", "-Wwarning"]).arg(&page).output() {
            Ok(output) => output,
            Err(error) => {
                Skipped(format!("mandoc: {error}")).report();
                return;
            }
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
