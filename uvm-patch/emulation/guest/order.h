/* SPDX-License-Identifier: MIT */
/* What the laboratory asks of a client process, and its answer. */
#ifndef ORDER_H
#define ORDER_H

#include "lab.h"

enum verb {
	DO_ACCESS, DO_JOIN, DO_LEAVE, DO_RANGE, DO_MAP, DO_MANAGED, DO_SELF_TEST, DO_FREE, DO_HOST_MEMORY, DO_HAS_HMM,
	DO_CHANNELS, DO_COMMAND, DO_END,
};

struct order {
	enum verb verb;
	uint32_t gpu;		/* DO_ACCESS, DO_MAP: on which */
	struct emu_access_request access;
	uint64_t base, length;	/* DO_CHANNELS: subcontext, how often; DO_COMMAND: which */
	bool small, read_only;
	bool has_hmm;
	struct self_test_result self_test;
	int descriptor;		/* the client's number for its /dev/nvidia-uvm */
	int result;
};

/* The client process: does what libcuda does, answers once, then obeys. */
void client_run(int sock, uint32_t gr, uint32_t ce, bool sharing);

/* The same, and then it becomes a program, with its /dev/nvidia-uvm still open. */
void client_become(int sock, uint32_t gr, uint32_t ce, char *const argv[], int output);

#endif
