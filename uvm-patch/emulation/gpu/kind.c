// SPDX-License-Identifier: MIT
/* See kind.h: the generations that this branch of the driver knows. */
#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif
#include "kind.h"

const struct emu_kind *emu_find_kind(const char *name)
{
	static const struct emu_kind *const kinds[] = {
		&emu_turing, &emu_ampere, &emu_hopper,
#ifdef EMU_HAS_BLACKWELL
		&emu_blackwell,
#endif
	};
	unsigned int i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!strcmp(kinds[i]->name, name))
			return kinds[i];
	}
	return 0;
}
