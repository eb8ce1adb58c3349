"""The words of tools/figures: what each suite, figure and value is, for somebody who has not seen the suites.

A figure that is missing here is told in the words of its report.
"""

# Suite: heading and what it is. The page has them in this order.
SUITES = {
    "gpu": (
        "Beside NVIDIA's daemon",
        "`integration/gpu/run`: what a program, an operator and an idle machine notice of the daemon, ours and the "
        "vendor's in turns in the same run.",
    ),
    "faults": (
        "Faults",
        "`integration/gpu/run --suite faults`: eight clients with short kernels, a culprit, and a newcomer, a "
        "program that starts when the culprit has launched. `oob`, an access out of bounds, is a memory fault; "
        "`trap`, `misaligned` and `assert` are exceptions of a kernel. At an `oob` one of the eight is stopped "
        "until the newcomer has its answer.",
    ),
    "gpus": (
        "Two GPUs",
        "`integration/gpu/run --suite gpus`: a culprit and a victim on the first GPU, a healthy client on the "
        "second, with and without one more that uses both. Numbers of 700 are errors of CUDA; `none` is no error.",
    ),
    "state": (
        "State",
        "`integration/gpu/run --suite state`: a program with memory in the vault comes to harm, and its successor "
        "adopts the memory and compares every byte.",
    ),
    "replay": (
        "Recovery",
        "`integration/gpu/run --suite replay`: a program under the preload library goes on in place after faults, "
        "in the same process, and compares every byte.",
    ),
    "checker": (
        "Random programs",
        "`integration/gpu/run --suite checker`: random CUDA programs under the preload library, undisturbed and with faults; "
        "no value that a call has returned as good may be wrong.",
    ),
    "spare": (
        "Recovery by a spare copy",
        "`integration/gpu/run --suite spare`: programs under the preload library go on after a neighbour's faults, with a "
        "second copy of the driver that stands by in them, or with one that is made then (`cold`), and compare every "
        "byte. Times are from the error's being noticed until the program's calls go on. Of `one_fault` a picture is drawn "
        "beside the report.",
    ),
    "eager": (
        "A trap beside programs with spare copies",
        "`integration/gpu/run --suite eager`: from a culprit's launch of a trap to the end of each bystander's next good "
        "kernel, where the daemon ends the spoilt server at once (`when-spared`), where it does not (`never`), and with "
        "the vendor's daemon, under which the bystanders end and are started again.",
    ),
    "programs": (
        "Other people's programs",
        "`integration/gpu/run --suite programs`: what programs under the preload library see of faults of their own, "
        "without MPS, and beside a culprit under our daemon, while idle and while at work: nothing (`unaware`), one "
        "error in each thread (`told once`), or an error for good (`refused`, with the library's reason). Each "
        "compares all its values with its own undisturbed run. The report has the whole table, and what each word "
        "means is in the header of `integration/gpu/programs.py`.",
    ),
    "samples": (
        "NVIDIA's cuda-samples",
        "`integration/gpu/run --suite samples`: each sample that CUDA alone compiles, with the preload library and without "
        "it, when nothing goes wrong.",
    ),
    "pytorch": (
        "PyTorch's own tests",
        "`integration/gpu/run --suite pytorch`: each test of PyTorch's `test_cuda.py`, with the preload library and without "
        "it, when nothing goes wrong.",
    ),
    "replicas": (
        "Replicas of a model server",
        "`integration/gpu/run --suite replicas`: four servers of a language model on one GPU, asked without end; one makes "
        "a fault by a bad request, and who has ended is started again. Each answer is compared with those before.",
    ),
    "cost": (
        "Price of being ready",
        "`integration/gpu/run --suite cost`: what a call costs that programs make all the time, without MPS: the least "
        "time of one in 12 batches of 512, and its instructions in the process, in rounds with each way in turn. "
        "*More* is against the run without the library in the same round. `state` is `MPS_SHIM_KEEP=state`, "
        "`in-place` that with `MPS_SHIM_REPLAY=in-place`, `in-place before` the same with an earlier library.",
    ),
    "door": (
        "Pipe directory",
        "`integration/gpu/run --suite door`: real servers and clients of three users, in pipe directories that were"
        " found with several modes.",
    ),
    "host": (
        "Without a GPU",
        "`cargo run --release -p integration --bin bench`, with simulated servers, and `integration/nodes/run`. Nothing of it "
        "is a goal: what else the machine did is in it.",
    ),
}

