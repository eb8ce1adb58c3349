//! The daemon as a whole beside the claims of compatibility: where it is better than NVIDIA's, users and servers, what it
//! shows of itself, and its own commands.

mod at_rest;
mod cleaning;
mod completions;
mod compute_mode;
mod descriptors;
mod doctor;
mod elsewhere;
mod ending;
mod hidden;
mod hindrances;
mod joined;
mod lifecycle_pid_1;
mod lifecycle_servers;
mod lifecycle_users;
mod log;
mod mode_records;
mod observe_daemon;
mod peers;
mod rights;
mod run_wrapper;
mod shares;
mod stop_client;
mod strange_descriptors;
mod strangers;
mod top;
