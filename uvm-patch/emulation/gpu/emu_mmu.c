// SPDX-License-Identifier: MIT
/*
 * The MMU: walks the page tables that UVM wrote (the format of the Pascal to
 * Ampere generations), reports faults as 32-byte packets, replays, cancels.
 *
 * As on the hardware, a fault of an SM names the address space only by its
 * subcontext (VEID): the instance pointer is that of any channel of the TSG.
 * And as on the hardware, a cancelled access ends the whole TSG.
 */
#include "emu.h"
/*
 * The driver's own header has the numbers of units and faults. 535 and 550
 * tell a copy engine from a host by the packet's engine, 570 and later by its
 * client: a wrong number of either would be seen by some branches only.
 */
#include "hwref/turing/tu102/dev_fault.h"

#define PTR_MASK	0xfffffu	/* of the GET register; the rest are clear bits */

void *emu_phys_ptr(bool vid, u64 addr)
{
	if (!vid)
		return phys_to_virt(addr);
	return addr < EMU_VIDMEM ? emu.vidmem + addr : NULL;
}

struct level { u32 shift, bits, size; };

static u64 *entry_at(bool vid, u64 table, u64 va, const struct level *l)
{
	return emu_phys_ptr(vid, table + ((va >> l->shift) & ((1ull << l->bits) - 1)) * l->size);
}

static u32 check_pte(u64 pte, u32 type)
{
	if (!(pte & 1))
		return pte & (1 << 3) ? EMU_WALK_SPARSE : NV_PFAULT_FAULT_TYPE_PTE;
	if (type == EMU_WRITE && (pte & (1 << 6)))
		return NV_PFAULT_FAULT_TYPE_RO_VIOLATION;
	if (type == EMU_ATOMIC && (pte & (1 << 6 | 1 << 7)))
		return pte & (1 << 6) ? NV_PFAULT_FAULT_TYPE_RO_VIOLATION : NV_PFAULT_FAULT_TYPE_ATOMIC_VIOLATION;
	return EMU_OK;
}

static u32 end_walk(struct emu_page *page, u64 pte, u64 size, u32 type)
{
	u32 r = check_pte(pte, type);

	*page = (struct emu_page) { pte, size };
	return r == EMU_OK || r == EMU_WALK_SPARSE ? r : r + 1;
}

/* A directory's entry without a table below it. */
static u32 no_table(struct emu_page *page, u64 entry, u32 shift)
{
	*page = (struct emu_page) { entry, 1ull << shift };
	return entry & (1 << 3) ? EMU_WALK_SPARSE : NV_PFAULT_FAULT_TYPE_PDE + 1;
}

/* The memory of a page; NULL if it is not the GPU's own. */
void *emu_page_ptr(const struct emu_page *page, u64 va)
{
	u64 frame = ((page->pte >> 8) & ((1ull << 46) - 1)) << 12;

	return (page->pte >> 1) & 3 ? NULL : emu_phys_ptr(true, (frame & ~(page->size - 1)) | (va & (page->size - 1)));
}

/* EMU_OK, EMU_WALK_SPARSE, or a fault type plus one (type 0 is a fault, too). */
u32 emu_walk(struct emu_space *space, u64 va, u32 type, struct emu_page *page)
{
	static const struct level upper[] = { { 47, 2, 8 }, { 38, 9, 8 }, { 29, 9, 8 } };
	static const struct level pde0 = { 21, 8, 16 }, big = { 16, 5, 8 }, small = { 12, 9, 8 };
	u64 table, *e, pte;
	bool vid;
	u32 i;

	*page = (struct emu_page) { 0 };
	if (!space || !space->pdb_set)
		return NV_PFAULT_FAULT_TYPE_PDE + 1;
	table = space->pdb;
	vid = space->pdb_vid;
	for (i = 0; i < ARRAY_SIZE(upper); i++) {
		e = entry_at(vid, table, va, &upper[i]);
		if (!e || !(*e & 6))
			return no_table(page, e ? *e : 0, upper[i].shift);
		vid = ((*e >> 1) & 3) == 1;
		table = ((*e >> 8) & ((1ull << 46) - 1)) << 12;
	}
	e = entry_at(vid, table, va, &pde0);
	if (!e)
		return NV_PFAULT_FAULT_TYPE_PDE + 1;
	if (e[0] & 1)		/* A 2 MiB page. */
		return end_walk(page, e[0], 2 << 20, type);
	if (!(e[0] & 6) && !(e[1] & 6))
		return no_table(page, e[0], pde0.shift);
	if (e[0] & 6) {
		u64 *p = entry_at(((e[0] >> 1) & 3) == 1, ((e[0] >> 4) & ((1ull << 50) - 1)) << 8, va, &big);

		pte = p ? *p : 0;
		/* Valid, sparse, or the pattern that hides the small pages. */
		if (pte & (1 | 1 << 3 | 1 << 5))
			return end_walk(page, pte, 64 << 10, type);
	}
	if (e[1] & 6) {
		u64 *p = entry_at(((e[1] >> 1) & 3) == 1, ((e[1] >> 8) & ((1ull << 46) - 1)) << 12, va, &small);

		return end_walk(page, p ? *p : 0, 4 << 10, type);
	}
	return NV_PFAULT_FAULT_TYPE_PTE + 1;
}