# Suite and figure: what it is.
FIGURES = {
    "gpu": {
        "first_allocation": "From a program's start to its first GPU memory, with a server up and idle.",
        "first_allocation_cold": "From a program's start to its first GPU memory, when the server has to start.",
        "herd": "48 programs started at once: until the last of them has GPU memory.",
        "throughput": "Kernels of 0.2 ms that a program runs one after the other.",
        "commands_a_second": "Commands in one session, daemon and command line on one core.",
        "idle": "Memory and wake-ups of the daemon and of its holder with one idle server.",
        "killed_again_and_again": "`kill -9` of the daemon at random moments, while clients come and go.",
        "upgraded": "SIGUSR1: the daemon leaves everything to its successor.",
    },
    "faults": {
        "idle_start": (
            "From a program's start to its first GPU memory on an idle server: what to compare newcomers with."
        ),
        "faults_oob": "Memory faults, one after the other: who is named, and when a newcomer is served.",
        "faults_with_standby": "The same with a server that stands by.",
        "floor": "A newcomer that does not use MPS at all, started in the same moment: what the driver alone takes.",
        "faults_trap": "Traps: who is named, and when a newcomer is served.",
        "faults_misaligned": "Misaligned accesses: who is named, and when a newcomer is served.",
        "faults_assert": "Failed assertions, which harm their own client alone.",
        "told_oob": "Memory faults where clients have the preload library and `MPS_SHIM_FAULTS=tell`.",
        "told_trap": "Traps where clients have the preload library and `MPS_SHIM_FAULTS=tell`.",
        "told_misaligned": "Misaligned accesses where clients have the preload library and `MPS_SHIM_FAULTS=tell`.",
        "killed_beside_eight": (
            "`kill -9` of a client in a kernel of 0.7 s, again and again beside the same eight on one server: with "
            "all its copies held, and with each given back after 1.5 s."
        ),
        "killed_in_kernel": (
            "`kill -9` of a client in a kernel of 0.7 s beside eight others, mostly alone on its server."
        ),
        "out_of_memory": "A client in a kernel is killed by the kernel for want of memory, beside eight others.",
        "killed_in_endless_kernel": "`kill -9` of a client in a kernel that never ends, beside two others.",
        "server_killed": "`kill -9` of the server.",
        "other_domain": "A client of another user, while a fault ends eight of the first user.",
        "stuck_victim": "A trap while one of three victims is stopped, with which NVIDIA's server hangs.",
        "quarantine": "The same program makes fault after fault: from the fourth on it is alone.",
        "standby_cost": "What a server that stands by costs.",
        "domains_cost": "Eight clients with kernels of 0.2 ms in one, two, four and eight domains of one GPU.",
        "many_faults": "Memory faults in a row in one daemon, and what it holds after every 25.",
    },
    "gpus": {
        "fault_on_one": "A fault on the first GPU: who is hit, and where newcomers go.",
        "by_gpu": "With `by_gpu`, a server for each GPU: a memory fault on the first.",
    },
    "state": {
        "relaunch after kill": "After `kill -9` the program is started again and adopts its memory.",
        "relaunch after oob": (
            "After a memory fault of its own `run` starts the program again, which adopts its memory."
        ),
        "relaunch after trap": "After a trap of its own `run` starts the program again, which adopts its memory.",
        "relaunch after neighbours oob": "The same after a neighbour's memory fault.",
        "relaunch after neighbours trap": "The same after a neighbour's trap.",
        "standby after kill": "After `kill -9` a successor that was initialised and waiting adopts the memory.",
        "standby after oob": "The same after a memory fault of the program's own.",
        "standby after trap": "The same after a trap of the program's own.",
        "memory_cost": "GPU memory in use for a program of 1 GiB, with and without the vault.",
        "remap": "How long memory takes that comes out of the vault, by the size of its pieces.",
    },
    "checker": {
        "cases": "The programs that are kept, beside a neighbour that does wrong.",
        "own": "Random programs with faults of their own, without MPS.",
        "others": "Random programs beside a neighbour that does wrong.",
        "simulated": "Random programs on the simulated driver, with the machine's cores alone.",
    },
    "programs": {
        "culprits": "Faults of each program's own, one after the other in one process, without MPS.",
        "bystanders": "The programs together as clients of one daemon, beside a culprit.",
        "profiler": "PyTorch's profiler in programs that nothing happens to, without the library and in each of its ways.",
    },
    "replicas": {
        "replicas_oob": "A memory fault of one of four replicas.",
        "replicas_trap": "A trap of one of four replicas.",
    },
    "replay": {
        "own faults, base": "Faults of the program's own, without MPS.",
        "own faults, pinned": "The same for a program with pinned memory.",
        "own faults, library": "The same for a program with a CUDA library.",
        "own faults, graph": "The same for a program with a graph.",
        "own faults, variable": "The same for a program with variables in its modules.",
        "own faults, all": "The same for a program with all of that, again and again in one process.",
        "others faults, base": "Faults of a neighbour under MPS.",
        "others faults, graph": "The same for a program with a graph.",
        "others faults, busy": "The same for a program with all belongings, and with work on its way.",
        "others faults, all": "The same for an idle program with all belongings, again and again in one process.",
        "others faults, timed": "Faults of a neighbour under MPS, as the daemon is by default (`burial_hold`).",
        "others faults, timed, not held back": "The same where the daemon holds nothing back.",
        "others faults, timed, with a standby": "The same where another server stands by.",
        "others faults, timed, with a standby, not held back": "The same, and nothing is held back.",
        "pytorch": "PyTorch with a captured graph and pinned memory beside a culprit.",
    },
    "cost": {
        "driver": "Functions of the driver, called as cudart calls them.",
        "runtime": "The same through cudart.",
    },
    "door": {
        "users missing": "Clients of three users, each with a server of its own; the directory was not there.",
        "users vendor's 0777": "The same in a directory as the vendor's daemon leaves it.",
        "users Kubernetes' 0755": "The same in a directory as NVIDIA's plugin for Kubernetes makes it.",
        "users sticky 1777": "The same in a directory as `/tmp` is.",
        "multi_user": "`-M`: clients of three users at once on one server.",
        "shared": "Two other users try to make, replace and remove names in the directory, and cannot.",
        "vendor": "The vendor's daemon in a directory of mode 0755: its servers make no files there.",
        "shared_by": "Clients that share a limit of memory in two parts (`shared_by`), each taking pieces of 64 MiB until it gets no more.",
    },
}

