/* What a program can ask libmps_client_shim.so, which it finds with dlsym(RTLD_DEFAULT, ..) if it is preloaded. */
#ifndef MPS_SHIM_H
#define MPS_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A range of device memory that is kept. Whoever imports a copy of the descriptor with
 * cuMemImportFromShareableHandle, reserves the same addresses and maps it there has the memory, whatever became of the
 * process that made it. */
struct mps_shim_region {
    uint64_t base;      /* its address in this process */
    uint64_t size;      /* bytes */
    uint64_t offset;    /* bytes from the beginning of what the descriptor holds */
    int32_t device;     /* ordinal in this process, -1 for memory that came from another one */
    int32_t descriptor; /* it stays the library's: copy it, do not close it */
};

/* Writes the kept ranges to `regions`, `room` of them at most, and returns how many there are: 0 unless MPS_SHIM_KEEP, or
 * `[replay] keep` of the daemon's configuration where that says nothing, has memory kept. Ranges whose descriptor the
 * program has closed are not among them. Who maps one at its address in another process reserves whole multiples of 32 MiB
 * around it: the driver puts a smaller or an unaligned range elsewhere. */
size_t mps_shim_regions(struct mps_shim_region *regions, size_t room);

/* The last recovery of this process, with MPS_SHIM_REPLAY. Fields are added at the end alone. */
struct mps_shim_recovery {
    uint64_t count;           /* recoveries so far */
    uint64_t refused;         /* times that one was refused or failed, for the reason below */
    uint32_t error;           /* CUresult that began it */
    uint32_t lost_streams;    /* streams with work that is not known to have been done; 0: nothing was lost */
    uint64_t ranges_in_doubt; /* ranges that work lost by it may have written; mps_shim_in_doubt has them */
    uint64_t bytes_in_doubt;
    uint64_t modules_anew;    /* modules with variables that kernels may have written since they were last read, or that
                               * could not be read: they began anew with the values in their images */
    uint64_t objects;         /* streams, events, modules and the like that were made again */
    uint64_t total_us;        /* until the program's calls were let in again */
    /* wait, unmap, name, file, load, init, context, map, objects, amputate */
    /* the last one is done beside the program that goes on, and is 0 until it is done: see cut_off_us */
    uint64_t step_us[10];
    uint32_t descriptors;     /* of the dead copy of the driver, that were cut off by now */
    uint32_t mappings;
    uint32_t unmapped;        /* ranges that the dead copy has unmapped */
    uint32_t not_unmapped;    /* and has not */
    uint32_t tries;           /* times that a server was not ready */
    uint32_t was_prepared;    /* whether the copy's file was made in advance */
    char reason[160];
    uint32_t begun_by;        /* 0: a call of the program's found out; 1: the control daemon said so before any call;
                                 2: the same before any error of CUDA's, with nothing lost, and `error` is 0 */
    uint32_t part;            /* what the daemon says: 0 it does not know whose fault it was, or there is no daemon;
                               * 1 another process's; 2 likely this one's; 3 certainly this one's */
    uint64_t lost_work;       /* copies, sets and launches that are not known to have been done */
    uint32_t way;             /* 1 by the spare copy of the driver; 2 without, as none was ready;
                               * 3 without, as it failed. 0 where no spare is asked for */
    uint32_t behind;          /* how many things the spare copy had not, or not as they were by then */
    /* by the spare copy, what the steps map and objects are made of:
     * held, alive, memory, objects, stack, settings, variables, graphs, names, lead;
     * "held" is the wait for the copy's own thread, which may be in a call of the copy's */
    uint64_t switch_us[10];
    uint32_t calls;           /* of the spare copy's functions in them */
    uint32_t begun_again;     /* fresh copies of the driver that were hit themselves before they had everything */
    uint64_t at_us;           /* when the error was noticed: microseconds since 1970; total_us is from then on */
    uint64_t cut_off_us;      /* from then on until the dead copy was cut off, from when it holds nothing of the GPU any
                               * more; 0 before that. More than total_us where it was done beside the program */
};

/* Writes what is known, `size` bytes of it at most, and returns the number of recoveries. Whoever has room for `part` waits
 * for the daemon's word of it, for a second at most, where that had not come when the program went on. */
uint64_t mps_shim_last_recovery(struct mps_shim_recovery *recovery, size_t size);

/* Reads what modules have in their variables, if all work is done: until the next piece of work these outlive a fault.
 * Returns 1 if a neighbour's fault would go unnoticed until then, else 0. The library does the same by itself when the
 * program has given no work for 100 ms; a program that knows when it is at rest need not wait for that. It may be called
 * from any thread, and takes some microseconds where nothing has changed, else some milliseconds. */
int mps_shim_rest(void);

/* A range of memory of a device or of the host. */
struct mps_shim_range {
    uint64_t address;
    uint64_t bytes;
};

/* Writes the ranges that lost work may have written, `room` of them at most, and returns how many there are: all kept
 * ranges and all pinned or registered memory of the host, as they were then, without those that are registered as
 * MPS_STATE_CONSTANT. What a recovery adds stays over later ones until a call has had room for all of it; from then on
 * the next recovery begins anew, with what it has lost itself, if anything. What lost functions of the host
 * (cuLaunchHostFunc) would have written, and pageable memory that was to be copied to, is not among it. */
size_t mps_shim_in_doubt(struct mps_shim_range *ranges, size_t room);

/* State that outlives the process, for programs that know of their successors.
 *
 * The library must be preloaded with MPS_SHIM_NAME and MPS_SHIM_KEEP set, as `nvidia-cuda-mps-control run --name` does,
 * and CUDA be initialised. A name has one owner at a time, of one user. All functions return one of the codes below, may
 * be called from any thread, and wait for the daemon no longer than `timeout_ms` and some seconds. */
