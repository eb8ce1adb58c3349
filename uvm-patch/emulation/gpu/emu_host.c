// SPDX-License-Identifier: MIT
/* The host: fetches GPFIFO entries and runs the methods of clc46f.h, clc5b5.h and their successors. */
#include "clc46f.h"
#include "clc076.h"
#include "emu.h"

#define SUBCHANNEL_HOST	0
#define SUBCHANNEL_CE	4
#define SUBCHANNEL_SW	5
#define LAUNCH_SCRUB	(1u << 23)	/* from Hopper on: whole pages of video memory, by another unit */

/* Where a copy engine's address points; NULL stops the transfer. */
static void *ce_ptr(struct emu_gpu *gpu, bool physical, u32 mode, u64 addr, size_t size)
{
	struct emu_space *space;
	struct emu_page page;
	void *p;

	if (physical)
		return emu_phys_ptr(gpu, (mode & 3) == 0, addr);
	p = emu_rm_ptr(gpu, addr, size);
	if (p)
		return p;
	/* UVM's own address space is the first that was made on each. */
	space = list_last_entry(&gpu->spaces, struct emu_space, node);
	if (emu_translate(space, addr, EMU_READ, &page) != EMU_OK)
		return NULL;
	return emu_phys_ptr(gpu, page.aperture == 0, page.frame | (addr & 0xfff));
}

static void ce_fill(struct emu_channel *c, u8 *dst)
{
	u32 bytes = ((c->remap >> 16) & 3) + 1, components = ((c->remap >> 24) & 3) + 1, i, n;

	for (i = 0; i < c->length; i++) {
		for (n = 0; n < components; n++, dst += bytes) {
			u32 source = (c->remap >> (4 * n)) & 7;
			u32 value = source == 4 ? c->remap_a : c->remap_b;

			if (source == 4 || source == 5)
				memcpy(dst, &value, bytes);
		}
	}
}

/* Whether this transfer is to wait: see EMU_IOC_STALL. */
static bool stalls(struct emu_channel *c, const u8 *src)
{
	bool sparse = src ? c->length >= sizeof(u64) && *(u64 *)src == 1 << 3 : c->remap_a == 1 << 3;

	if (!sparse || c->gpu->stall == EMU_RUNS)
		return false;
	c->gpu->stall = EMU_STOPPED;
	c->gpu->status.stopped = 1;
	return true;
}

/* False: it has not been done. */
static bool ce_launch(struct emu_channel *c, u32 launch)
{
	bool scrub = emu.kind->va_bits == 57 && launch & LAUNCH_SCRUB, fill = scrub || launch & (1 << 10);
	u32 element = fill && !scrub ? (((c->remap >> 16) & 3) + 1) * (((c->remap >> 24) & 3) + 1) : 1;
	size_t size = (size_t)c->length * element;

	if (launch & 3) {
		u8 *dst = ce_ptr(c->gpu, launch & (1 << 13), c->dst_mode, c->out, size);
		u8 *src = fill ? NULL : ce_ptr(c->gpu, launch & (1 << 12), c->src_mode, c->in, size);

		if (stalls(c, src))
			return false;
		if (!dst || (!src && !fill))
			pr_err("emu: channel %u: copy engine address %llx or %llx unknown\n", c->id, c->out, c->in);
		else if (src)
			memcpy(dst, src, size);
		else if (scrub)
			memset64((u64 *)dst, (u64)c->remap_b << 32 | c->remap_a, size / 8);
		else
			ce_fill(c, dst);
	}
	if ((launch >> 3) & 3) {
		u32 *sem = emu_rm_ptr(c->gpu, c->ce_sem_addr, 16);

		if (!sem) {
			pr_err("emu: channel %u: semaphore %llx unknown\n", c->id, c->ce_sem_addr);
		} else if (launch & (1 << 19)) {
			smp_wmb();
			WRITE_ONCE(*sem, *sem + 1 > c->ce_sem_payload ? 0 : *sem + 1);
		} else {
			if (((launch >> 3) & 3) == 2)
				*(u64 *)(sem + 2) = ktime_get_ns();
			smp_wmb();
			WRITE_ONCE(*sem, c->ce_sem_payload);
		}
	}
	return true;
}

