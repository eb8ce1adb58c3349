/* SPDX-License-Identifier: MIT */
/*
 * User-space ABI of /dev/nvidia-uvm-mps.
 *
 * read(2) returns whole records of exactly 128 bytes, naturally aligned, in
 * the byte order of the machine (little endian on every machine the driver
 * supports), without padding. A newer module may add record types, flags and
 * ioctls; it changes no offset without changing UVM_MPS_ABI_VERSION. The Rust
 * mirror is proto/src/notice.rs, and a test there compares the two.
 */
#ifndef UVM_MPS_H
#define UVM_MPS_H

#include <linux/types.h>
#include <linux/ioctl.h>

#define UVM_MPS_MAGIC		0x4953504du	/* "MPSI" */
#define UVM_MPS_ABI_VERSION	1u
#define UVM_MPS_RECORD_SIZE	128u
#define UVM_MPS_UNKNOWN		0xffffffffu	/* channel, TSG, runlist or VEID not known */
#define UVM_MPS_NEVER		0xffffffffu	/* kill_ms: the kernel never kills */

enum uvm_mps_record_type {
	UVM_MPS_OVERRUN = 1,		/* count: records this reader lost */
	UVM_MPS_CHANNEL_ADD = 2,
	UVM_MPS_CHANNEL_DEL = 3,
	UVM_MPS_VASPACE_ADD = 4,
	UVM_MPS_VASPACE_DEL = 5,	/* the client's last trace is gone */
	UVM_MPS_FATAL_FAULT = 6,	/* verdict: what was done about it */
	UVM_MPS_ZOMBIE_FAULT = 7,	/* a dead subcontext: the driver cancels the whole TSG */
	UVM_MPS_SNAPSHOT_END = 8,
	UVM_MPS_SUPPRESSED = 9,		/* count: records of this client's faults and refusals left out */
	UVM_MPS_KILLED = 10,		/* the kernel sent SIGKILL */
	UVM_MPS_HELD = 11,		/* a client died with channels: its page tables are kept; count: see there */
	UVM_MPS_HOLD_END = 12,
	UVM_MPS_REFUSED = 13,		/* a condemned client asked for a mapping; address: the ioctl */
};

enum uvm_mps_mode {
	UVM_MPS_OFF = 0,		/* no records, stock behaviour */
	UVM_MPS_OBSERVE = 1,		/* records, stock behaviour */
	UVM_MPS_ISOLATE = 2,		/* records, and fatal faults end in sinks */
};

enum uvm_mps_verdict {
	UVM_MPS_PASSED = 0,		/* mode is not isolate: the driver cancelled */
	UVM_MPS_ISOLATED = 1,		/* first fault of this client, made harmless */
	UVM_MPS_REPEAT = 2,		/* a later fault of a condemned client, made harmless */
	UVM_MPS_NOT_SHARED = 3,		/* nobody shares the TSG: left to the driver */
	UVM_MPS_CLASS = 4,		/* a class that cannot be isolated */
	UVM_MPS_FAILED = 5,		/* tried; nv_status says why not */
	UVM_MPS_LIMIT = 6,		/* this client has used up its sinks or retries */
	UVM_MPS_STRANGER = 7,		/* a client the module has no entry for */
	UVM_MPS_UNTRIED = 8,		/* never tried on such a machine; nv_status: bits of enum uvm_mps_untried */
};

/*
 * What the emulator has not, or not whole: it has two GPUs without peer access. The module parameter
 * uvm_mps_untested has the bits of what is allowed all the same.
 */
enum uvm_mps_untried {
	UVM_MPS_UNTRIED_DRIVER = 1,	/* a driver version that is on no list: no mode 2, for anybody */
	UVM_MPS_UNTRIED_FORMAT = 2,	/* page tables neither as Pascal's to Ada's nor as Hopper's and Blackwell's */
	UVM_MPS_UNTRIED_GPUS = 4,	/* a client on several GPUs */
	UVM_MPS_UNTRIED_MIG = 8,
	UVM_MPS_UNTRIED_HMM = 16,	/* heterogeneous memory management */
};

enum uvm_mps_sink {
	UVM_MPS_SINK_NONE = 0,
	UVM_MPS_SINK_SPARSE = 1,	/* 64 KiB sparse entries: loads give 0, stores vanish */
	UVM_MPS_SINK_PAGE = 2,		/* one private 4 KiB page */
	UVM_MPS_SINK_REMAP_SPARSE = 3,	/* an existing mapping, rewritten to sparse entries */
	UVM_MPS_SINK_REMAP_PAGE = 4,	/* an existing mapping, rewritten to the private page */
	UVM_MPS_SINK_PERMIT = 5,	/* dead managed memory: the access is served as if allowed */
};

