// SPDX-License-Identifier: MIT
/* A client process: what libcuda does with /dev/nvidia-uvm, and orders. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "uvm_linux_ioctl.h"
#include "order.h"
#include "uvm_mps_test.h"

static const NvProcessorUuid uuids[EMU_GPUS] = { { EMU_UUID(0) }, { EMU_UUID(1) } };

/* errno, or the driver's status negated. */
#define UVM(fd, cmd, params) (ioctl(fd, cmd, &(params)) ? errno : -(int)(params).rmStatus)

/* Takes a GPU, with an address space and two channels on it. */
static int join(int uvm, uint32_t gpu, uint32_t gr, uint32_t ce)
{
	UVM_REGISTER_GPU_PARAMS reg = { .gpu_uuid = uuids[gpu], .rmCtrlFd = -1 };
	UVM_REGISTER_GPU_VASPACE_PARAMS space = { .gpuUuid = uuids[gpu], .rmCtrlFd = -1 };
	/* The driver tells a process's channels apart by these two numbers, the emulator by the GPU. */
	UVM_REGISTER_CHANNEL_PARAMS channel = { .gpuUuid = uuids[gpu], .rmCtrlFd = -1, .hClient = gpu };
	int r;

	r = UVM(uvm, UVM_REGISTER_GPU, reg);
	if (r)
		return r;
	r = UVM(uvm, UVM_REGISTER_GPU_VASPACE, space);
	if (r)
		return r;
	channel.hChannel = gr;
	r = UVM(uvm, UVM_REGISTER_CHANNEL, channel);
	if (r)
		return r;
	channel.hChannel = ce;
	return UVM(uvm, UVM_REGISTER_CHANNEL, channel);
}

static int client_setup(int *uvm, int *mm, uint32_t gr, uint32_t ce, bool sharing)
{
	UVM_INITIALIZE_PARAMS init = { .flags = sharing ? UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE : 0 };
	UVM_MM_INITIALIZE_PARAMS mm_init = { 0 };
	int r;

	*uvm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	*mm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);
	if (*uvm < 0 || *mm < 0)
		return errno;
	r = UVM(*uvm, UVM_INITIALIZE, init);
	if (r)
		return r;
	mm_init.uvmFd = *uvm;
	r = UVM(*mm, UVM_MM_INITIALIZE, mm_init);
	if (r && !sharing)	/* which has no process of its own: nothing to do there */
		return r;
	return join(*uvm, 0, gr, ce);
}

static void leave(int uvm, uint32_t gpu, uint32_t gr, uint32_t ce)
{
	/* Of no GPU: up to 580 the driver does not look at the field, and since 590 there is none. */
	UVM_UNREGISTER_CHANNEL_PARAMS channel = { .hClient = gpu };
	UVM_UNREGISTER_GPU_VASPACE_PARAMS space = { .gpuUuid = uuids[gpu] };
	UVM_UNREGISTER_GPU_PARAMS reg = { .gpu_uuid = uuids[gpu] };

	channel.hChannel = gr;
	(void)UVM(uvm, UVM_UNREGISTER_CHANNEL, channel);
	channel.hChannel = ce;
	(void)UVM(uvm, UVM_UNREGISTER_CHANNEL, channel);
	(void)UVM(uvm, UVM_UNREGISTER_GPU_VASPACE, space);
	(void)UVM(uvm, UVM_UNREGISTER_GPU, reg);
}

static int map(int uvm, const struct order *o)
{
	UVM_MAP_EXTERNAL_ALLOCATION_PARAMS p;

	memset(&p, 0, sizeof(p));
	p.base = o->base;
	p.length = o->length;
	p.gpuAttributesCount = 1;
	p.perGpuAttributes[0].gpuUuid = uuids[o->gpu];
	p.perGpuAttributes[0].gpuMappingType = o->read_only ? 3 : 0;	/* UvmGpuMappingTypeReadOnly */
	p.rmCtrlFd = -1;
	p.hMemory = EMU_MEMORY((uint32_t)((o->length + 0xffff) >> 16), o->small);
	return UVM(uvm, UVM_MAP_EXTERNAL_ALLOCATION, p);
}

/* Managed memory is mapped with its address as the offset. */
static int managed(int uvm, const struct order *o)
{
	void *at = mmap((void *)o->base, o->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, uvm,
			(off_t)o->base);

	if (at == MAP_FAILED)
		return errno;
	return o->read_only && mprotect(at, o->length, PROT_READ) ? errno : 0;
}

static int self_test(int uvm, struct order *o)
{
	UVM_TEST_MPS_SELF_PARAMS p = { 0 };
	int r = UVM(uvm, UVM_TEST_MPS_SELF, p);

	o->self_test = (struct self_test_result) { p.checks, p.failed, p.gpus };
	return r;
}

/* At an address, or where there is room. */
static int host_memory(const struct order *o)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | (o->base ? MAP_FIXED_NOREPLACE : 0);
	void *at = mmap((void *)o->base, o->length, PROT_READ | PROT_WRITE, flags, -1, 0);

	if (at == MAP_FAILED)
		return errno;
	return o->read_only && mprotect(at, o->length, PROT_READ) ? errno : 0;
}

