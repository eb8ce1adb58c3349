//! What `get` can be asked for of a server, a client and a namespace.

/// Declares what `get` can be asked for, in the order of the manual.
macro_rules! fields {
    ($(#[$doc:meta])* $name:ident: $($variant:ident $word:literal $what:literal,)+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $(#[doc = $what] $variant,)+
        }

        impl $name {
            /// Every one.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// As it is typed.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            pub(super) fn parse(word: &[u8]) -> Option<Self> {
                Self::ALL.iter().copied().find(|field| field.word().as_bytes() == word)
            }
        }
    };
}

fields! {
    /// What is known of a server.
    ServerField:
    Name "name" "Its name.",
    Uid "uid" "The user that it runs as.",
    Pid "pid" "Its pid.",
    Status "status" "What it does.",
    PipeDirectory "pipe-directory" "Where its clients connect.",
    AllowedDevices "allowed-devices" "The GPUs that it may use.",
}

fields! {
    /// What is known of a client.
    ClientField:
    Pid "pid" "Its pid.",
    Server "server" "The name of its server.",
    Device "device" "The numbers of its GPUs.",
    PciId "pci-id" "The addresses of its GPUs on the bus.",
    LinuxNamespace "linux-ns" "The inode number of its PID namespace.",
    Namespace "maws-ns" "Its namespace of the server's.",
    Command "cmd" "Its command line.",
}

fields! {
    /// What is known of a namespace.
    NamespaceField:
    Name "name" "Its name.",
    Server "server" "The name of its server.",
    ServerStatus "server-status" "What its server does.",
    PinnedMemoryLimit "pinned-memory-limit" "Device memory that a client of it may have.",
    ActiveThreadPercentage "active-thread-percentage" "The share of threads that its clients have.",
    ClientPriority "client-priority" "The priority of its clients.",
    PipeDirectory "pipe-directory" "Where its clients connect.",
}
