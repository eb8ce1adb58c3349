//! Wire types: NVIDIA's MPS control packets, the text commands, and ReMPS's own messages.