void emu_finish(struct emu_access *access, u32 result)
{
	list_del(&access->node);
	emu.status.running--;
	access->result = result;
	access->done_ns = ktime_get_ns();
	if (access->done)
		complete(access->done);
	else
		kfree(access);
}

static void kill_tsg(u32 tsg)
{
	struct emu_access *access, *next;

	emu.tsg_dead[tsg] = true;
	emu.status.tsg_dead |= 1u << tsg;
	list_for_each_entry_safe(access, next, &emu.accesses, node) {
		if (EMU_CHANNEL_TSG(access->handle) == tsg)
			emu_finish(access, EMU_RC);
	}
}

/* Not an SM's: such a fault is not replayable and names its very channel. */
static bool by_hub(const struct emu_access *access)
{
	return access->host || EMU_CHANNEL_CE(access->handle);
}

/* Any channel of the TSG and engine for an SM, the very one for a copy engine or host. */
static struct emu_user_channel *reported_channel(const struct emu_access *access)
{
	struct emu_user_channel *channel;

	if (by_hub(access))
		return emu_user_channel(access->handle);
	list_for_each_entry(channel, &emu.user_channels, node) {
		if (EMU_CHANNEL_TSG(channel->handle) == EMU_CHANNEL_TSG(access->handle) &&
		    !EMU_CHANNEL_CE(channel->handle) && channel->bound)
			return channel;
	}
	return NULL;
}

static void fill_packet(u32 *w, const struct emu_access *access, u64 instance, u32 fault)
{
	static const u8 access_types[] = { 0, 1, 2, 3, 0 };
	u32 unit = access->type == EMU_FETCH ? NV_PFAULT_CLIENT_GPC_GCC : NV_PFAULT_CLIENT_GPC_T1_0;
	u32 client = access->host ? NV_PFAULT_CLIENT_HUB_HOST : NV_PFAULT_CLIENT_HUB_CE0;
	bool hub = by_hub(access);
	u64 now = ktime_get_ns();

	w[0] = (u32)instance & 0xfffff000;
	w[1] = (u32)(instance >> 32);
	w[2] = (u32)access->va & 0xfffff000;
	w[3] = (u32)((access->va >> 32) & 0x1ffff);
	w[4] = (u32)now;
	w[5] = (u32)(now >> 32);
	w[6] = access->host ? NV_PFAULT_MMU_ENG_ID_HOST0 : hub ? NV_PFAULT_MMU_ENG_ID_CE0 :
	       NV_PFAULT_MMU_ENG_ID_GRAPHICS + EMU_FIRST_VE(access->handle) + EMU_CHANNEL_VE(access->handle);
	smp_wmb();
	WRITE_ONCE(w[7], fault | (hub ? 0 : 1 << 7) | (hub ? client : unit) << 8 |
		   (u32)access_types[access->type] << 16 | (hub ? 1u << 20 : 0) | 1u << 30 | 1u << 31);
}

/* Sends the packet unless the buffer is full; then the next tick tries again. */
static void post(struct emu_access *access, u32 fault)
{
	struct emu_user_channel *channel = reported_channel(access);

	if (!channel) {
		emu_finish(access, EMU_RC);	/* The TSG is gone. */
		return;
	}
	access->state = EMU_FAULTED;
	access->posted = false;
	if (by_hub(access)) {
		if (emu.shadow_count == EMU_FAULTS)
			return;
		fill_packet((u32 *)emu.shadow[emu.shadow_count], access, channel->instance, fault);
		WRITE_ONCE(emu.shadow_count, emu.shadow_count + 1);
	} else {
		u32 put = emu.fb_put, next = (put + 1) % EMU_FAULTS;

		if (next == (READ_ONCE(emu.fb_get) & PTR_MASK))
			return;
		fill_packet((u32 *)(emu.fb + put * EMU_PACKET), access, channel->instance, fault);
		smp_wmb();
		WRITE_ONCE(emu.fb_put, next);
	}
	access->posted = true;
	access->faults++;
	emu.status.packets++;
	if (!access->first_fault_ns)
		access->first_fault_ns = ktime_get_ns();
}

