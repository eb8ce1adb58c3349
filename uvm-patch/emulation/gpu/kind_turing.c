// SPDX-License-Identifier: MIT
/* Turing: see kind.h. */
#include "kind.h"
#include "clc46f.h"
#include "clc5b5.h"
#include "ctrl2080mc.h"
#include "hwref/turing/tu102/dev_fault.h"

const struct emu_kind emu_turing = {
	.name = "turing",
	.arch = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_TU100,
	.host_class = TURING_CHANNEL_GPFIFO_A,
	.ce_class = TURING_DMA_COPY_A,
	.va_bits = 49,
	EMU_NUMBERS,
};
