// SPDX-License-Identifier: MIT
/*
 * The MMU's faults: reports them as 32-byte packets, replays, cancels.
 *
 * As on the hardware, a fault of an SM names the address space only by its
 * subcontext (VEID): the instance pointer is that of any channel of the TSG.
 * And as on the hardware, a cancelled access ends the whole TSG.
 */
#include "emu.h"

#define PTR_MASK	0xfffffu	/* of the GET and PUT registers; the rest are flags */
#define OVERFLOW	(1u << 31)	/* there is one, in PUT; it is cleared, in GET */

void emu_finish(struct emu_access *access, u32 result)
{
	list_del(&access->node);
	access->gpu->status.running--;
	access->result = result;
	access->done_ns = ktime_get_ns();
	if (access->done)
		complete(access->done);
	else
		kfree(access);
}

static void kill_tsg(struct emu_gpu *gpu, u32 tsg)
{
	struct emu_access *access, *next;

	gpu->tsg_dead[tsg] = true;
	gpu->status.tsg_dead |= 1u << tsg;
	list_for_each_entry_safe(access, next, &gpu->accesses, node) {
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
		return emu_user_channel(access->gpu, access->handle);
	list_for_each_entry(channel, &access->gpu->user_channels, node) {
		if (EMU_CHANNEL_TSG(channel->handle) == EMU_CHANNEL_TSG(access->handle) &&
		    !EMU_CHANNEL_CE(channel->handle) && channel->bound)
			return channel;
	}
	return NULL;
}

static void fill_packet(u32 *w, const struct emu_access *access, u64 instance, u32 fault)
{
	static const u8 access_types[] = { 0, 1, 2, 3, 0 };
	const struct emu_kind *kind = emu.kind;
	u32 unit = access->type == EMU_FETCH ? kind->client_gcc : kind->client_t1;
	u32 client = access->host ? kind->client_host : kind->client_ce;
	bool hub = by_hub(access);
	u64 now = ktime_get_ns();

	w[0] = (u32)instance & 0xfffff000;
	w[1] = (u32)(instance >> 32);
	w[2] = (u32)access->va & 0xfffff000;
	w[3] = (u32)((access->va >> 32) & ((1u << (kind->va_bits - 32)) - 1));
	w[4] = (u32)now;
	w[5] = (u32)(now >> 32);
	w[6] = access->host ? kind->host : hub ? kind->ce :
	       kind->graphics + EMU_FIRST_VE(access->handle) + EMU_CHANNEL_VE(access->handle);
	smp_wmb();
	WRITE_ONCE(w[7], fault | (hub ? 0 : 1 << 7) | (hub ? client : unit) << 8 |
		   (u32)access_types[access->type] << 16 | (hub ? 1u << 20 : 0) | 1u << 30 | 1u << 31);
}

/*
 * Whether the buffer of replayable faults takes another. What finds no room is
 * lost, and so is all that comes until UVM has made some and cleared the flag:
 * a replay brings it back.
 */
static bool has_room(struct emu_gpu *gpu)
{
	u32 get = READ_ONCE(gpu->fb_get);

	if (get & OVERFLOW && cmpxchg(&gpu->fb_get, get, get & PTR_MASK) == get && gpu->overflow) {
		gpu->overflow = false;
		WRITE_ONCE(gpu->fb_put, gpu->fb_put & PTR_MASK);
	}
	if (!gpu->overflow && ((gpu->fb_put & PTR_MASK) + 1) % EMU_FAULTS == (get & PTR_MASK)) {
		gpu->overflow = true;
		gpu->status.overflows++;
		WRITE_ONCE(gpu->fb_put, gpu->fb_put | OVERFLOW);
	}
	return !gpu->overflow;
}

/* Sends the packet if there is room. That of a copy engine or host is sent by the next tick else. */
static void post(struct emu_access *access, u32 fault)
{
	struct emu_user_channel *channel = reported_channel(access);
	struct emu_gpu *gpu = access->gpu;

	if (!channel) {
		emu_finish(access, EMU_RC);	/* The TSG is gone. */
		return;
	}
	access->state = EMU_FAULTED;
	access->posted = false;
	if (by_hub(access)) {
		if (gpu->shadow_count == EMU_FAULTS)
			return;
		fill_packet((u32 *)gpu->shadow[gpu->shadow_count], access, channel->instance, fault);
		WRITE_ONCE(gpu->shadow_count, gpu->shadow_count + 1);
		channel->faulted |= access->host ? EMU_CHRAM_HOST : EMU_CHRAM_ENGINE;
		WRITE_ONCE(channel->chram, channel->faulted);
	} else {
		u32 put;

		if (!has_room(gpu))
			return;
		put = gpu->fb_put;
		fill_packet((u32 *)(gpu->fb + put * EMU_PACKET), access, channel->instance, fault);
		smp_wmb();
		WRITE_ONCE(gpu->fb_put, (put + 1) % EMU_FAULTS);
	}
	access->posted = true;
	access->faults++;
	gpu->status.packets++;
	if (!access->first_fault_ns)
		access->first_fault_ns = ktime_get_ns();
}

/* What an access that was translated does: false if it ends its program. */
static bool perform(struct emu_access *access, const struct emu_page *page, bool sparse)
{
	u64 *at = sparse ? NULL : emu_page_ptr(access->gpu, page, access->va & ~7ull);

	access->value = at ? *at : 0;
	if (at && (access->type == EMU_WRITE || access->type == EMU_ATOMIC))
		*at = access->handle;
	return access->type != EMU_FETCH || access->value;
}

/* The upper half of a client's addresses is that of the highest. (UVM's own space has it in the middle.) */
static bool beyond_the_limit(u64 va)
{
	return va >> (emu.kind->va_bits - 1) && ~va >> (emu.kind->va_bits - 1);
}

void emu_try(struct emu_access *access)
{
	struct emu_gpu *gpu = access->gpu;
	struct emu_page page;
	u32 r;

	if (gpu->tsg_dead[EMU_CHANNEL_TSG(access->handle)]) {
		emu_finish(access, EMU_RC);
		return;
	}
	if (access->force_type != EMU_WALK) {
		post(access, access->force_type);
		return;
	}
	r = beyond_the_limit(access->va) ? EMU_FAULT(limit) :
	    emu_translate(access->space, access->va, access->type, &page);
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
		gpu->tsg_dead[EMU_CHANNEL_TSG(access->handle)] = true;
		gpu->status.tsg_dead |= 1u << EMU_CHANNEL_TSG(access->handle);
		emu_finish(access, EMU_RC);
		return;
	}
	access->state = EMU_READY;
	if (access->until_ns && ktime_get_ns() < access->until_ns)
		return;
	emu_finish(access, r == EMU_OK ? EMU_OK : EMU_SPARSE);
}