static bool has_hmm(int uvm)
{
	UVM_PAGEABLE_MEM_ACCESS_PARAMS p = { 0 };

	return UVM(uvm, UVM_PAGEABLE_MEM_ACCESS, p) == 0 && p.pageableMemAccess;
}

static int channels(int uvm, uint32_t gr, uint32_t subcontext, uint64_t count)
{
	int r = 0;

	if (subcontext) {
		UVM_REGISTER_CHANNEL_PARAMS channel = { .gpuUuid = uuids[0], .rmCtrlFd = -1 };
		UVM_UNREGISTER_CHANNEL_PARAMS old = { 0 };

		channel.hChannel = EMU_CHANNEL(gr >> 16, 0, subcontext);
		old.hChannel = gr;
		r = UVM(uvm, UVM_REGISTER_CHANNEL, channel);
		if (r == 0)
			r = UVM(uvm, UVM_UNREGISTER_CHANNEL, old);
		gr = channel.hChannel;
	}
	while (r == 0 && count--) {
		UVM_UNREGISTER_CHANNEL_PARAMS old = { 0 };
		UVM_REGISTER_CHANNEL_PARAMS channel = { .gpuUuid = uuids[0], .rmCtrlFd = -1, .hChannel = gr };

		old.hChannel = gr;
		r = UVM(uvm, UVM_UNREGISTER_CHANNEL, old);
		if (r == 0)
			r = UVM(uvm, UVM_REGISTER_CHANNEL, channel);
	}
	return r;
}

void client_run(int sock, uint32_t gr, uint32_t ce, bool sharing)
{
	const int devices[EMU_GPUS] = { open("/dev/emu-gpu0", O_RDWR), open("/dev/emu-gpu1", O_RDWR) };
	bool both = false;
	int uvm, mm;
	struct order o = { .result = client_setup(&uvm, &mm, gr, ce, sharing) };

	o.descriptor = uvm;
	if (write(sock, &o, sizeof(o)) != sizeof(o))
		_exit(1);
	while (read(sock, &o, sizeof(o)) == sizeof(o)) {
		UVM_CREATE_EXTERNAL_RANGE_PARAMS range = { .base = o.base, .length = o.length };
		UVM_FREE_PARAMS gone = { .base = o.base };

#ifdef EMU_FREE_HAS_LENGTH
		gone.length = o.length;
#endif

		switch (o.verb) {
		case DO_ACCESS:
			o.result = ioctl(devices[o.gpu], EMU_IOC_ACCESS, &o.access) ? errno : 0;
			break;
		case DO_JOIN:
			o.result = join(uvm, 1, gr, ce);
			both = !o.result;
			break;
		case DO_LEAVE:
			leave(uvm, 1, gr, ce);
			both = false;
			o.result = 0;
			break;
		case DO_RANGE:
			o.result = UVM(uvm, UVM_CREATE_EXTERNAL_RANGE, range);
			break;
		case DO_MAP:
			o.result = map(uvm, &o);
			break;
		case DO_MANAGED:
			o.result = managed(uvm, &o);
			break;
		case DO_SELF_TEST:
			o.result = self_test(uvm, &o);
			break;
		case DO_FREE:
			o.result = UVM(uvm, UVM_FREE, gone);
			break;
		case DO_HOST_MEMORY:
			o.result = host_memory(&o);
			break;
		case DO_HAS_HMM:
			o.has_hmm = has_hmm(uvm);
			break;
		case DO_CHANNELS:
			o.result = channels(uvm, gr, (uint32_t)o.base, o.length);
			break;
		case DO_COMMAND:
			o.result = ioctl(uvm, (unsigned long)o.length, NULL) ? errno : 0;
			break;
		case DO_END:
			if (both)
				leave(uvm, 1, gr, ce);
			leave(uvm, 0, gr, ce);
			_exit(0);
		}
		if (write(sock, &o, sizeof(o)) != sizeof(o))
			break;
	}
	_exit(0);
}

void client_become(int sock, uint32_t gr, uint32_t ce, char *const argv[], int output)
{
	struct order o = { 0 };
	int uvm, mm;

	/* The driver's mode for several processes: an address space of no process outlives its exec. */
	o.result = client_setup(&uvm, &mm, gr, ce, true);
	o.descriptor = uvm;
	if (write(sock, &o, sizeof(o)) != sizeof(o) || o.result)
		_exit(1);
	fcntl(uvm, F_SETFD, 0);
	dup2(sock, 0);
	dup2(output, 1);
	dup2(output, 2);
	execv(argv[0], argv);
	_exit(127);
}

bool churn(unsigned int count)
{
	bool done = true;

	while (done && count--) {
		UVM_INITIALIZE_PARAMS init = { 0 };
		int uvm = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC);

		done = uvm >= 0 && UVM(uvm, UVM_INITIALIZE, init) == 0;
		close(uvm);
	}
	return done;
}
