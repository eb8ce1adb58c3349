// SPDX-License-Identifier: MIT
/* Blackwell: see kind.h. */
#include "kind.h"
#include "clc96f.h"
#include "clc9b5.h"
#include "ctrl2080mc.h"
#include "hwref/blackwell/gb100/dev_fault.h"

const struct emu_kind emu_blackwell = {
	.name = "blackwell",
	.arch = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GB100,
	.host_class = BLACKWELL_CHANNEL_GPFIFO_A,
	.ce_class = BLACKWELL_DMA_COPY_A,
	.va_bits = 57,
	.faulted_in_register = true,
	EMU_NUMBERS,
};
