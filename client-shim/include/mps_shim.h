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

/* Writes the kept ranges to `regions`, `room` of them at most, and returns how many there are: 0 unless MPS_SHIM_KEEP is
 * set. Ranges whose descriptor the program has closed are not among them. */
size_t mps_shim_regions(struct mps_shim_region *regions, size_t room);

/* The last recovery of this process, with MPS_SHIM_REPLAY. Fields are added at the end alone. */
struct mps_shim_recovery {
    uint64_t count;           /* recoveries so far */
    uint64_t refused;         /* times that one was refused or failed, for the reason below */
    uint32_t error;           /* CUresult that began it */
    uint32_t lost_streams;    /* streams with work that is not known to have been done; 0: nothing was lost */
    uint64_t ranges_in_doubt; /* kept ranges that lost work may have written: all of them, or none */
    uint64_t bytes_in_doubt;
    uint64_t modules_anew;    /* modules that may have variables, which began anew with the values in their images */
    uint64_t objects;         /* streams, events, modules and the like that were made again */
    uint64_t total_us;
    /* wait, unmap, name, file, load, init, context, map, objects, amputate */
    uint64_t step_us[10];
    uint32_t descriptors;     /* of the dead copy of the driver, that were cut off */
    uint32_t mappings;
    uint32_t unmapped;        /* ranges that the dead copy has unmapped */
    uint32_t not_unmapped;    /* and has not */
    uint32_t tries;           /* times that a server was not ready */
    uint32_t was_prepared;    /* whether the copy's file was made in advance */
    char reason[160];
};

/* Writes what is known, `size` bytes of it at most, and returns the number of recoveries. */
uint64_t mps_shim_last_recovery(struct mps_shim_recovery *recovery, size_t size);

#ifdef __cplusplus
}
#endif

#endif
