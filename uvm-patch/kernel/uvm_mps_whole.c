// SPDX-License-Identifier: MIT
/*
 * The last resort: one sink over all that is free of a client's address space,
 * in one step. Where a directory of its page tree has no entry, a sparse one is
 * written, as the resource manager makes them at every level; nothing is
 * allocated on the GPU, so it works with none of its memory left. What is
 * covered is kept as extents, in ascending order.
 */
#include <linux/slab.h>
#include "uvm_pte_batch.h"
#include "uvm_push.h"
#include "uvm_mps_internal.h"

#define EXTENTS		4096u	/* a client whose ranges leave more gaps keeps the rest for ordinary sinks */
#define PUSH_ENTRIES	512u	/* written by one push */
#define HITS_PER_FILL	64u	/* the client may have freed tables that held entries: then they are written anew */

struct fill {
	struct uvm_mps_client *client;
	struct uvm_mps_whole *whole;
	uvm_page_tree_t *tree;
	uvm_push_t push;
	uvm_pte_batch_t batch;
	unsigned int pushed;	/* entries in the push, which has begun if there are any */
	NV_STATUS status;
};

struct uvm_mps_whole *uvm_mps_whole_of(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space)
{
	struct uvm_mps_whole *whole;

	list_for_each_entry(whole, &client->wholes, node) {
		if (whole->gpu_va_space == gpu_va_space)
			return whole;
	}
	return NULL;
}