/* Tries all that wait for it; an access may end and free itself, or fault again. */
static void retry_all(struct emu_gpu *gpu, bool hub, u32 chid, bool host)
{
	struct emu_access *access, *next;

	list_for_each_entry_safe(access, next, &gpu->accesses, node) {
		struct emu_user_channel *channel;

		if (access->state != EMU_FAULTED || by_hub(access) != hub || access->host != host)
			continue;
		channel = hub ? emu_user_channel(access->gpu, access->handle) : NULL;
		if (!hub || (channel && channel->chid == chid))
			emu_try(access);
	}
}

void emu_replay(struct emu_gpu *gpu)
{
	gpu->status.replays++;
	retry_all(gpu, false, 0, false);
}

/* One engine of a channel goes on: its host (PBDMA), or what executes its methods. */
void emu_clear_faulted(struct emu_gpu *gpu, u32 chid, bool host)
{
	retry_all(gpu, true, chid, host);
}

void emu_cancel_va(struct emu_gpu *gpu, u64 pdb, u64 va)
{
	struct emu_access *access;

	gpu->status.cancels++;
	list_for_each_entry(access, &gpu->accesses, node) {
		if (access->state == EMU_FAULTED && access->space && access->space->pdb == pdb &&
		    !(((access->va ^ va) >> 12) & ((1ull << (emu.kind->va_bits - 12)) - 1))) {
			kill_tsg(gpu, EMU_CHANNEL_TSG(access->handle));
			return;
		}
	}
}

void emu_cancel_instance(struct emu_gpu *gpu, u64 instance)
{
	struct emu_user_channel *channel;

	gpu->status.cancels++;
	list_for_each_entry(channel, &gpu->user_channels, node) {
		if (channel->instance == instance) {
			kill_tsg(gpu, EMU_CHANNEL_TSG(channel->handle));
			return;
		}
	}
}

/* UVM hands a non-replayable fault to the resource manager: robust-channel recovery. */
void emu_report_fault(struct emu_gpu *gpu, const void *packet)
{
	const u32 *w = packet;
	u64 instance = (u64)w[1] << 32 | (w[0] & 0xfffff000);
	struct emu_user_channel *channel;

	gpu->status.reports++;
	list_for_each_entry(channel, &gpu->user_channels, node) {
		if (channel->instance == instance) {
			kill_tsg(gpu, EMU_CHANNEL_TSG(channel->handle));
			return;
		}
	}
}

/* Channels whose register was written: each tells one of its engines to go on. */
static void look_at_registers(struct emu_gpu *gpu)
{
	struct emu_user_channel *channel;

	list_for_each_entry(channel, &gpu->user_channels, node) {
		u32 chram = READ_ONCE(channel->chram);

		if (!(chram & EMU_CHRAM_GO_ON) || !emu.kind->faulted_in_register)
			continue;
		channel->faulted &= ~chram;
		WRITE_ONCE(channel->chram, channel->faulted);
		gpu->status.clear_faulted++;
		emu_clear_faulted(gpu, channel->chid, chram & EMU_CHRAM_HOST);
	}
}

/* One tick: repeating programs, packets that found no room, registers, the interrupt line. */
bool emu_interrupt(struct emu_gpu *gpu)
{
	struct emu_access *access, *next;
	bool pending;

	mutex_lock(&emu.lock);
	list_for_each_entry_safe(access, next, &gpu->accesses, node) {
		if ((access->state == EMU_READY && !gpu->paused) ||
		    (access->state == EMU_FAULTED && !access->posted && by_hub(access)) ||
		    gpu->tsg_dead[EMU_CHANNEL_TSG(access->handle)])
			emu_try(access);
	}
	look_at_registers(gpu);
	pending = (gpu->fb_put & PTR_MASK) != (READ_ONCE(gpu->fb_get) & PTR_MASK) || gpu->shadow_count;
	pending = pending && !gpu->paused;
	mutex_unlock(&emu.lock);

	if (pending && READ_ONCE(emu.have_isr) && READ_ONCE(gpu->own_intr))
		emu.isr(&gpu->uuid);
	return pending;
}
