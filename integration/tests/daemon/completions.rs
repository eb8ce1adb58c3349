//! Completions for shells, run in the shells.

use integration::lab::LIMIT;
use integration::lab::process::run;
use integration::under_test::{Skipped, Subject};
use remps_controld::parts::cli::{LOCAL_COMMANDS, OPTIONS};
use remps_proto::admin::{CommandName, Personality};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = "nvidia-cuda-mps-control";
/// What bash offers for words that stand there as arguments, one a line; the last word is completed.
const OFFERED: &str = r#"
source "$1"
shift
COMP_WORDS=(nvidia-cuda-mps-control "$@")
COMP_CWORD=$#
compopt() { :; }
_nvidia_cuda_mps_control
((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"
"#;

/// The script for a shell, in a folder that also has a program of the right name which knows two pids of each kind.
fn script(folder: &Path, shell: &str) -> std::path::PathBuf {
    let control = Subject::ours(Personality::V580).control;
    let made = run(Command::new(control).args(["completions", shell]), b"", LIMIT).expect("it runs");
    assert_eq!((made.code, made.stderr_text().as_str()), (Some(0), ""));
    let path = folder.join(shell);
    fs::write(&path, made.stdout_text()).expect("our folder");
    let fake = folder.join(PROGRAM);
    let answers = "#!/bin/sh\ncase $1 in\nget_server_list) echo 11; echo 12 ;;\n\
                   ps) echo 'PID ID SERVER'; echo '21 1 11'; echo '22 2 11' ;;\nesac\n";
    fs::write(&fake, answers).expect("our folder");
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).expect("our file");
    path
}

/// The lines that a shell prints, or that it is not there.
fn lines(folder: &Path, shell: &str, arguments: &[&str]) -> Result<Vec<String>, Skipped> {
    let mut command = Command::new(shell);
    command.args(arguments).env_clear().env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    command.env("HOME", folder).env("TERM", "dumb");
    let finished = run(&mut command, b"", LIMIT).map_err(|error| Skipped(format!("{shell}: {error}")))?;
    assert_eq!((finished.code, finished.stderr_text().as_str()), (Some(0), ""), "{arguments:?}");
    Ok(finished.stdout_text().lines().map(str::to_owned).collect())
}

/// Every word that can come first.
fn first_words() -> Vec<String> {
    let sent = CommandName::ALL.iter().map(|name| name.spelling());
    let mut words: Vec<String> = sent.chain(LOCAL_COMMANDS.iter().map(|spec| spec.name)).map(str::to_owned).collect();
    words.push("help".to_owned());
    words.sort();
    words
}

fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort();
    words
}

#[test]
fn bash_completes_every_option_every_command_and_what_follows_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = script(folder.path(), "bash");
    let script = script.to_str().expect("plain");
    let offered = |words: &[&str]| {
        let words = [&["--norc", "-c", OFFERED, "bash", script], words].concat();
        lines(folder.path(), "bash", &words).expect("bash runs these steps")
    };
    assert_eq!(sorted(offered(&[""])), first_words());
    let spellings = OPTIONS.iter().flat_map(|spec| {
        let letters = spec.letters.iter().map(|letter| format!("-{letter}"));
        letters.chain(spec.words.iter().map(|word| (*word).to_owned()))
    });
    assert_eq!(sorted(offered(&["-"])), sorted(spellings.collect()));

    assert_eq!(offered(&["get_fault_l"]), ["get_fault_list"]);
    assert_eq!(offered(&["status", "--j"]), ["--json"]);
    assert_eq!(offered(&["status", ""]), ["-o", "--utc", "--wide", "--json", "--exit-code", "--memory"]);
    assert_eq!(offered(&["status", "-o", ""]), ["table", "wide", "json"]);
    assert_eq!(offered(&["doctor", "-o", "j"]), ["json"]);
    assert_eq!(offered(&["run", "--name", "x", "--restart", ""]), ["on-fault", "never"]);
    assert_eq!(offered(&["run", "--name", ""]), Vec::<String>::new());
    assert_eq!(offered(&["help", "vau"]), ["vault"]);
    assert_eq!(offered(&["vault", ""]), ["list"]);
    assert_eq!(offered(&["vault", "list", "--w"]), ["--wide"]);
    assert_eq!(offered(&["completions", "z"]), ["zsh"]);
    assert_eq!(offered(&["sm_partition", ""]), ["add", "rm"]);
    assert_eq!(offered(&["nonsense", ""]), Vec::<String>::new());
    // The daemon's own pids, of the right kind in each place.
    assert_eq!(offered(&["get_client_list", ""]), ["11", "12"]);
    assert_eq!(offered(&["terminate_client", "11", ""]), ["21", "22"]);
    assert_eq!(offered(&["stop-client", "--timeout", "5", "21", ""]), ["21", "22"]);
    assert_eq!(offered(&["stop-client", "--all-of", ""]), ["self"]);
    assert_eq!(offered(&["ps", "-p", ""]), ["11", "12"]);
    assert_eq!(offered(&["-d", "-p", ""]), ["2", "3"]);
    assert_eq!(offered(&["-p", "3", "vau"]), ["vault"]);
    assert_eq!(offered(&["--check-config", &script[..script.len() - 1]]), [script]);
    assert_eq!(offered(&["run", "--", "nvidia-cuda-mps-contro"]), [PROGRAM]);
}

