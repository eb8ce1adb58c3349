/* SPDX-License-Identifier: MIT */
/*
 * The test program's laboratory: client processes that do what libcuda does
 * with /dev/nvidia-uvm and then obey, and a reader of the notices.
 */
#ifndef LAB_H
#define LAB_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include "emu_abi.h"
#include "uvm_mps.h"

extern bool patched;		/* which module is loaded */
extern unsigned long checks, failures;

#define CHECK(cond) do {							\
	checks++;								\
	if (!(cond)) {								\
		failures++;							\
		printf("  %s:%d: %s\n", __FILE__, __LINE__, #cond);		\
	}									\
} while (0)

struct client {
	pid_t pid;
	int sock;
	uint32_t gr, ce;	/* handles of its channels */
};

/* A client with one graphics and one copy-engine channel. */
struct client client_start(uint32_t tsg, uint32_t ve);
/* Ends by unregistering everything, by closing, or by a signal. */
enum ending { ENDS_CLEANLY, ENDS_BY_EXIT, ENDS_BY_SIGNAL };
void client_end(struct client *c, enum ending how);
bool client_wait(struct client *c, unsigned int ms);	/* false: still alive */

struct emu_access_request client_access(struct client *c, bool ce, uint32_t type, uint64_t va,
					uint32_t count, uint64_t stride);
struct emu_access_request client_fault(struct client *c, uint32_t force_type, uint64_t va);
void client_program(struct client *c, uint64_t va, uint32_t ms);

/* Both return the errno, or the driver's status as a negative number. */
int client_range(struct client *c, uint64_t base, uint64_t length);
int client_map(struct client *c, uint64_t base, uint64_t length, bool small, bool read_only);

uint32_t client_walk(struct client *c, uint64_t va);
struct emu_status gpu_status(void);
void gpu_revive(void);
bool gpu_wait_idle(unsigned int ms);	/* no client, no memory in use */

/* Notices. All of these do nothing on the stock module. */
void notices_open(void);
struct uvm_mps_record *notices_read(size_t *count);	/* everything since the last call */
unsigned int notices_count(const struct uvm_mps_record *r, size_t n, uint32_t type, pid_t pid);
const struct uvm_mps_record *notices_find(const struct uvm_mps_record *r, size_t n, uint32_t type);
bool notices_wait(uint32_t type, pid_t pid, unsigned int ms, struct uvm_mps_record *out);
void policy(uint32_t mode, uint32_t kill_ms, uint32_t hold_ms, uint32_t max_sinks, uint32_t flags);
struct uvm_mps_stats mps_stats(void);
int mps_fd(void);
int mps_open(int flags);

uint64_t now_ms(void);

#endif
