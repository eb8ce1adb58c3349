/* SPDX-License-Identifier: MIT */
/* /dev/emu-gpu0 and /dev/emu-gpu1: how the test program makes the emulated GPUs do things. */
#ifndef EMU_ABI_H
#define EMU_ABI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define EMU_TSGS	16u
#define EMU_GPUS	2u
#define EMU_UUID(n)	"emulated-gpu-" #n "\0\1"

/* hChannel of a client's channel: time-slice group, engine, subcontext. */
#define EMU_CHANNEL(tsg, ce, ve)	(((tsg) << 16) | ((ce) << 8) | (ve))
#define EMU_CHANNEL_TSG(handle)		(((handle) >> 16) % EMU_TSGS)
#define EMU_CHANNEL_CE(handle)		(((handle) >> 8) & 1)
#define EMU_CHANNEL_VE(handle)		((handle) & 0x3f)

/* The subcontext as the hardware numbers it: half of the TSGs are in a MIG instance that is not the GPU's first. */
#define EMU_FIRST_VE(handle)		(EMU_CHANNEL_TSG(handle) & 1 ? 16u : 0u)

/* hMemory of an external allocation: size in 64 KiB, small pages or not. */
#define EMU_MEMORY(units, small)	(0x40000000u | ((small) << 16) | (units))

/* A fetch is of instructions: where it finds zeros, the program ends with an exception that ends its whole TSG. */
enum emu_access_type { EMU_READ, EMU_WRITE, EMU_ATOMIC, EMU_PREFETCH, EMU_FETCH };

enum emu_result {
	EMU_OK,			/* reached memory */
	EMU_SPARSE,		/* reached a sparse entry */
	EMU_RC,			/* cancelled, or the TSG was dead */
	EMU_TIMEOUT,
};

#define EMU_WALK	0xffffffffu

struct emu_access_request {
	__u32 handle;
	__u32 type;
	__u64 va;
	__u64 stride;
	__u32 count;		/* accesses at once: va, va + stride, ... */
	__u32 force_type;	/* NV_PFAULT_FAULT_TYPE of a packet to send as it is, or EMU_WALK */
	__u32 repeat_ms;	/* not 0: return at once, repeat one access for so long */
	__u32 host;		/* 1: by the channel's host engine (PBDMA), as of a semaphore or a pushbuffer */
	/* out */
	__u32 results[4];	/* how many ended as which enum emu_result */
	__u32 faults;		/* packets sent for them */
	__u64 total_ns;		/* first packet to the end, summed */
	__u64 value;		/* what the last load found; video memory that nobody has cleared has EMU_DIRT in each byte */
};

#define EMU_DIRT	0xa5

struct emu_walk_request {
	__u32 handle;
	__u32 result;		/* 0 or a fault type; sparse: EMU_WALK_SPARSE */
	__u64 va;
	__u64 pte;
};
#define EMU_WALK_SPARSE	0x100u

struct emu_status {
	__u64 replays;
	__u64 cancels;		/* cancel methods, by address or by instance */
	__u64 invalidates;	/* TLB */
	__u64 packets;
	__u64 overflows;	/* of the buffer of replayable faults */
	__u64 clear_faulted;
	__u64 reports;		/* non-replayable faults handed to RM: channel kills */
	__u64 stops, unsets;	/* StopChannel, UnsetPageDirectory */
	__u32 chunks;		/* 2 MiB chunks in use */
	__u32 spaces, user_channels, mems;
	__u32 tsg_dead;		/* bit n */
	__u32 running;		/* accesses not yet ended */
	__u32 stopped;		/* see EMU_IOC_STALL */
	__u32 torn_down_by_system;	/* address spaces that a work of the system's destroyed, not UVM's */
};

#define EMU_IOC_ACCESS	_IOWR('E', 1, struct emu_access_request)
#define EMU_IOC_WALK	_IOWR('E', 2, struct emu_walk_request)
#define EMU_IOC_STATUS	_IOR('E', 3, struct emu_status)
#define EMU_IOC_STALL	_IO('E', 5)	/* 1: stop the copy engine that next writes a sparse entry, before it does; 0: go on */
#define EMU_IOC_CHUNKS	_IO('E', 6)	/* 0: no memory for UVM any more; 1: again */
#define EMU_IOC_PAUSE	_IO('E', 7)	/* 1: programs that repeat an access wait, and so do interrupts; 0: all go on */
#define EMU_IOC_REVIVE	_IO('E', 4)	/* a new TSG in place of every dead one */

#endif