#[test]
fn fish_completes_commands_values_and_pids() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = script(folder.path(), "fish");
    let script = script.to_str().expect("plain");
    let offered = |line: &str| {
        let step = format!("source {script}; complete -C '{PROGRAM} {line}'");
        let lines = lines(folder.path(), "fish", &["--no-config", "-c", &step])?;
        let word = |line: &String| line.split('\t').next().unwrap_or_default().to_owned();
        Ok::<_, Skipped>(sorted(lines.iter().map(word).collect()))
    };
    let first = match offered("") {
        Ok(first) => first,
        Err(skipped) => return skipped.report(),
    };
    let first: Vec<String> = first.into_iter().filter(|word| !word.starts_with('-')).collect();
    assert_eq!(first, first_words());
    let offered = |line: &str| offered(line).expect("it is there");
    assert_eq!(offered("status --j"), ["--json"]);
    assert_eq!(offered("run --restart "), ["never", "on-fault"]);
    assert_eq!(offered("status -o "), ["json", "table", "wide"]);
    assert_eq!(offered("get_client_list "), ["11", "12"]);
    assert_eq!(offered("get_client_state "), ["21", "22"]);
    assert_eq!(offered("vault l"), ["list"]);
}

#[test]
fn zsh_takes_the_completion_and_offers_commands_and_pids() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = script(folder.path(), "zsh");
    // A terminal of zsh's own, in which what would be inserted is printed instead.
    let step = format!(
        r#"zmodload zsh/zpty || exit 9
zpty shell 'zsh -f -i'
zpty -w shell 'PS1=; PROMPT=; setopt no_beep; autoload -Uz compinit && compinit -u -D; source {script}; zstyle ":completion:*" list-prompt ""; compadd() {{ if [[ ${{@[1,(i)(-|--)]}} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi; local -a found; builtin compadd -A found "$@"; local each; for each in $found; print -r -- "offered $each"; builtin compadd "$@" }}; print begun'
zpty -r shell line '*begun*begun*'
zpty -w -n shell "$1"$'\t'
while zpty -r -m shell line "*$2*" ; do break; done
print -r -- "$line"
zpty -d shell
"#,
        script = script.display()
    );
    let offered = |line: &str, awaited: &str| {
        lines(folder.path(), "zsh", &["-f", "-c", &step, "zsh", &format!("{PROGRAM} {line}"), awaited])
    };
    let found = match offered("get_cl", "offered get_client_list") {
        Ok(found) => found.join("\n"),
        Err(skipped) => return skipped.report(),
    };
    assert!(found.contains("offered get_client_state") && !found.contains("offered get_server_list"), "{found}");
    let found = offered("get_client_state ", "offered 22").expect("it is there").join("\n");
    assert!(found.contains("offered 21") && !found.contains("offered 11"), "{found}");
    let found = offered("run --restart ", "offered never").expect("it is there").join("\n");
    assert!(found.contains("offered on-fault"), "{found}");
}
