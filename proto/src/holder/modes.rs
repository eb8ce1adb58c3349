//! What is noted of the GPUs' compute modes ([`Kind::COMPUTE_MODES`](super::Kind::COMPUTE_MODES)): the holder reads it
//! too, because it restores them when the daemon is dead and no other has come.

use prost::Message;

/// The note.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModesNote {
    /// The GPUs that the daemon has looked after, each once.
    #[prost(message, repeated, tag = "1")]
    pub gpus: Vec<ModeNote>,
    /// The management library's file as the daemon's child has loaded it; empty for the one that the loader finds.
    #[prost(string, tag = "2")]
    pub library: String,
    /// The folders that have records of the modes, absolute; each GPU's goes when its mode is restored.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub records: Vec<Vec<u8>>,
}

/// What is noted of one GPU. Modes are numbers of the management library.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ModeNote {
    /// `GPU-…`.
    #[prost(string, tag = "1")]
    pub uuid: String,
    /// The mode that it had before.
    #[prost(uint32, tag = "2")]
    pub original: u32,
    /// The mode that the daemon has given it, or is about to.
    #[prost(uint32, tag = "3")]
    pub set: u32,
    /// A [`ModeStage`].
    #[prost(enumeration = "ModeStage", tag = "4")]
    pub stage: i32,
}

/// How far the daemon has come with a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ::prost::Enumeration)]
#[repr(i32)]
pub enum ModeStage {
    /// Its mode is somebody else's matter: nothing is restored.
    Left = 0,
    /// The mode is being set.
    Planned = 1,
    /// It is set.
    Set = 2,
}

impl ModesNote {
    /// The GPUs whose mode is to be given back.
    pub fn owed(&self) -> impl Iterator<Item = &ModeNote> {
        self.gpus.iter().filter(|gpu| gpu.stage() != ModeStage::Left && gpu.original != gpu.set)
    }
}