enum mps_state_code {
    MPS_STATE_OK = 0,
    MPS_STATE_NOTHING = 1,    /* nobody has left anything under this name; there is no such label */
    MPS_STATE_NOT_YET = 2,    /* the time is over; a standby that was not activated */
    MPS_STATE_OFF = 3,        /* a variable is not set, or CUDA is not initialised in this process */
    MPS_STATE_NO_DAEMON = 4,  /* no daemon answers */
    MPS_STATE_OLD_DAEMON = 5, /* it does not know commits */
    MPS_STATE_REFUSED = 6,    /* the daemon refuses */
    MPS_STATE_ADDRESS = 7,    /* an address of the predecessor's memory is in use: adopt before allocating */
    MPS_STATE_DRIVER = 8,     /* the driver refuses, or no context is current */
    MPS_STATE_INVALID = 9,    /* an argument is wrong, or a range is not in kept memory */
    MPS_STATE_NOT_KEPT = 10,  /* the vault does not have all of the memory, for want of room there */
    MPS_STATE_TAKEN = 11,     /* another living process has this name */
    MPS_STATE_LOST = 12,      /* this process is itself on the server that a fault has spoilt: end, be started again */
};

#define MPS_STATE_MAX_COMMIT_BYTES 4096
#define MPS_STATE_MAX_RANGES 64
#define MPS_STATE_MAX_LABEL_BYTES 64

/* For mps_state_register: the range is not written any more, so a successor need not doubt it. */
#define MPS_STATE_CONSTANT 1u
/* The range is copied on the device at each commit, to kept memory of its own: twice its size, since the copy of the
 * last commit stays whole while the next is made. The program does not write it while it commits. A label of at most
 * MPS_STATE_MAX_LABEL_BYTES - 1, and it counts as two ranges. */
#define MPS_STATE_SHADOWED 2u

/* What is known of the work that the predecessor had given to the GPU. */
enum mps_state_rest {
    MPS_STATE_REST_NONE = 0,    /* there was no predecessor */
    MPS_STATE_REST_PROCESS = 1, /* its process is reaped; a kernel that it had launched may still run on its server */
    MPS_STATE_REST_SERVER = 2,  /* its server is reaped too, or it had none: no channel of either is left */
};

/* A labelled range. */
struct mps_state_range {
    uint64_t address;
    uint64_t bytes;
    uint32_t flags;
    uint32_t is_in_doubt; /* the predecessor may have written it after its last commit */
};

/* What this process has taken over. Fields are added at the end alone. */
struct mps_state_recovery {
    uint64_t generation;      /* of the predecessor's last commit */
    uint64_t server;          /* the daemon's number of the server that it was on, 0 for none */
    uint64_t region_bytes;    /* of memory, mapped where it was */
    uint64_t wait_us;         /* for the predecessor's end and for the daemon */
    uint64_t map_us;          /* of mapping, what was left to do after that */
    uint32_t is_committed;    /* whether there was a commit at all */
    uint32_t data_bytes;      /* of the program's own in it */
    uint32_t predecessor;     /* its pid, as the daemon sees it */
    uint32_t rest;            /* enum mps_state_rest */
    uint32_t regions;
    uint32_t ranges;
    uint32_t ranges_in_doubt;
    uint32_t was_standby;     /* whether mps_state_wait_for_activation has taken it */
    uint64_t offered_us;      /* from the call until it was told that the predecessor ends, to map ahead; 0 if it did not */
    uint64_t mapped_us;       /* from the call until all was mapped */
};

/* Takes over what a predecessor has left, before anything is allocated: its memory is mapped at the same addresses, on
 * the GPUs that it was on, and its ranges are registered. A range that begins at a multiple of 512 bytes is then as if
 * allocated with cuMemAlloc, and freed with cuMemFree; memory outside of ranges is used for new allocations. It needs a
 * current context. Waits while the predecessor is about to end, and until its server, where that met a fault, is
 * reaped. MPS_STATE_NOTHING says that this program is the first. */
int mps_state_adopt(uint32_t timeout_ms);

/* The same for a standby, started with MPS_SHIM_STANDBY: waits while another process has the name, or nobody has it yet.
 * It may have a context and memory of its own by then. Of several standbys one is activated. While the
 * predecessor ends its memory is mapped already, in the context that is current in the calling thread; a call that ends
 * without it has unmapped it. */
int mps_state_wait_for_activation(uint32_t timeout_ms);

/* Names a range of kept memory; it is told to the vault with the next commit. */
int mps_state_register(const char *label, uint64_t address, uint64_t bytes, uint32_t flags);
int mps_state_unregister(const char *label);
int mps_state_find(const char *label, struct mps_state_range *range);

/* Writes a shadowed range back as it was at the last commit that the vault has, this program's own or the predecessor's,
 * and waits for that. MPS_STATE_NOTHING without such a commit. */
int mps_state_restore(const char *label);

/* Notes how far the program has come: a number and some bytes of its own, with all ranges. Waits for the current context
 * first, and returns when the vault has all memory and the commit. What the program writes to memory afterwards is seen
 * by its successor too: only ranges are noted, not what is in them, unless they are shadowed. Labels do not begin with
 * '~'. */
int mps_state_commit(uint64_t generation, const void *data, size_t size, uint32_t timeout_ms);

/* Writes `size` bytes of the structure at most, and `room` of the commit's bytes. */
int mps_state_last_recovery(struct mps_state_recovery *recovery, size_t size, void *data, size_t room);

/* Has the vault forget what is under the program's name, its own or what a predecessor left. exit(0) does so too. */
int mps_state_discard(uint32_t timeout_ms);

/* A code in words. */
const char *mps_state_text(int code);

#ifdef __cplusplus
}
#endif

#endif
