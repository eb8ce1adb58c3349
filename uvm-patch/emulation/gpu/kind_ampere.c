// SPDX-License-Identifier: MIT
/* Ampere: see kind.h. */
#include "kind.h"
#include "clc56f.h"
#include "clc6b5.h"
#include "ctrl2080mc.h"
#include "hwref/ampere/ga100/dev_fault.h"

const struct emu_kind emu_ampere = {
	.name = "ampere",
	.arch = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GA100,
	.host_class = AMPERE_CHANNEL_GPFIFO_A,
	.ce_class = AMPERE_DMA_COPY_A,
	.va_bits = 49,
	.faulted_in_register = true,
	EMU_NUMBERS,
};
