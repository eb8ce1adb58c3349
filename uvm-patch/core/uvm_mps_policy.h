/* SPDX-License-Identifier: MIT */
/*
 * What to do about a fatal GPU fault: facts in, decision out.
 *
 * This code has no kernel header, no lock, no allocation and no state of its
 * own, so that the whole of it is tested in user space. The caller fills in
 * facts under the driver's locks and performs the decision.
 */
#ifndef UVM_MPS_POLICY_H
#define UVM_MPS_POLICY_H

#include "uvm_mps.h"

/* The fault type as the hardware reports it, reduced to what matters here. */
enum uvm_mps_kind {
	UVM_MPS_KIND_TRANSLATION,	/* no PDE or PTE */
	UVM_MPS_KIND_PERMISSION,	/* store or atomic to a read-only page */
	UVM_MPS_KIND_VA_LIMIT,
	UVM_MPS_KIND_UNBOUND,		/* unbound instance block */
	UVM_MPS_KIND_POISON,
	UVM_MPS_KIND_OTHER,		/* kind, compression, privilege, aperture... */
};

/* Why the driver calls the fault fatal. */
enum uvm_mps_reason {
	UVM_MPS_REASON_ADDRESS,
	UVM_MPS_REASON_PERMISSIONS,
	UVM_MPS_REASON_FAULT_TYPE,
	UVM_MPS_REASON_GLOBAL,		/* out of memory, ECC, internal error: nobody's fault */
};

/* What the client's address space has at the address. */
enum uvm_mps_range {
	UVM_MPS_RANGE_NONE,
	UVM_MPS_RANGE_MANAGED,
	UVM_MPS_RANGE_ZOMBIE,		/* managed memory whose CPU mapping is gone */
	UVM_MPS_RANGE_EXTERNAL_HOLE,	/* inside an external range, nothing mapped there */
	UVM_MPS_RANGE_EXTERNAL_64K,	/* mapped with pages of 64 KiB or more */
	UVM_MPS_RANGE_EXTERNAL_4K,	/* mapped with pages of 4 KiB */
	UVM_MPS_RANGE_HMM,
	UVM_MPS_RANGE_DRIVER,		/* channel, SKED, semaphore pool, peer-to-peer */
	UVM_MPS_RANGE_COUNT,
};

struct uvm_mps_facts {
	__u8 mode;		/* enum uvm_mps_mode */
	__u8 kind;		/* enum uvm_mps_kind */
	__u8 reason;		/* enum uvm_mps_reason */
	__u8 range;		/* enum uvm_mps_range */
	__u8 replayable;
	__u8 prefetch;
	__u8 fetch;		/* by the cache of instructions and constants (GCC) */
	__u8 known;		/* the module has an entry for the client */
	__u8 shared;		/* another client has a subcontext in the TSG */
	__u8 alone;		/* policy: isolate unshared clients too */
	__u8 condemned;
	__u8 untried;		/* enum uvm_mps_untried, less what the administrator allows */
	__u8 ats;		/* the CPU's page tables translate for the GPU */
	__u8 addressable;	/* the driver's page tree can reach the address */
	__u8 covered;		/* a sink or a rewritten mapping of this client already translates the address */
	__u8 whole;		/* all that was free of the address space is a sink already */
	__u8 free_windows;	/* bit n: a window of level n finds room around the address */
	__u32 hits;		/* faults so far on what covers it */
	__u32 sinks;		/* of this client so far */
	__u32 max_sinks;
	__u32 retries;		/* remaps and permits so far, this client */
};

enum uvm_mps_action {
	UVM_MPS_ACT_PASS,	/* leave it to the driver: cancel */
	UVM_MPS_ACT_RETRY,	/* the address translates by now: only replay */
	UVM_MPS_ACT_INSERT,	/* map a sink of decision.size bytes */
	UVM_MPS_ACT_WHOLE,	/* all that is free in one step; decision.size if the address is not in it */
	UVM_MPS_ACT_REMAP,	/* rewrite the external mapping */
	UVM_MPS_ACT_PERMIT,	/* let the driver serve the access on the replay */
};

struct uvm_mps_decision {
	__u8 verdict;		/* enum uvm_mps_verdict, if the action succeeds */
	__u8 action;		/* enum uvm_mps_action */
	__u8 sink;		/* enum uvm_mps_sink */
	__u8 fault_class;	/* 'A'... */
	__u32 size;		/* INSERT, WHOLE: bytes, a power of two; the window is aligned to it */
};

#define UVM_MPS_LEVELS		4u
#define UVM_MPS_PAGE		0x1000u
#define UVM_MPS_WINDOW_0	0x10000u	/* 64 KiB */
#define UVM_MPS_WINDOW_1	0x200000u	/* 2 MiB */
#define UVM_MPS_WINDOW_2	0x2000000u	/* 32 MiB */
#define UVM_MPS_WINDOW_3	0x40000000u	/* 1 GiB: what is free of it, in entries of 2 MiB */

/*
 * A sweep over unmapped memory gets larger windows the longer it lasts. An
 * index that is a wild int32 spans 16 GiB: 16 windows of the last level. One
 * that is a wild int64 spans everything, and so does its sink in the end.
 */
#define UVM_MPS_LEVEL_1_AFTER	8u		/* sinks */
#define UVM_MPS_LEVEL_2_AFTER	32u
#define UVM_MPS_LEVEL_3_AFTER	64u
#define UVM_MPS_WHOLE_AFTER	128u

/*
 * Far beyond what is on its way when a sink comes: a fault buffer holds some
 * thousand packets. More on one sink says that it does not help.
 */
#define UVM_MPS_MAX_HITS	1048576u
#define UVM_MPS_MAX_RETRIES	1048576u	/* remaps and permits of one client */
#define UVM_MPS_DEFAULT_SINKS	1024u

__u32 uvm_mps_window(unsigned int level);
void uvm_mps_decide(const struct uvm_mps_facts *f, struct uvm_mps_decision *d);

/*
 * The hardware counts a GPU's subcontexts over all its MIG instances, drivers
 * and records within one: UVM_MPS_UNKNOWN for one before the instance's first.
 */
__u32 uvm_mps_ve_id(__u32 hardware, __u32 first_of_instance);

/* Limits how many fault records one client may put into the ring. */
struct uvm_mps_meter {
	__u64 filled_ns;
	__u32 tokens;
	__u32 suppressed;	/* since the last record that was let through */
};

#define UVM_MPS_METER_BURST	128u		/* records */
#define UVM_MPS_METER_STEP_NS	10000000ull	/* one more record every 10 ms */

void uvm_mps_meter_init(struct uvm_mps_meter *m, __u64 now_ns);
unsigned int uvm_mps_meter_take(struct uvm_mps_meter *m, __u64 now_ns);
__u32 uvm_mps_meter_drain(struct uvm_mps_meter *m);

/*
 * Records that a reader at `next` has lost in a ring of `slots` whose next
 * record will have the number `head`.
 */
__u64 uvm_mps_ring_lost(__u64 head, __u64 next, __u64 slots);

#endif
