//! How the answer to one of ReMPS's own commands is written: `-o table|wide|json`, `--utc`.

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
