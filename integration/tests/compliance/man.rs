//! The manual page against the program: the same options, the same commands, and no complaint of `mandoc`.

use integration::under_test::Skipped;
use remps_controld::cli::{LOCAL_COMMANDS, OPTIONS};
use remps_proto::admin::CommandName;
use std::path::PathBuf;
use std::process::Command;

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../man/nvidia-cuda-mps-control.1")
}

/// The items of a section's list, as a reader sees them.
fn items(section: &str) -> Vec<String> {
    let text = std::fs::read_to_string(page()).expect("the page is there");
    let lines = text.lines().skip_while(|line| *line != format!(".Sh {section}")).skip(1);
    lines.take_while(|line| !line.starts_with(".Sh ")).filter_map(|line| line.strip_prefix(".It ")).map(shown).collect()
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
    assert_eq!(items("COMMANDS"), in_program);
}

#[test]
fn the_page_has_every_command_of_ours_with_its_arguments() {
    let in_program: Vec<String> =
        LOCAL_COMMANDS.iter().map(|spec| format!("{} {}", spec.name, spec.arguments)).collect();
    assert_eq!(items("COMMANDS WITHOUT THE DAEMON"), in_program);
}

#[test]
fn the_page_names_the_release_of_each_newer_command() {
    let text = std::fs::read_to_string(page()).expect("the page is there");
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
    let folder = page().parent().expect("the page is in a folder").to_owned();
    let pages = std::fs::read_dir(folder).expect("the folder is there").flatten().map(|entry| entry.path());
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
