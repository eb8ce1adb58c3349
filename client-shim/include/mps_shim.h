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

#ifdef __cplusplus
}
#endif

#endif