static void mem_op(struct emu_channel *c)
{
	u32 op = c->mem_op[3] >> 27, replay = (c->mem_op[2] >> 2) & 7;
	u64 va = (u64)c->mem_op[1] << 32 | (c->mem_op[0] & ~0xfffu);
	u64 pdb = (u64)(c->mem_op[3] & 0x7ffffff) << 32 | (c->mem_op[2] & ~0xfffu);

	if (op != NVC46F_MEM_OP_D_OPERATION_MMU_TLB_INVALIDATE &&
	    op != NVC46F_MEM_OP_D_OPERATION_MMU_TLB_INVALIDATE_TARGETED)
		return;
	switch (replay) {
	case NVC46F_MEM_OP_C_TLB_INVALIDATE_REPLAY_NONE:
		c->gpu->status.invalidates++;
		emu_tlb_invalidate(c->gpu, pdb, !((c->mem_op[2] >> 10) & 3), (c->mem_op[2] >> 7) & 7, va,
				   op == NVC46F_MEM_OP_D_OPERATION_MMU_TLB_INVALIDATE ? 64 :
				   (c->mem_op[0] & 0x3f) + 12);
		break;
	case NVC46F_MEM_OP_C_TLB_INVALIDATE_REPLAY_START:
	case NVC46F_MEM_OP_C_TLB_INVALIDATE_REPLAY_START_ACK_ALL:
		emu_replay(c->gpu);
		break;
	case NVC46F_MEM_OP_C_TLB_INVALIDATE_REPLAY_CANCEL_VA_GLOBAL:
		emu_cancel_va(c->gpu, pdb, va);
		break;
	default:
		pr_err("emu: cancel of kind %u\n", replay);
		break;
	}
}

/* False: the semaphore does not have the value yet. */
static bool semaphore(struct emu_channel *c, u32 execute)
{
	u32 *sem = emu_rm_ptr(c->gpu, c->sem_addr, 16);

	if (!sem) {
		pr_err("emu: channel %u: host semaphore %llx unknown\n", c->id, c->sem_addr);
		return true;
	}
	switch (execute & 7) {
	case NVC46F_SEM_EXECUTE_OPERATION_RELEASE:
		if (execute & (1 << 25))
			*(u64 *)(sem + 2) = ktime_get_ns();
		smp_wmb();
		WRITE_ONCE(*sem, c->sem_payload);
		return true;
	case NVC46F_SEM_EXECUTE_OPERATION_ACQ_CIRC_GEQ:
		return (s32)(READ_ONCE(*sem) - c->sem_payload) >= 0;
	default:
		return READ_ONCE(*sem) == c->sem_payload;
	}
}

static bool host_method(struct emu_channel *c, u32 method, u32 data)
{
	switch (method) {
	case NVC46F_MEM_OP_A:
	case NVC46F_MEM_OP_B:
	case NVC46F_MEM_OP_C:
		c->mem_op[(method - NVC46F_MEM_OP_A) / 4] = data;
		return true;
	case NVC46F_MEM_OP_D:
		c->mem_op[3] = data;
		mem_op(c);
		return true;
	case NVC46F_SEM_ADDR_LO:
		c->sem_addr = (c->sem_addr & ~0xffffffffull) | data;
		return true;
	case NVC46F_SEM_ADDR_HI:
		c->sem_addr = (u64)data << 32 | (u32)c->sem_addr;
		return true;
	case NVC46F_SEM_PAYLOAD_LO:
		c->sem_payload = data;
		return true;
	case NVC46F_SEM_EXECUTE:
		return semaphore(c, data);
	case NVC46F_CLEAR_FAULTED:
		c->gpu->status.clear_faulted++;
		emu_clear_faulted(c->gpu, data & 0x7fffffff, !(data >> 31));	/* TYPE: PBDMA or ENG */
		return true;
	default:
		return true;	/* NOP, WFI, SET_OBJECT */
	}
}

