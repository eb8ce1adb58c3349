//! NVIDIA's MPS control wire: packets between the daemon, its servers, its clients and the command line.