/* What an access that was translated does: false if it ends its program. */
static bool perform(struct emu_access *access, const struct emu_page *page, bool sparse)
{
	u64 *at = sparse ? NULL : emu_page_ptr(page, access->va & ~7ull);

	access->value = at ? *at : 0;
	if (at && (access->type == EMU_WRITE || access->type == EMU_ATOMIC))
		*at = access->handle;
	return access->type != EMU_FETCH || access->value;
}

void emu_try(struct emu_access *access)
{
	struct emu_page page;
	u32 r;

	if (emu.tsg_dead[EMU_CHANNEL_TSG(access->handle)]) {
		emu_finish(access, EMU_RC);
		return;
	}
	if (access->force_type != EMU_WALK) {
		post(access, access->force_type);
		return;
	}
	r = emu_walk(access->space, access->va, access->type, &page);
	if (r != EMU_OK && r != EMU_WALK_SPARSE) {
		if (access->type == EMU_PREFETCH && access->faults) {
			emu_finish(access, EMU_OK);	/* A prefetch does not insist. */
			return;
		}
		post(access, r - 1);
		return;
	}
	if (!perform(access, &page, r == EMU_WALK_SPARSE)) {
		/* Its neighbours end at the next tick. */
		emu.tsg_dead[EMU_CHANNEL_TSG(access->handle)] = true;
		emu.status.tsg_dead |= 1u << EMU_CHANNEL_TSG(access->handle);
		emu_finish(access, EMU_RC);
		return;
	}
	access->state = EMU_READY;
	if (access->until_ns && ktime_get_ns() < access->until_ns)
		return;
	emu_finish(access, r == EMU_OK ? EMU_OK : EMU_SPARSE);
}

/* Tries all that wait for it; an access may end and free itself, or fault again. */
static void retry_all(bool hub, u32 chid, bool host)
{
	struct emu_access *access, *next;

	list_for_each_entry_safe(access, next, &emu.accesses, node) {
		struct emu_user_channel *channel;

		if (access->state != EMU_FAULTED || by_hub(access) != hub || access->host != host)
			continue;
		channel = hub ? emu_user_channel(access->handle) : NULL;
		if (!hub || (channel && channel->chid == chid))
			emu_try(access);
	}
}

void emu_replay(void)
{
	emu.status.replays++;
	retry_all(false, 0, false);
}

/* One engine of a channel goes on: its host (PBDMA), or what executes its methods. */
void emu_clear_faulted(u32 chid, bool host)
{
	retry_all(true, chid, host);
}

void emu_cancel_va(u64 pdb, u64 va)
{
	struct emu_access *access;

	emu.status.cancels++;
	list_for_each_entry(access, &emu.accesses, node) {
		if (access->state == EMU_FAULTED && access->space && access->space->pdb == pdb &&
		    (access->va & 0x1fffffffff000ull) == (va & 0x1fffffffff000ull)) {
			kill_tsg(EMU_CHANNEL_TSG(access->handle));
			return;
		}
	}
}

void emu_cancel_instance(u64 instance)
{
	struct emu_user_channel *channel;

	emu.status.cancels++;
	list_for_each_entry(channel, &emu.user_channels, node) {
		if (channel->instance == instance) {
			kill_tsg(EMU_CHANNEL_TSG(channel->handle));
			return;
		}
	}
}

/* UVM hands a non-replayable fault to the resource manager: robust-channel recovery. */
void emu_report_fault(const void *packet)
{
	const u32 *w = packet;
	u64 instance = (u64)w[1] << 32 | (w[0] & 0xfffff000);
	struct emu_user_channel *channel;

	emu.status.reports++;
	list_for_each_entry(channel, &emu.user_channels, node) {
		if (channel->instance == instance) {
			kill_tsg(EMU_CHANNEL_TSG(channel->handle));
			return;
		}
	}
}

/* One tick: repeating programs, packets that found no room, the interrupt line. */
bool emu_interrupt(void)
{
	struct emu_access *access, *next;
	bool pending;

	mutex_lock(&emu.lock);
	list_for_each_entry_safe(access, next, &emu.accesses, node) {
		if ((access->state == EMU_READY && !emu.paused) || (access->state == EMU_FAULTED && !access->posted) ||
		    emu.tsg_dead[EMU_CHANNEL_TSG(access->handle)])
			emu_try(access);
	}
	pending = emu.fb_put != (READ_ONCE(emu.fb_get) & PTR_MASK) || emu.shadow_count;
	pending = pending && !emu.paused;
	mutex_unlock(&emu.lock);

	if (pending && READ_ONCE(emu.have_isr) && READ_ONCE(emu.own_intr))
		emu.isr(&emu.uuid);
	return pending;
}