static bool ce_method(struct emu_channel *c, u32 method, u32 data)
{
	switch (method) {
	case 0x240: c->ce_sem_addr = (u64)data << 32 | (u32)c->ce_sem_addr; break;
	case 0x244: c->ce_sem_addr = (c->ce_sem_addr & ~0xffffffffull) | data; break;
	case 0x248: c->ce_sem_payload = data; break;
	case 0x260: c->src_mode = data; break;
	case 0x264: c->dst_mode = data; break;
	case 0x300: return ce_launch(c, data);
	case 0x400: c->in = (u64)data << 32 | (u32)c->in; break;
	case 0x404: c->in = (c->in & ~0xffffffffull) | data; break;
	case 0x408: c->out = (u64)data << 32 | (u32)c->out; break;
	case 0x40c: c->out = (c->out & ~0xffffffffull) | data; break;
	case 0x418: c->length = data; break;
	case 0x700: c->remap_a = data; break;
	case 0x704: c->remap_b = data; break;
	case 0x708: c->remap = data; break;
	default: break;
	}
	return true;
}

static void sw_method(struct emu_channel *c, u32 method, u32 data)
{
	if (method < NVC076_FAULT_CANCEL_A || method > NVC076_FAULT_CANCEL_C)
		return;
	c->cancel[(method - NVC076_FAULT_CANCEL_A) / 4] = data;
	if (method == NVC076_FAULT_CANCEL_C)
		emu_cancel_instance(c->gpu, (u64)c->cancel[1] << 32 | (c->cancel[0] & ~0xfffu));
}

static bool method(struct emu_channel *c, u32 subchannel, u32 addr, u32 data)
{
	switch (subchannel) {
	case SUBCHANNEL_HOST:
		return host_method(c, addr, data);
	case SUBCHANNEL_CE:
		/* Below 0x100 are the host's methods, whatever the subchannel. */
		if (addr < 0x100)
			return host_method(c, addr, data);
		return ce_method(c, addr, data);
	case SUBCHANNEL_SW:
		sw_method(c, addr, data);
		return true;
	default:
		return true;
	}
}

/* Runs one burst of methods; false if it waits for a semaphore and is to be run again. */
static bool run_burst(struct emu_channel *c)
{
	const u32 *p = c->pb;
	u32 head = *p++, op = head >> 29, count = (head >> 16) & 0x1fff;
	u32 subchannel = (head >> 13) & 7, addr = (head & 0xfff) << 2, i;

	if (op == 4)
		method(c, subchannel, addr, count);
	for (i = 0; op != 4 && i < count && p < c->pb_end; i++) {
		if (!method(c, subchannel, addr, *p++))
			return false;
		if (op == 1 || (op == 5 && i == 0))
			addr += 4;
	}
	c->pb = p;
	return true;
}

static bool run_channel(struct emu_channel *c)
{
	bool busy = false;

	for (;;) {
		while (c->pb && c->pb < c->pb_end) {
			if (!run_burst(c))
				return busy;
			busy = true;
		}
		if (c->pb) {
			c->pb = NULL;
			WRITE_ONCE(c->get, (c->get + 1) % c->entries);
		}
		if (c->get == READ_ONCE(c->put))
			return busy;
		smp_rmb();
		{
			u64 entry = c->gpfifo[c->get];
			u64 va = (u64)((entry >> 32) & 0xff) << 32 | (entry & ~3u & 0xffffffffull);
			u32 words = (entry >> 42) & 0x1fffff;

			if (!words) {	/* A control entry. */
				WRITE_ONCE(c->get, (c->get + 1) % c->entries);
				continue;
			}
			c->pb = emu_rm_ptr(c->gpu, va, words * 4);
			if (!c->pb) {
				pr_err("emu: channel %u: pushbuffer %llx unknown\n", c->id, va);
				WRITE_ONCE(c->get, (c->get + 1) % c->entries);
				continue;
			}
			c->pb_end = c->pb + words;
		}
	}
}

/* The caller holds emu.lock. */
bool emu_run_channels(struct emu_gpu *gpu)
{
	struct emu_channel *channel;
	bool busy = false;

	list_for_each_entry(channel, &gpu->channels, node)
		busy |= run_channel(channel);
	return busy;
}
