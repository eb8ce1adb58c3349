//! The driver's interface, and nothing of ours: its types, its functions, and how a copy of it is found and called.
//!
//! | part | is about |
//! |---|---|
//! | [`functions`] | every function, described in one row |
//! | [`types`], [`result`], [`errors`] | what they take and answer, and which answers mean that a context is dead |
//! | [`library`], [`copies`] | where the driver's own functions are found, and other copies of its library |
//! | [`dead`] | dead copies, cut off and given back |
//! | [`call`] | how one is called, and why a call goes by us |
//! | [`gate`], [`threads`], [`descent`] | who is inside the driver, what each thread has there, and who has begun it |
//! | [`names`], [`moved`] | what handles and addresses of a former copy are called in the one that lives |
//! | [`arguments`], [`layout`], [`buffer`] | arguments of calls and of kernels, and how they are translated |
//! | [`piece`] | memory that one descriptor holds |
//! | [`gpu_name`] | what a GPU is called outside this process |
//! | [`belongings`], [`socket_name`] | files and sockets that the driver has opened |
//! | [`texts`] | what it gives out by address and the program may keep |
//! | [`resources`] | what a copy has of the process besides: memory, threads, keys |

#[macro_use]
pub(crate) mod call;
pub(crate) mod arguments;
pub(crate) mod belongings;
pub(crate) mod buffer;
pub(crate) mod children;
pub(crate) mod copies;
pub(crate) mod dead;
pub(crate) mod descent;
pub(crate) mod errors;
#[macro_use]
pub(crate) mod functions;
pub(crate) mod gate;
pub(crate) mod gpu_name;
pub(crate) mod layout;
pub(crate) mod library;
pub(crate) mod moved;
pub(crate) mod names;
pub(crate) mod piece;
pub(crate) mod resources;
pub(crate) mod result;
pub(crate) mod second;
pub(crate) mod socket_name;
pub(crate) mod texts;
pub(crate) mod threads;
pub(crate) mod types;
