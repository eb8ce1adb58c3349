// SPDX-License-Identifier: MIT
/* Hopper: see kind.h. */
#include "kind.h"
#include "clc86f.h"
#include "clc8b5.h"
#include "ctrl2080mc.h"
#include "hwref/hopper/gh100/dev_fault.h"

const struct emu_kind emu_hopper = {
	.name = "hopper",
	.arch = NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GH100,
	.host_class = HOPPER_CHANNEL_GPFIFO_A,
	.ce_class = HOPPER_DMA_COPY_A,
	.va_bits = 57,
	.faulted_in_register = true,
	EMU_NUMBERS,
};