/* The first extent that does not end before an address. */
static const struct uvm_mps_extent *extent_from(const struct uvm_mps_whole *whole, u64 address)
{
	unsigned int low = 0, high = whole->count;

	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (whole->extents[middle].end < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < whole->count ? &whole->extents[low] : NULL;
}

/* The first of what is covered in [start, end]; NULL if nothing is. */
const struct uvm_mps_extent *uvm_mps_whole_in(const struct uvm_mps_whole *whole, u64 start, u64 end)
{
	const struct uvm_mps_extent *extent = whole ? extent_from(whole, start) : NULL;

	return extent && extent->start <= end ? extent : NULL;
}

static void flush(struct fill *fill, bool last)
{
	NV_STATUS status;

	if (!fill->pushed)
		return;
	uvm_pte_batch_end(&fill->batch);
	if (last)
		fill->tree->gpu->parent->host_hal->tlb_invalidate_all(&fill->push, uvm_mps_pdb(fill->tree), 0,
								      UVM_MEMBAR_NONE);
	fill->pushed = 0;
	status = uvm_push_end_and_wait(&fill->push);
	if (fill->status == NV_OK)
		fill->status = status;
}

static void write_entry(struct fill *fill, uvm_page_directory_t *directory, u32 index, u32 size)
{
	uvm_gpu_phys_address_t entry = directory->phys_alloc.addr;

	if (fill->pushed == PUSH_ENTRIES)
		flush(fill, false);
	if (fill->status == NV_OK && !fill->pushed) {
		fill->status = uvm_push_begin_acquire(fill->tree->gpu->channel_manager, UVM_CHANNEL_TYPE_MEMOPS,
						      &fill->tree->tracker, &fill->push, "mps: all that is free");
		if (fill->status == NV_OK)
			uvm_pte_batch_begin(&fill->push, &fill->batch);
	}
	if (fill->status != NV_OK)
		return;
	entry.address += (u64)index * size;
	/* The bits of a sparse entry are the same at every level and in every format so far. */
	uvm_pte_batch_write_pte(&fill->batch, entry, fill->tree->hal->make_sparse_pte(), size);
	fill->pushed++;
}

/* False: there is no room for another extent. */
static bool note(struct uvm_mps_whole *whole, u64 start, u64 end)
{
	if (whole->count && whole->extents[whole->count - 1].end + 1 == start) {
		whole->extents[whole->count - 1].end = end;
		return true;
	}
	if (whole->count == EXTENTS)
		return false;
	whole->extents[whole->count++] = (struct uvm_mps_extent) { start, end };
	return true;
}

static bool is_free(const struct fill *fill, u64 start, u64 end)
{
	static const struct uvm_mps_room anywhere = { .end = ~0ull };

	return uvm_gpu_can_address(fill->tree->gpu, start, end - start + 1) &&
	       !uvm_mps_obstacle(fill->client, fill->whole->gpu_va_space, &anywhere, &start, &end);
}

/*
 * A directory whose first address is base, which spans 1 << shift bytes. The
 * upper half of a page tree is that of the highest addresses.
 */
static void fill_directory(struct fill *fill, uvm_page_directory_t *directory, u64 base, u32 shift)
{
	uvm_mmu_mode_hal_t *hal = fill->tree->hal;
	u32 bits = hal->index_bits(directory->depth, UVM_PAGE_SIZE_2M);
	u32 children = hal->entries_per_index(directory->depth), i, n;
	u32 size = (u32)hal->entry_size(directory->depth);
	bool is_last = directory->depth == hal->page_table_depth(UVM_PAGE_SIZE_2M);

	shift -= bits;
	for (i = 0; i < 1u << bits && fill->status == NV_OK; i++) {
		u64 start = sign_extend64(base + ((u64)i << shift), hal->num_va_bits() - 1);
		u64 end = start + (1ull << shift) - 1;
		uvm_page_directory_t *child = NULL;

		for (n = 0; n < children && !child; n++)
			child = directory->entries[i * children + n];
		if (child && !is_last)
			fill_directory(fill, child, start, shift);
		else if (!child && is_free(fill, start, end) && note(fill->whole, start, end))
			write_entry(fill, directory, i, size);
	}
}

static NV_STATUS fill(struct uvm_mps_client *client, struct uvm_mps_whole *whole)
{
	uvm_page_tree_t *tree = &whole->gpu_va_space->page_tables;
	struct fill fill = { .client = client, .whole = whole, .tree = tree };

	whole->count = 0;
	uvm_mutex_lock(&tree->lock);
	fill_directory(&fill, tree->root, 0, tree->hal->num_va_bits());
	flush(&fill, true);
	uvm_mutex_unlock(&tree->lock);
	if (fill.status != NV_OK)
		whole->count = 0;
	return fill.status;
}

/* A fault at what is covered. Whether it still is after a new fill is seen at the next one. */
void uvm_mps_whole_hit(struct uvm_mps_client *client, struct uvm_mps_whole *whole)
{
	if (++whole->hits % HITS_PER_FILL == 0)
		(void)fill(client, whole);
}

NV_STATUS uvm_mps_whole_insert(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space)
{
	struct uvm_mps_whole *whole;
	NV_STATUS status;

	if (uvm_hmm_is_enabled(gpu_va_space->va_space))
		return NV_ERR_NOT_SUPPORTED;	/* It makes blocks wherever the process has memory. */
	whole = kzalloc(sizeof(*whole), GFP_KERNEL);
	if (!whole)
		return NV_ERR_NO_MEMORY;
	whole->gpu_va_space = gpu_va_space;
	whole->extents = kvmalloc_array(EXTENTS, sizeof(*whole->extents), GFP_KERNEL);
	status = whole->extents ? fill(client, whole) : NV_ERR_NO_MEMORY;
	if (status != NV_OK) {
		kvfree(whole->extents);
		kfree(whole);
		return status;
	}
	list_add(&whole->node, &client->wholes);
	client->num_sinks++;
	uvm_mps_count(STAT_SINKS);
	return NV_OK;
}

/* The entries go with the directories that hold them. */
void uvm_mps_whole_fini(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space)
{
	struct uvm_mps_whole *whole = uvm_mps_whole_of(client, gpu_va_space);

	if (!whole)
		return;
	list_del(&whole->node);
	kvfree(whole->extents);
	kfree(whole);
}