# Suite and figure: the unit of its values where they have no name of their own.
UNITS = {
    ("gpu", "first_allocation"): "ms",
    ("gpu", "first_allocation_cold"): "ms",
    ("gpu", "herd"): "ms",
    ("gpu", "throughput"): "1/s",
    ("gpu", "commands_a_second"): "1/s",
    ("faults", "idle_start"): "ms",
}

# Whose a figure is that does not tell, where it is not ours.
SIDES = {("door", "vendor"): "theirs"}

# Suite, or none for all of them, and key of a value: plain words and the unit.
LABELS = {
    "": {
        "ms": ("time", "ms"),
        "code": ("error", ""),
        "codes": ("errors", ""),
        "rss_mib": ("resident memory", "MiB"),
        "gpu_mib": ("GPU memory in use", "MiB"),
        "descriptors": ("open descriptors", ""),
    },
    "gpu": {
        "wake_ups": ("wake-ups", ""),
        "seconds": ("watched for", "s"),
        "init_ms": ("`cuInit`'s part", "ms"),
        "context_ms": ("the context's part", "ms"),
        "half_ms": ("what half of them waited", "ms"),
    },
    "faults": {
        "clients lost a fault": ("clients lost at each fault, of 8", ""),
        "else": ("other ends of newcomers", ""),
        "newcomer": ("newcomer, start to memory", ""),
        "newcomer, exec to memory": ("newcomer, start to memory", ""),
        "exec to memory without MPS": ("start to memory without MPS", ""),
        "held": ("copies held", ""),
        "given back": ("copies given back", ""),
        "told as": ("what the daemon told", ""),
        "before": ("daemon before", ""),
        "after": ("daemon after", ""),
        "without any verdict": ("faults without a verdict", ""),
        "operator told, domain swapped": ("operator told, newcomers elsewhere", ""),
        "memory": ("at each look", ""),
        "used": ("GPU memory in use", ""),
        "of processes": ("GPU memory of living processes", ""),
        "told": ("held by the dead by the daemon's word, and how many they are", ""),
        "every 25": ("after every 25", ""),
        "1": ("1 domain", ""),
        "2": ("2 domains", ""),
        "4": ("4 domains", ""),
        "8": ("8 domains", ""),
        "steps a second": ("kernels", "1/s"),
    },
    "gpus": {
        "oob": ("memory fault", ""),
        "oob, beside one on both": ("memory fault beside a program on both GPUs", ""),
        "trap, beside one on both": ("trap beside a program on both GPUs", ""),
        "both": ("the one on both", ""),
        "0": ("first GPU:", ""),
        "1": ("second GPU:", ""),
        "known to be on": ("where our daemon knows them", ""),
        "get_device_client_list names it on": ("where their server lists them (GPU: context)", ""),
        "the old server has gone when the healthy one left": ("the old server goes with its last client", ""),
        "newcomers at once": ("newcomers at once, on either GPU", ""),
        "newcomers when the victims have left": ("newcomers when the victims have left", ""),
        "status meanwhile": ("`get_server_status` meanwhile", ""),
    },
    "state": {
        "fault to ready again": ("fault to the successor's context", ""),
        "context": ("of that, the context", ""),
        "wait for the predecessor's rest": ("then, the wait until the predecessor is gone", ""),
        "fault to told of the end": ("fault to the word that the predecessor ends", ""),
        "fault to all mapped": ("fault to all memory mapped", ""),
        "fault to the proof of rest": ("fault to the proof that nothing can write there", ""),
        "mapping left to do then": ("mapping that was left to do then", ""),
        "at rest (1 process, 2 server)": ("waited for the end of (1: the process, 2: its server)", ""),
        "bit-exact": ("every byte the same", ""),
        "slabs": ("pieces", ""),
        "import_ms": ("take it in", "ms"),
        "map_ms": ("map it", "ms"),
        "access_ms": ("allow access", "ms"),
        "reserve_ms": ("reserve addresses", "ms"),
        "make_ms": ("make it in the first place", "ms"),
        "total_ms": ("all of it", "ms"),
    },
    "replay": {
        "recovered, bit-exact": ("recovered, every byte the same", ""),
        "total": ("all of it", ""),
        "unmap": ("the dead copy of the driver unmaps the memory", ""),
        "load": ("a fresh copy is loaded", ""),
        "init": ("its `cuInit`", ""),
        "context": ("its context", ""),
        "map": ("the same memory is mapped", ""),
        "objects": ("streams, modules and the like are made again", ""),
        "amputate": ("the dead copy is cut off", ""),
        "the server's burial held back": ("nothing of the spoilt server was buried", ""),
        "first sign to the server in its place": ("from the first sign of the fault to the server in its place", ""),
        "a connection's wait for the server": ("a connection waited for the server", ""),
        "descriptors of the culprit held": ("copies of the culprit's descriptors were held", ""),
        "unaware": ("faults that PyTorch did not notice", ""),
        "same before": ("the answer before the first fault is right", ""),
    },
}

# Figures that are drawn beside their report, and what the picture shows.
PICTURES = {
    "one_fault": "one fault with a spare copy, without one, and with the vendor's daemon",
}
