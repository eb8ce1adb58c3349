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

/* One mapping of ours in a client's page tree. */
struct uvm_mps_sink_map {
	struct list_head node;
	uvm_gpu_va_space_t *gpu_va_space;
	uvm_page_table_range_vec_t vec;
	unsigned int hits;
};

/* The private page of one client on one GPU. Sharing it would be a covert channel. */
struct uvm_mps_page {
	struct list_head node;
	uvm_gpu_va_space_t *gpu_va_space;
	uvm_mem_t *mem;
};

struct uvm_mps_client {
	struct list_head node;
	uvm_va_space_t *va_space;
	u64 id;
	struct pid *pid;
	struct list_head channels;	/* uvm_mps.lock */
	unsigned int holds;		/* uvm_mps.lock; descriptors kept after death */
	struct uvm_mps_meter meter;	/* uvm_mps.lock */

	struct mutex lock;
	struct list_head sinks;
	struct list_head pages;
	unsigned int num_sinks;

	atomic_t retries;
	unsigned long state;		/* bits below */
	struct work_struct condemn_work;
	struct delayed_work kill_work;
};

enum { CLIENT_CONDEMNED, CLIENT_REFUSING, CLIENT_KILLED };

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
bool uvm_mps_blame_grave(struct uvm_mps_record *rec, struct pid **pid);
size_t uvm_mps_state_count(void);
size_t uvm_mps_state_fill(struct uvm_mps_record *recs, struct pid **pids, size_t max);
int uvm_mps_claim(const struct uvm_mps_claim *claim);

/* uvm_mps_hold.c */
int uvm_mps_release(u64 va_space_id);

/* uvm_mps_sink.c */
struct uvm_mps_sink_map *uvm_mps_sink_at(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, u64 address);
bool uvm_mps_sink_overlaps(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space, u64 start, u64 end);
NV_STATUS uvm_mps_sink_insert(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			      u64 address, const struct uvm_mps_decision *decision);
NV_STATUS uvm_mps_sink_remap(struct uvm_mps_client *client, uvm_gpu_va_space_t *gpu_va_space,
			     uvm_ext_gpu_map_t *map, const struct uvm_mps_decision *decision);

/* uvm_mps_notice.c */
int uvm_mps_notice_init(void);
void uvm_mps_notice_exit(void);
bool uvm_mps_feeding(void);
void uvm_mps_record_init(struct uvm_mps_record *rec, u32 type, const struct uvm_mps_client *client, uvm_gpu_t *gpu);
void uvm_mps_record_push(struct uvm_mps_record *rec, struct pid *pid);

#endif
