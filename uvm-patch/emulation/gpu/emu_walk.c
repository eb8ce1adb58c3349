// SPDX-License-Identifier: MIT
/*
 * How the MMU reads the page tables that UVM wrote, in the format of Pascal to
 * Ada or in that of Hopper and Blackwell, and what it remembers of them.
 *
 * The TLB keeps every entry that was read, of every level, valid or not, until
 * it is invalidated or its place is needed: whoever writes an entry and does not
 * invalidate it at its level has written it in vain.
 */
#include "emu.h"
#include "clc46f.h"
#include <linux/hash.h>

#define TLB_BITS	11u
#define PTE_LEVEL	1u	/* as in the host's method: PTE 1, PDE0 2, and so on upwards */
#define ALL_LEVELS	0u

/* What the formats have at other places. */
struct format {
	u32 top, bits;			/* level and index bits of the root */
	u32 pde_low, big_low, bits_of_address;	/* where the addresses begin: those of 256 bytes in the big half */
	bool pcf;			/* permissions are a number in bits 7:3, not single bits */
};

static const struct format pascal = { .top = 5, .bits = 2, .pde_low = 8, .big_low = 4, .bits_of_address = 46 };
static const struct format hopper = { .top = 6, .bits = 1, .pde_low = 12, .big_low = 8, .bits_of_address = 40,
				      .pcf = true };

struct entry { u64 low, high; };	/* high: the second half of a dual one */

struct cached {
	u64 pdb, tag;
	struct entry entry;
	u32 level;	/* 0: none */
	bool vid, small;
};

static struct cached tlbs[EMU_GPUS][1u << TLB_BITS];

static struct cached *tlb_of(const struct emu_gpu *gpu)
{
	return tlbs[gpu - emu.gpus];
}

static const struct format *format(void)
{
	return emu.kind->va_bits == 57 ? &hopper : &pascal;
}

static u32 shift_of(u32 level, bool small)
{
	return level == PTE_LEVEL ? (small ? 12 : 16) : 21 + (level > 2 ? 8 + (level - 3) * 9 : 0);
}

static u32 index_bits(u32 level, bool small)
{
	if (level == format()->top)
		return format()->bits;
	return level == PTE_LEVEL ? (small ? 9 : 5) : level == 2 ? 8 : 9;
}

static struct cached *place_of(const struct emu_space *space, u64 tag, u32 level, bool small)
{
	return &tlb_of(space->gpu)[hash_64(space->pdb ^ tag << 8 ^ level << 1 ^ small, TLB_BITS)];
}

/* One entry of a table: from the TLB if it is there and may be asked. */
static struct entry read_entry(const struct emu_space *space, bool remember, u32 level, bool small, bool vid,
			       u64 table, u64 va)
{
	u32 shift = shift_of(level, small), size = level == 2 ? 16 : 8;
	struct cached *c = place_of(space, va >> shift, level, small);
	struct entry entry = { 0 };
	u64 *e;

	if (remember && c->level == level && c->small == small && c->tag == va >> shift && c->pdb == space->pdb &&
	    c->vid == space->pdb_vid)
		return c->entry;
	e = emu_phys_ptr(space->gpu, vid, table + ((va >> shift) & ((1ull << index_bits(level, small)) - 1)) * size);
	if (e) {
		entry.low = e[0];
		entry.high = level == 2 ? e[1] : 0;
	}
	if (remember)
		*c = (struct cached) { space->pdb, va >> shift, entry, level, space->pdb_vid, small };
	return entry;
}

/* What a host's method takes out: of one page directory, from the PTEs up to a level, of an aligned power of two of bytes. */
void emu_tlb_invalidate(struct emu_gpu *gpu, u64 pdb, bool vid, u32 level, u64 va, u32 log2_size)
{
	struct cached *tlb = tlb_of(gpu), *c;

	for (c = tlb; c < tlb + ARRAY_SIZE(tlbs[0]); c++) {
		u32 shift = shift_of(c->level, c->small), wider = max(shift, log2_size);

		if (!c->level || c->pdb != pdb || c->vid != vid || (level != ALL_LEVELS && c->level > level))
			continue;
		if (log2_size >= 64 || (c->tag << shift) >> wider == (va & ((1ull << emu.kind->va_bits) - 1)) >> wider)
			c->level = 0;
	}
}

void emu_tlb_forget(const struct emu_space *space)
{
	emu_tlb_invalidate(space->gpu, space->pdb, space->pdb_vid, ALL_LEVELS, 0, 64);
}

static u64 address(u64 entry, u32 low)
{
	return (entry >> low) & ((1ull << format()->bits_of_address) - 1);
}

