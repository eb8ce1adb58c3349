//! How the answer to one of ReMPS's own commands is written: `-o table|wide|json`, `--utc`.

use super::report::readable;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Form {
    /// Text that fits 80 columns: long texts are cut in their middle, and what does not fit a line goes on below it.
    #[default]
    Table,
    /// Text with all there is, however long its lines become.
    Wide,
    /// JSON, with times in UTC as RFC 3339 has them.
    Json,
}

impl Form {
    /// Every form by its name.
    pub const ALL: [(&str, Self); 3] = [("table", Self::Table), ("wide", Self::Wide), ("json", Self::Json)];

    /// The form of this name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, form)| *form)
    }
}

/// What the options of a command say about its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Output {
    /// Its form.
    pub form: Form,
    /// Times for people are in UTC and not the local ones.
    pub utc: bool,
}

/// The options of a command that say how its answer is written.
#[derive(Debug, Default)]
pub(super) struct Asked {
    form: Option<Form>,
    pub(super) wide: bool,
    pub(super) json: bool,
    utc: bool,
}

impl Asked {
    /// Takes a word, and its value from the `words` behind it, if it is one of these options; whether it is.
    ///
    /// # Errors
    /// As the parsers': what is not understood, or `None` where the value is missing.
    pub(super) fn take<'a>(
        &mut self,
        word: &[u8],
        words: &mut impl Iterator<Item = &'a [u8]>,
    ) -> Result<bool, Option<String>> {
        match word {
            b"--json" => self.json = true,
            b"--wide" => self.wide = true,
            b"--utc" => self.utc = true,
            [b'-', b'o', rest @ ..] => {
                let value = if rest.is_empty() { words.next().ok_or(None)? } else { rest };
                let form = Form::named(value).ok_or_else(|| Some(format!("-o {}", readable(value))))?;
                if self.form.replace(form).is_some() {
                    return Err(Some("a second -o".to_owned()));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// How the answer is to be written, if anything says so: `--json` and `--wide` are `-o json` and `-o wide`.
    ///
    /// # Errors
    /// When they ask for different forms.
    pub(super) fn output(&self) -> Result<Option<Output>, Option<String>> {
        let Self { utc, .. } = *self;
        let by_word = if self.json { Some(Form::Json) } else { self.wide.then_some(Form::Wide) };
        let form = match (self.form, by_word) {
            (Some(form), Some(word)) if form != word => return Err(None),
            (form, word) => form.or(word),
        };
        Ok(if form.is_none() && !utc { None } else { Some(Output { form: form.unwrap_or_default(), utc }) })
    }
}
