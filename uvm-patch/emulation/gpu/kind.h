/* SPDX-License-Identifier: MIT */
/*
 * What differs between the generations: one file each, kind_<generation>.c, with
 * the numbers of the driver's own headers for it. A wrong number of a unit or a
 * fault would be seen by some branches only: 535 and 550 tell a copy engine from
 * a host by the packet's engine, 570 and later by its client. The test program
 * compares a notice with the same numbers.
 */
#ifndef EMU_KIND_H
#define EMU_KIND_H

#include <linux/types.h>
#include "nvtypes.h"
#ifndef __KERNEL__
#include <stdbool.h>
#endif

struct emu_kind {
	const char *name;
	__u32 arch, host_class, ce_class;
	__u32 va_bits;			/* 49: the page tables of Pascal to Ada; 57: those of Hopper and Blackwell */
	bool faulted_in_register;	/* a faulted channel goes on by a register, not by a method of the host */
	/* Of a fault packet. */
	__u32 graphics, host, ce;				/* engines */
	__u32 client_gcc, client_t1, client_host, client_ce;
	__u32 pde, pte, read_only, atomic, limit;		/* faults */
};

#define EMU_NUMBERS								\
	.graphics = NV_PFAULT_MMU_ENG_ID_GRAPHICS,				\
	.host = NV_PFAULT_MMU_ENG_ID_HOST0,					\
	.ce = NV_PFAULT_MMU_ENG_ID_CE0,						\
	.client_gcc = NV_PFAULT_CLIENT_GPC_GCC,					\
	.client_t1 = NV_PFAULT_CLIENT_GPC_T1_0,					\
	.client_host = NV_PFAULT_CLIENT_HUB_HOST,				\
	.client_ce = NV_PFAULT_CLIENT_HUB_CE0,					\
	.pde = NV_PFAULT_FAULT_TYPE_PDE,					\
	.pte = NV_PFAULT_FAULT_TYPE_PTE,					\
	.read_only = NV_PFAULT_FAULT_TYPE_RO_VIOLATION,				\
	.atomic = NV_PFAULT_FAULT_TYPE_ATOMIC_VIOLATION,			\
	.limit = NV_PFAULT_FAULT_TYPE_VA_LIMIT_VIOLATION

extern const struct emu_kind emu_turing, emu_ampere, emu_hopper, emu_blackwell;

/* NULL: there is none of this name, or this branch of the driver does not know it. */
const struct emu_kind *emu_find_kind(const char *name);

#endif