static bool is_sparse(u64 pte)
{
	return format()->pcf ? ((pte >> 3) & 0x1f) == 1 : pte & (1 << 3);
}

/* The pattern of an invalid large page that hides the small ones. */
static bool hides_small(u64 pte)
{
	return format()->pcf ? ((pte >> 3) & 0x1f) == 3 : pte & (1 << 5);
}

static u32 check_pte(u64 pte, u32 type)
{
	bool read_only = pte & (format()->pcf ? 1 << 5 : 1 << 6), no_atomic = pte & (format()->pcf ? 1 << 6 : 1 << 7);

	if (!(pte & 1))
		return is_sparse(pte) ? EMU_WALK_SPARSE : EMU_FAULT(pte);
	if (read_only && (type == EMU_WRITE || type == EMU_ATOMIC))
		return EMU_FAULT(read_only);
	if (no_atomic && type == EMU_ATOMIC)
		return EMU_FAULT(atomic);
	return EMU_OK;
}

static u32 end_walk(struct emu_page *page, u64 pte, u64 size, u32 type)
{
	*page = (struct emu_page) { pte, size, address(pte, format()->pde_low) << 12, (pte >> 1) & 3 };
	return check_pte(pte, type);
}

/* A directory's entry without a table below it. */
static u32 no_table(struct emu_page *page, u64 entry, u32 level)
{
	*page = (struct emu_page) { entry, 1ull << shift_of(level, false) };
	return entry & (1 << 3) ? EMU_WALK_SPARSE : EMU_FAULT(pde);
}

static u32 walk(struct emu_space *space, u64 va, u32 type, struct emu_page *page, bool remember)
{
	const struct format *f = format();
	struct entry e, pte;
	u64 table;
	bool vid;
	u32 level;

	*page = (struct emu_page) { 0 };
	if (!space || !space->pdb_set)
		return EMU_FAULT(pde);
	va &= (1ull << emu.kind->va_bits) - 1;
	table = space->pdb;
	vid = space->pdb_vid;
	for (level = f->top; level > 2; level--) {
		e = read_entry(space, remember, level, false, vid, table, va);
		if (!(e.low & 6))
			return no_table(page, e.low, level);
		vid = ((e.low >> 1) & 3) == 1;
		table = address(e.low, f->pde_low) << 12;
	}
	e = read_entry(space, remember, 2, false, vid, table, va);
	if (e.low & 1)		/* A 2 MiB page. */
		return end_walk(page, e.low, 2 << 20, type);
	if (!(e.low & 6) && !(e.high & 6))
		return no_table(page, e.low, 2);
	if (e.low & 6) {
		table = ((e.low >> f->big_low) & ((1ull << (f->bits_of_address + 4)) - 1)) << 8;
		pte = read_entry(space, remember, PTE_LEVEL, false, ((e.low >> 1) & 3) == 1, table, va);
		if (pte.low & 1 || is_sparse(pte.low) || hides_small(pte.low))
			return end_walk(page, pte.low, 64 << 10, type);
	}
	if (e.high & 6) {
		table = address(e.high, f->pde_low) << 12;
		pte = read_entry(space, remember, PTE_LEVEL, true, ((e.high >> 1) & 3) == 1, table, va);
		return end_walk(page, pte.low, 4 << 10, type);
	}
	return EMU_FAULT(pte);
}

/* EMU_OK, EMU_WALK_SPARSE, or EMU_FAULT: of the tables as they are. */
u32 emu_walk(struct emu_space *space, u64 va, u32 type, struct emu_page *page)
{
	return walk(space, va, type, page, false);
}

/* The same as the GPU sees it. */
u32 emu_translate(struct emu_space *space, u64 va, u32 type, struct emu_page *page)
{
	return walk(space, va, type, page, true);
}

/* An entry of 4 KiB or 64 KiB of video memory, as the resource manager makes them. */
u64 emu_make_pte(u64 phys, bool read_only)
{
	return 1 | (phys >> 12) << format()->pde_low | (!read_only ? 0 : format()->pcf ? 0xc << 3 : 1 << 6);
}

void *emu_phys_ptr(struct emu_gpu *gpu, bool vid, u64 addr)
{
	if (!vid)
		return phys_to_virt(addr);
	return addr < EMU_VIDMEM ? gpu->vidmem + addr : NULL;
}

/* The memory of a page; NULL if it is not the GPU's own. */
void *emu_page_ptr(struct emu_gpu *gpu, const struct emu_page *page, u64 va)
{
	return page->aperture ? NULL : emu_phys_ptr(gpu, true, (page->frame & ~(page->size - 1)) | (va & (page->size - 1)));
}