/* uvm_mps_record.flags */
#define UVM_MPS_F_REPLAYABLE	(1u << 0)	/* an SM's fault; else a copy engine's or the host's */
#define UVM_MPS_F_SUBCONTEXT	(1u << 1)	/* ve_id is meaningful */
#define UVM_MPS_F_KILL_SENT	(1u << 2)
#define UVM_MPS_F_SNAPSHOT	(1u << 3)	/* state at open or at SNAPSHOT, not an event */
#define UVM_MPS_F_CONDEMNED	(1u << 4)
#define UVM_MPS_F_HELD		(1u << 5)

struct uvm_mps_record {
	__u32 magic;
	__u16 version;
	__u16 size;
	__u64 seq;		/* gaps in a reader's sequence are counted by OVERRUN */
	__u64 time_ns;		/* CLOCK_BOOTTIME */
	__u64 gpu_time_ns;	/* the fault's own time stamp, 0 if none */
	__u32 type;
	__u32 count;		/* OVERRUN, SUPPRESSED: records; FATAL_FAULT: merged faults; HELD: MiB of host memory kept */
	__u32 tgid;		/* in the reader's PID namespace, 0 if not visible there */
	__u32 tgid_init;	/* in the initial PID namespace */
	__u64 va_space_id;	/* never reused while the module is loaded, 0 if unknown */
	__u8  gpu_uuid[16];
	__u64 address;
	__u64 instance_ptr;	/* bit 0: system memory */
	__u32 runlist_id;
	__u32 channel_id;	/* exact for CHANNEL_* and non-replayable faults */
	__u32 tsg_id;
	__u32 ve_id;		/* relative to the MIG instance */
	__u16 client_id;
	__u16 gpc_id;
	__u16 utlb_id;
	__u16 mmu_engine_id;
	__u8  fault_type;	/* the driver's uvm_fault_type_t */
	__u8  access_type;	/* the driver's uvm_fault_access_type_t */
	__u8  fault_class;	/* a letter of the table in uvm-fault-isolation(4) */
	__u8  fatal_reason;	/* UvmEventFatalReason */
	__u8  engine_type;
	__u8  range_type;	/* enum uvm_mps_range of the policy */
	__u8  verdict;
	__u8  sink;
	__u32 nv_status;
	__u32 flags;
};

struct uvm_mps_info {
	__u32 version;		/* UVM_MPS_ABI_VERSION */
	__u32 record_size;
	__u32 ring_records;
	__u32 tested;		/* 1: isolate is allowed on this driver version */
	char  driver[32];	/* the driver's version, NUL terminated */
};

struct uvm_mps_policy {
	__u32 version;		/* UVM_MPS_ABI_VERSION */
	__u32 mode;
	__u32 kill_ms;		/* SIGKILL this long after the first fault; UVM_MPS_NEVER */
	__u32 hold_ms;		/* keep a suddenly dead client's page tables this long */
	__u32 max_sinks;	/* per client */
	__u32 flags;
};

/* uvm_mps_policy.flags: isolate a client even where nobody shares its TSG. */
#define UVM_MPS_ALONE		(1u << 0)

/*
 * CLAIM: the caller ends this client; the kernel's deadline starts anew.
 * RELEASE: stop holding this client's page tables (kill_ms is ignored).
 */
struct uvm_mps_claim {
	__u64 va_space_id;
	__u32 kill_ms;
	__u32 reserved;		/* 0 */
};

struct uvm_mps_stats {
	__u64 records;
	__u64 lost;
	__u64 suppressed;
	__u64 faults;
	__u64 isolated;
	__u64 passed;
	__u64 sinks;
	__u64 killed;
	__u64 zombies;
	__u64 held;
	__u64 refused;
	__u64 clients;		/* VA spaces alive now */
};

#define UVM_MPS_IOC_INFO	_IOR('U', 0xe0, struct uvm_mps_info)
#define UVM_MPS_IOC_SET_POLICY	_IOW('U', 0xe1, struct uvm_mps_policy)
#define UVM_MPS_IOC_GET_POLICY	_IOR('U', 0xe2, struct uvm_mps_policy)
#define UVM_MPS_IOC_GET_STATS	_IOR('U', 0xe3, struct uvm_mps_stats)
#define UVM_MPS_IOC_SNAPSHOT	_IO('U', 0xe4)
#define UVM_MPS_IOC_CLAIM	_IOW('U', 0xe5, struct uvm_mps_claim)
#define UVM_MPS_IOC_RELEASE	_IOW('U', 0xe6, struct uvm_mps_claim)

#endif
