/* SPDX-License-Identifier: MIT */
/*
 * Emulated GPUs of the generation that the module's parameter names, under a
 * stand-in for nvidia.ko: as much of the resource manager's interface, of the
 * host and copy-engine methods, of the MMU and of the fault buffers as the real
 * nvidia-uvm.ko needs to start and to take a fault from its packet to the replay.
 *
 * Units of the emulation:
 *   emu_rm.c     the module; emu_rm_*.c: what nvidia.ko does: the device, address spaces, memory, channels, buffers
 *   emu_host.c   what the GPU's host does: runs pushbuffers (methods of clc46f.h, clc5b5.h and their successors)
 *   emu_walk.c   what the MMU does for an access: page tables, TLB
 *   emu_mmu.c    what it does without: reports faults, replays, cancels
 *   kind.h       what differs between the generations
 *   emu_test.c   what a CUDA program does: accesses, through /dev/emu-gpu0 and /dev/emu-gpu1
 */
#ifndef EMU_H
#define EMU_H

#include <linux/completion.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include "nv_uvm_interface.h"
#include "emu_abi.h"
#include "kind.h"

#define EMU_VIDMEM	(96ull << 20)
#define EMU_USER_MEM	(16ull << 20)	/* at the top, for external allocations; the rest is UVM's */
#define EMU_CHUNK	(2ull << 20)
#define EMU_FAULTS	8192u		/* entries of each fault buffer, as many as real ones have */
#define EMU_PACKET	32u		/* bytes of a fault packet */
#define EMU_SUBCONTEXTS	64u

struct emu_gpu;

/* Memory that the resource manager maps into its own address space; another GPU's may be mapped, too. */
struct emu_mem {
	struct list_head node;
	u64 gpu_va;
	size_t size;
	void *cpu;
	bool borrowed;
};

/* A GPU address space: UVM's own, or a client's. */
struct emu_space {
	struct list_head node;
	struct emu_gpu *gpu;
	u64 pdb;		/* physical */
	bool pdb_vid;
	bool pdb_set;
};

/* A channel of UVM's own. */
struct emu_channel {
	struct list_head node;
	struct emu_gpu *gpu;
	u32 id;
	u32 entries;
	u64 *gpfifo;
	u32 get, put;
	u32 doorbell;
	NvNotification notifier;
	const u32 *pb, *pb_end;	/* the pushbuffer segment being run */
	/* Method state. */
	u64 sem_addr, ce_sem_addr, in, out;
	u32 sem_payload, ce_sem_payload;
	u32 src_mode, dst_mode, length, remap_a, remap_b, remap;
	u32 mem_op[4], cancel[3];
};

/* A channel of a client: what RetainChannel describes. */
struct emu_user_channel {
	struct list_head node;
	struct emu_gpu *gpu;
	struct emu_space *space;
	u32 handle;		/* hChannel: see EMU_CHANNEL */
	u32 chid;
	u64 instance;
	u32 chram;		/* its register: EMU_CHRAM_..., and what UVM writes */
	u32 faulted;		/* what it says when nobody writes */
	bool bound;
};

/* One access of a client's program, or a program that repeats it for a while. */
struct emu_access {
	struct list_head node;
	struct emu_gpu *gpu;
	struct emu_space *space;
	u32 handle;
	u64 va;
	u32 type;		/* enum emu_access_type */
	bool host;		/* by the channel's host engine */
	u32 force_type;		/* a hardware fault type instead of a walk, or EMU_WALK */
	u64 until_ns;		/* repeat until then */
	enum { EMU_READY, EMU_FAULTED, EMU_DONE, EMU_DEAD } state;
	bool posted;		/* its packet is in the buffer */
	u32 faults;
	u64 value;		/* what a load found */
	u64 first_fault_ns, done_ns;
	u32 result;		/* enum emu_result */
	struct completion *done;
};

/* A channel's register says what of it has faulted; UVM writes the same with the lowest bit to let it go on. */
#define EMU_CHRAM_HOST		(1u << 4)
#define EMU_CHRAM_ENGINE	(1u << 5)
#define EMU_CHRAM_GO_ON		(1u << 0)

struct emu_gpu {
	NvProcessorUuid uuid;
	struct pci_dev *pci;
	struct list_head mems, spaces, channels, user_channels, accesses;
	u8 *vidmem;
	u64 next_va;
	u32 next_chid;
	u64 chunk_used;		/* bit n: chunk n is allocated */
	bool no_chunks;		/* there are none to be had */
	bool paused;		/* repeating programs wait, and so do interrupts */
	enum { EMU_RUNS, EMU_STOPS_AT_SINK, EMU_STOPPED } stall;
	UvmPmaStatistics pma;

	bool overflow;		/* a fault found no room: none is delivered until UVM has cleared it */
	u32 fb_get, fb_put, fb_info, intr, intr_set, intr_clear, prefetch;
	u8 *fb;
	u8 shadow[EMU_FAULTS][EMU_PACKET];
	u32 shadow_count;
	bool own_intr;
	u32 runlist[64];	/* registers that are written only */

	bool tsg_dead[EMU_TSGS];
	struct emu_status status;
};

struct emu {
	const struct emu_kind *kind;
	struct mutex lock;	/* everything but the fault buffers' registers */
	uvmEventIsrTopHalf_t isr;
	bool have_isr;
	struct task_struct *thread;
	struct emu_gpu gpus[EMU_GPUS];
};

extern struct emu emu;

/* emu_rm_device.c: NULL if there is none of this number. */
struct emu_gpu *emu_gpu_of(const NvProcessorUuid *uuid);

/* emu_rm_memory.c */
void *emu_rm_ptr(struct emu_gpu *gpu, u64 gpu_va, size_t size);

/* emu_rm_channel.c */
struct emu_user_channel *emu_user_channel(struct emu_gpu *gpu, u32 handle);

/* emu_host.c */
bool emu_run_channels(struct emu_gpu *gpu);

/* emu_walk.c */
/* Where an address leads. */
struct emu_page {
	u64 pte, size, frame;
	u32 aperture;		/* 0: the GPU's own memory */
};

/* What a walk says of a fault: its type plus one, as type 0 is a fault, too. */
#define EMU_FAULT(field)	(emu.kind->field + 1)

void *emu_phys_ptr(struct emu_gpu *gpu, bool vid, u64 addr);
void *emu_page_ptr(struct emu_gpu *gpu, const struct emu_page *page, u64 va);
u64 emu_make_pte(u64 phys, bool read_only);
u32 emu_walk(struct emu_space *space, u64 va, u32 type, struct emu_page *page);
u32 emu_translate(struct emu_space *space, u64 va, u32 type, struct emu_page *page);
void emu_tlb_invalidate(struct emu_gpu *gpu, u64 pdb, bool vid, u32 level, u64 va, u32 log2_size);
void emu_tlb_forget(const struct emu_space *space);

/* emu_mmu.c */
void emu_try(struct emu_access *access);
void emu_replay(struct emu_gpu *gpu);
void emu_cancel_va(struct emu_gpu *gpu, u64 pdb, u64 va);
void emu_cancel_instance(struct emu_gpu *gpu, u64 instance);
void emu_clear_faulted(struct emu_gpu *gpu, u32 chid, bool host);
void emu_report_fault(struct emu_gpu *gpu, const void *packet);
bool emu_interrupt(struct emu_gpu *gpu);
void emu_finish(struct emu_access *access, u32 result);

/* emu_test.c */
int emu_test_init(void);
void emu_test_exit(void);

#endif
