/* SPDX-License-Identifier: MIT */
/*
 * The side tables: no structure of the driver is changed.
 *
 * Locks, outermost first:
 *   uvm_mps_client.lock   mutex; sinks of one client. Held over GPU work.
 *   (the driver's range-tree, page-tree and push locks)
 *   uvm_mps.lock          spinlock; the list of clients, channels, holds.
 *   ring lock             spinlock; the notices.
 * A client entry lives as long as its VA space, so a caller that holds the VA
 * space lock may use it after dropping uvm_mps.lock.
 */
#ifndef UVM_MPS_INTERNAL_H
#define UVM_MPS_INTERNAL_H

#include <linux/pid.h>
#include <linux/workqueue.h>
#include "uvm_mps_driver.h"
#include "uvm_mps_hooks.h"
#include "uvm_mps_policy.h"

/* Same order as struct uvm_mps_stats. */
enum uvm_mps_stat {
	STAT_RECORDS, STAT_LOST, STAT_SUPPRESSED, STAT_FAULTS, STAT_ISOLATED, STAT_PASSED,
	STAT_SINKS, STAT_KILLED, STAT_ZOMBIES, STAT_HELD, STAT_REFUSED, STAT_CLIENTS,
	STAT_COUNT,
};

struct uvm_mps_channel {
	struct list_head node;
	const uvm_user_channel_t *key;
	struct uvm_mps_record rec;	/* as announced */
	u32 first_ve_id;		/* of its MIG instance */
	bool shared_tsg;		/* has a subcontext table, so may be shared */
};

/* One mapping of ours in a client's page tree, or one of the client's that was rewritten. */
struct uvm_mps_sink_map {
	struct list_head node;
	uvm_gpu_va_space_t *gpu_va_space;
	const uvm_ext_gpu_map_t *map;		/* the client's, only compared: it may be gone; NULL for our own */
	uvm_page_table_range_vec_t vec;		/* our own */
	unsigned int hits;
};

/* All that is free of a client's address space on one GPU, as one sink. */
struct uvm_mps_extent {
	u64 start, end;		/* inclusive */
};

struct uvm_mps_whole {
	struct list_head node;
	uvm_gpu_va_space_t *gpu_va_space;
	unsigned int hits, count;
	struct uvm_mps_extent *extents;
};

/* Where a sink may grow: in a hole of an external range, whose range-tree lock is held, or where no range is. */
struct uvm_mps_room {
	uvm_mps_external_t *external;
	u64 start, end;		/* inclusive */
};

/* The private page of one client on one GPU. Sharing it would be a covert channel. */
struct uvm_mps_page {
	struct list_head node;
	uvm_gpu_va_space_t *gpu_va_space;
	uvm_mem_t *mem;
};

/* A storm that is survived does not use up the share of the fault that ends everybody. */
enum { METER_SURVIVED, METER_PASSED, METER_COUNT };

struct uvm_mps_client {
	struct list_head node;
	uvm_va_space_t *va_space;
	u64 id;
	struct pid *pid;
	struct list_head channels;	/* uvm_mps.lock */
	unsigned int holds;		/* uvm_mps.lock; descriptors kept after death */
	struct uvm_mps_meter meters[METER_COUNT];	/* uvm_mps.lock */

	struct mutex lock;
	struct list_head sinks;
	struct list_head pages;
	struct list_head wholes;
	unsigned int num_sinks;		/* so far */

	atomic_t retries;
	unsigned long state;		/* bits below */
	struct delayed_work kill_work;
};

enum { CLIENT_CONDEMNED, CLIENT_KILLED };

struct uvm_mps_state {
	spinlock_t lock;
	struct list_head clients;
	struct list_head holds;
	struct workqueue_struct *queue;
	u64 next_id;
	struct uvm_mps_policy policy;	/* fields read with READ_ONCE */
	struct uvm_mps_meter stray_meter;	/* faults without a client */
	atomic64_t stats[STAT_COUNT];
};

extern struct uvm_mps_state uvm_mps;
extern unsigned int uvm_mps_untested;	/* parameter: enum uvm_mps_untried */

static inline void uvm_mps_count(enum uvm_mps_stat stat)
{
	atomic64_inc(&uvm_mps.stats[stat]);
}

static inline u32 uvm_mps_mode(void)
{
	return READ_ONCE(uvm_mps.policy.mode);
}

/* uvm_mps_client.c */
struct uvm_mps_client *uvm_mps_client_find(uvm_va_space_t *va_space);
void uvm_mps_condemn(struct uvm_mps_client *client);
u8 uvm_mps_untried(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space);
void uvm_mps_blame_grave(struct uvm_mps_record *rec, struct pid **pid);
size_t uvm_mps_state_count(void);
size_t uvm_mps_state_fill(struct uvm_mps_record *recs, struct pid **pids, size_t max);
int uvm_mps_claim(const struct uvm_mps_claim *claim);

/* uvm_mps_hold.c */
int uvm_mps_release(u64 va_space_id);

/* uvm_mps_fault.c */
void uvm_mps_tell(struct uvm_mps_client *client, struct uvm_mps_record *rec, struct pid *pid);

/* uvm_mps_sink.c */
struct uvm_mps_sink_map *uvm_mps_sink_at(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, u64 address);
struct uvm_mps_sink_map *uvm_mps_sink_of_map(struct uvm_mps_client *client, const uvm_ext_gpu_map_t *map);
bool uvm_mps_obstacle(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, const struct uvm_mps_room *room,
		      u64 *start, u64 *end);
NV_STATUS uvm_mps_sink_insert(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			      const struct uvm_mps_room *room, u64 address, const struct uvm_mps_decision *decision);
NV_STATUS uvm_mps_sink_remap(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			     uvm_ext_gpu_map_t *map, const struct uvm_mps_decision *decision);

/* uvm_mps_whole.c */
struct uvm_mps_whole *uvm_mps_whole_of(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space);
const struct uvm_mps_extent *uvm_mps_whole_in(const struct uvm_mps_whole *whole, u64 start, u64 end);
void uvm_mps_whole_hit(struct uvm_mps_client *client, struct uvm_mps_whole *whole);
NV_STATUS uvm_mps_whole_insert(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space);
void uvm_mps_whole_fini(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space);

/* uvm_mps_notice.c */
int uvm_mps_notice_init(void);
void uvm_mps_notice_exit(void);
bool uvm_mps_feeding(void);
void uvm_mps_record_init(struct uvm_mps_record *rec, u32 type, const struct uvm_mps_client *client, uvm_gpu_t *gpu);
void uvm_mps_record_push(struct uvm_mps_record *rec, struct pid *pid);

#endif
